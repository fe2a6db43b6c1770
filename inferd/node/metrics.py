"""What the node counts, in Prometheus' text format at /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from indexer.rpc import CallRecord

REGISTRY = CollectorRegistry()

HEAD_BLOCK = Gauge("inferd_head_block", "Newest block the endpoint has", registry=REGISTRY)
INDEXED_BLOCK = Gauge("inferd_indexed_block", "Newest block in the tables", registry=REGISTRY)
INDEX_LAG_SECONDS = Gauge(
    "inferd_index_lag_seconds",
    "From the newest indexed block to the head, in block time",
    registry=REGISTRY,
)
REORGS = Gauge("inferd_reorgs", "Reorganisations since the start", registry=REGISTRY)
DEEPEST_REORG = Gauge(
    "inferd_deepest_reorg_blocks",
    "Blocks given up by the deepest reorganisation since the start",
    registry=REGISTRY,
)
BACKFILL_LEFT_SECONDS = Gauge(
    "inferd_backfill_left_seconds",
    "How long the backfill still takes at its pace; 0 at the head",
    registry=REGISTRY,
)
QUARANTINED = Gauge("inferd_quarantined_logs", "Logs that could not be read", registry=REGISTRY)
INDEX_RANGE_BLOCKS = Gauge(
    "inferd_index_range_blocks",
    "Blocks that the backfill asks the endpoint in use for at once",
    registry=REGISTRY,
)
RPC_CALLS = Counter(
    "inferd_rpc_calls",
    "JSON-RPC calls: ok, error (the node's own), or what came instead of an answer",
    ["endpoint", "method", "outcome"],
    registry=REGISTRY,
)
RPC_SECONDS = Histogram(
    "inferd_rpc_seconds",
    "Duration of an exchange with an endpoint, of whatever outcome",
    ["endpoint", "method"],
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    registry=REGISTRY,
)
RPC_ENDPOINT_UP = Gauge(
    "inferd_rpc_endpoint_up",
    "1 while the endpoint may be used: it does not rest and serves the right chain",
    ["endpoint"],
    registry=REGISTRY,
)
RPC_ENDPOINT_LAG = Gauge(
    "inferd_rpc_endpoint_lag_blocks",
    "Blocks behind the newest of all, when they were last asked together",
    ["endpoint"],
    registry=REGISTRY,
)
HEADS_LIVE = Gauge(
    "inferd_heads_live",
    "1 while a websocket tells of new blocks; 0 also where none is set",
    registry=REGISTRY,
)
POOL_WORKERS = Gauge(
    "inferd_pool_workers",
    "Workers that the last round saw, by whether they are given work: yes or no",
    ["work"],
    registry=REGISTRY,
)
CHECKS = Counter(
    "inferd_checks",
    "Checks of workers that are not yours: spot or canary; passed, failed, undecided or not_done",
    ["kind", "outcome"],
    registry=REGISTRY,
)
LATE_ANSWERS = Gauge(
    "inferd_late_answers_waiting",
    "Answers of workers elsewhere that are waited for though their lease has ended",
    registry=REGISTRY,
)
INPUT_BYTES = Gauge(
    "inferd_input_bytes",
    "Content named by URI that is kept, or somewhat more: exact where there is little room left",
    registry=REGISTRY,
)
OUTPUTS_UNWRITTEN = Gauge(
    "inferd_outputs_unwritten",
    "Large outputs that wait in memory because the disk does not take them",
    registry=REGISTRY,
)
RETRIES_LEFT = Gauge(
    "inferd_worker_retries_left",
    "Retries and second workers that may be asked now; 0 while everything fails",
    registry=REGISTRY,
)
RECHECKED_BLOCK = Gauge(
    "inferd_rechecked_block", "Newest final block that was compared once more", registry=REGISTRY
)
REPAIRED_BLOCKS = Gauge(
    "inferd_repaired_blocks",
    "Blocks since the start of which an endpoint had not told the chain's logs; mended",
    registry=REGISTRY,
)
READY = Gauge("inferd_ready", "1 while nothing keeps the node from its work", registry=REGISTRY)
LEADER = Gauge("inferd_leader", "1 while this process is the one that works", registry=REGISTRY)
SESSION_ENDS = Counter(
    "inferd_session_ends", "Times the database or the leadership was lost", registry=REGISTRY
)
TASK_CRASHES = Counter("inferd_task_crashes", "Crashed tasks", ["task"], registry=REGISTRY)
ROUND_SECONDS = Histogram(
    "inferd_round_seconds",
    "Duration of a scheduling round, database included",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
    registry=REGISTRY,
)
PLAN_SECONDS = Histogram(
    "inferd_plan_seconds",
    "Duration of a round's plan, without reading and writing",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
    registry=REGISTRY,
)
ROUND_PENDING = Gauge(
    "inferd_round_pending", "Requests that the newest round decided on", registry=REGISTRY
)
POLICY_FALLBACKS = Counter(
    "inferd_policy_fallbacks",
    "Rounds that went by least-requests because the policy in force failed",
    ["policy"],
    registry=REGISTRY,
)
DECISIONS = Counter("inferd_decisions", "Decisions by reason", ["reason"], registry=REGISTRY)
INPUT_TRIES = Counter(
    "inferd_input_tries",
    "Tries to fetch an input named by URI, by outcome: here, again or lost",
    ["outcome"],
    registry=REGISTRY,
)
RESULTS = Counter("inferd_results", "Leases ended, by outcome", ["outcome"], registry=REGISTRY)
POSTER_BALANCE = Gauge(
    "inferd_poster_balance_wei", "The poster's balance", ["poster"], registry=REGISTRY
)
POSTER_IN_FLIGHT = Gauge(
    "inferd_poster_in_flight", "Its transactions not yet mined", ["poster"], registry=REGISTRY
)
POSTER_PAUSED = Gauge(
    "inferd_poster_paused",
    "1 while it sends nothing new, whatever the others do",
    ["poster"],
    registry=REGISTRY,
)
POSTER_SPEND = Gauge(
    "inferd_poster_projected_spend_wei",
    "The most that transactions under way can cost, and what waiting work is expected to",
    ["poster"],
    registry=REGISTRY,
)
POSTER_RUNWAY = Gauge(
    "inferd_poster_runway_results",
    "Results that the poster's balance pays for at what one costs now; +Inf while gas is free",
    ["poster"],
    registry=REGISTRY,
)
POSTER_LOW = Gauge(
    "inferd_poster_balance_low",
    "1 while the poster's balance is below a threshold of the settings",
    ["poster"],
    registry=REGISTRY,
)
DAY_FEES = Gauge(
    "inferd_day_fees_wei",
    "Fees credited to this operator in the last 24 hours, by share: poster or worker",
    ["share"],
    registry=REGISTRY,
)
DAY_GAS = Gauge(
    "inferd_day_gas_wei",
    "Gas paid in the last 24 hours, by kind: post, deliver, refund or dispute",
    ["kind"],
    registry=REGISTRY,
)
DAY_RELEASED = Gauge(
    "inferd_day_released_wei",
    "Payments that were held back, and bonds that came back, in the last 24 hours",
    registry=REGISTRY,
)
DAY_BONDS = Gauge(
    "inferd_day_bonds_wei", "Bonds staked in disputes in the last 24 hours", registry=REGISTRY
)
HELD = Gauge(
    "inferd_held_wei",
    "What is held back for this operator while results can be disputed; not lost, and not earned",
    registry=REGISTRY,
)
DISPUTES_OPEN = Gauge(
    "inferd_disputes_open",
    "Disputes of this operator on which nobody has ruled yet",
    registry=REGISTRY,
)
BONDS_STAKED = Gauge("inferd_bonds_staked_wei", "Staked in these", registry=REGISTRY)
DAY_WASTED_GAS = Gauge(
    "inferd_day_wasted_gas_wei",
    "Of that, for transactions that did nothing: reverted, lost to another poster, cancelled",
    registry=REGISTRY,
)
DAY_PROFIT = Gauge(
    "inferd_day_profit_wei",
    "Fees and what was released, less gas and bonds, of the last 24 hours; negative = a loss",
    registry=REGISTRY,
)
TX_IN_FLIGHT = Gauge("inferd_tx_in_flight", "Transactions not yet mined", registry=REGISTRY)
RESULTS_READY = Gauge("inferd_results_ready", "Results that wait to be posted", registry=REGISTRY)
CALLBACKS_OWED = Gauge(
    "inferd_callbacks_owed", "Consumers that wait to be called", registry=REGISTRY
)


def count_call(record: CallRecord) -> None:
    """Takes in one exchange with an endpoint."""
    RPC_CALLS.labels(record.endpoint, record.method, record.outcome).inc(record.calls)
    RPC_SECONDS.labels(record.endpoint, record.method).observe(record.took_s)
