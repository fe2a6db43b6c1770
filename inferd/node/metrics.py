"""What the node counts, in Prometheus' text format at /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

HEAD_BLOCK = Gauge("inferd_head_block", "Newest block the endpoint has", registry=REGISTRY)
INDEXED_BLOCK = Gauge("inferd_indexed_block", "Newest block in the tables", registry=REGISTRY)
INDEX_LAG_SECONDS = Gauge(
    "inferd_index_lag_seconds",
    "From the newest indexed block to the head, in block time",
    registry=REGISTRY,
)
REORGS = Gauge("inferd_reorgs", "Reorganisations since the start", registry=REGISTRY)
QUARANTINED = Gauge("inferd_quarantined_logs", "Logs that could not be read", registry=REGISTRY)
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
DECISIONS = Counter("inferd_decisions", "Decisions by reason", ["reason"], registry=REGISTRY)
RESULTS = Counter("inferd_results", "Leases ended, by outcome", ["outcome"], registry=REGISTRY)
POSTER_BALANCE = Gauge("inferd_poster_balance_wei", "The poster's balance", registry=REGISTRY)
TX_IN_FLIGHT = Gauge("inferd_tx_in_flight", "Transactions not yet mined", registry=REGISTRY)
RESULTS_READY = Gauge("inferd_results_ready", "Results that wait to be posted", registry=REGISTRY)
CALLBACKS_OWED = Gauge(
    "inferd_callbacks_owed", "Consumers that wait to be called", registry=REGISTRY
)
