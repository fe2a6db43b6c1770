"""The queries of every block, look and post stay on indexes, however many requests are over."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import asyncpg
from asyncpg.connection import LoggedQuery

from indexer import sql
from indexer.database import Connection, Pool, connect, prepare_connection
from indexer.derive import REQUEST_KINDS, WORKER_KINDS
from indexer.forget import count_on, count_requests, done_among, load_settled
from indexer.store import load_cursor
from indexer.stored import load_newest_request, load_outline
from indexer.types import DAY_S, Address, BlockRef, Hash32, Wei
from inferd.inputs import rows as inputs_of
from inferd.node import views
from inferd.node.account_lines import load_lines, load_lines_of
from inferd.node.account_rows import fold, load_report, load_senders, load_spent
from inferd.node.accounts import Period
from inferd.node.audits import load_decisions_of
from inferd.node.feed import _SELECT_THESE, Feed
from inferd.node.jobs import load_jobs, load_servable
from inferd.node.part import bury
from inferd.node.result_routes import RESULT
from inferd.node.rounds import Rounds
from inferd.node.snapshot import RoundInputs
from inferd.outputs import sweep
from inferd.settlement import callbacks, disputes, refunds, releases, watching
from inferd.settlement.batch import load_base_fees, load_decisions, load_gas_model, load_ready
from inferd.settlement.chain import Sight
from inferd.settlement.fees import Market
from inferd.settlement.funds import Funds
from inferd.settlement.intents import IntentReader, senders_under_way
from inferd.settlement.intervals import load_block_interval_s
from inferd.settlement.observing import Evidence, Observer, Place
from inferd.settlement.orders import Orders
from inferd.settlement.overview import load_overview
from inferd.settlement.purse import Purse, spent_on_refunds_wei
from inferd.settlement.records import Item
from inferd.settlement.releases import ReleaseTerms
from inferd.settlement.settings import KeyStatus, SettlementSettings, SettlementStatus
from inferd.settlement.turns import DELIVERIES, REFUNDS, RESULTS, Turns
from inferd.workers import leases
from scheduler.allowance import Limits, Quota
from scheduler.model import GasModel, Reason, Rules

REQUESTS = 1_000_000
PENDING = 300
FIRST_KEPT = 900_001
"""Of the other tables only so much is filled: what is not read as a whole there is not in ten times
as many rows either."""
SENDER = Address(b"\x07")
NOW_S = 1_700_000_000

# One row in each table for a request that is over, as a busy node has them. The newest PENDING
# requests are open, every tenth of the others was refunded, and the newest callbacks are owed.
_KEY = "int8send(n)"
_TX = "int8send(n / 100)"
_MINED_S = f"{NOW_S} - 60 * ({REQUESTS} - n)"
"""So seldom that the hours of a report are few rows to the planner, however it samples."""
_FILL = {
    "chain.request": f"""
        INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input,
            max_tokens, memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei,
            deadline_s, submitted_deadline_s, created_block, created_block_hash, created_log_index,
            created_tx_hash, created_at_s, status, worker, digest, settled_block, settled_tx_hash,
            callback_delivered_block)
        SELECT n, {_KEY}, '\\x01', '\\x02', 0, 'hello', 1, 0, 0, 1, true,
            CASE WHEN n % 4 = 0 THEN 2 ELSE 0 END, '1000000000000'::chain.uint256,
            CASE WHEN n % 2 = 0 THEN {NOW_S} + n % 1000 ELSE {NOW_S} - n % 1000 END, 1,
            n / 10, '\\x03', 0, '\\x04', 1,
            (CASE WHEN NOT over THEN 'pending' WHEN n % 10 = 0 THEN 'refunded' ELSE 'fulfilled' END
            )::chain.request_status, CASE WHEN over THEN '\\x0a'::bytea END,
            CASE WHEN over THEN '\\x05'::bytea END, CASE WHEN over THEN n / 10 + 1 END,
            CASE WHEN over THEN {_TX} END,
            CASE WHEN n < {REQUESTS} - 1000 THEN n / 10 + 2 END
        FROM (SELECT n, n <= {REQUESTS} - {PENDING} AS over
              FROM generate_series(1::bigint, {REQUESTS}) n) x
    """,
    "chain.log": f"""
        INSERT INTO chain.log
        SELECT {_TX}, n % 100, n / 10, n / 10, {_TX}, 0, ''::bytea, 'InferenceFulfilled', n,
            NULL::bytea, '{{}}'::bytea[], ''::bytea
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS}) n
        UNION ALL
        SELECT {_TX}, 100 + n % 100, n / 10, {_MINED_S}, {_TX}, 0, '', 'PosterPaid', NULL, NULL,
            '{{}}', ''
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS}) n
    """,
    "node.result": f"""
        INSERT INTO node.result (request_id, commitment, worker, lease_id, digest, output,
            media_type, manifest, signature, compute_ms)
        SELECT n, {_KEY}, '\\x0a', n, '\\x05', '', '', '{{}}', '', 1
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS} - {PENDING} / 2) n
    """,
    "node.lease": f"""
        INSERT INTO node.lease (request_id, commitment, worker, attempt, state, expires_at)
        SELECT n, {_KEY}, '\\x0a', 1,
            CASE WHEN n > {REQUESTS} - 20 THEN 'active' ELSE 'done' END, now()
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS}) n
    """,
    "node.decision": f"""
        INSERT INTO node.decision (round_id, request_id, commitment, kind, reason, intent_id)
        SELECT 1, n, {_KEY}, 'assign', 'assigned',
            CASE WHEN n < {REQUESTS} - 100 THEN n / 100 END
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS}) n
    """,
    "node.tx_item": f"""
        INSERT INTO node.tx_item (intent_id, request_id, commitment, worker, live, outcome)
        SELECT n / 100, n, {_KEY}, '\\x0a', n > {REQUESTS} - {PENDING} - 20, 'settled'
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS} - {PENDING}) n
    """,
    "node.refusal": f"""
        INSERT INTO node.refusal (request_id, commitment, deadline_s, reason, block_number)
        SELECT n, {_KEY}, 1, 'model_unknown', 1
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS}) n
    """,
    "chain.payment": f"""
        INSERT INTO chain.payment
        SELECT {_TX}, 100 + n % 100, n / 10, {_TX}, 'poster', '\\x07', NULL, NULL, 1
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS}) n
    """,
    # Most are closed; of those that are due, most are of strangers.
    "chain.hold": f"""
        INSERT INTO chain.hold
        SELECT n, {_KEY}, '\\x05', ARRAY['\\x0a'::bytea],
            ARRAY[CASE WHEN n % 1000 = 0 THEN '\\x07'::bytea ELSE '\\x0b' END], 8,
            CASE WHEN n % 1000 = 1 THEN '\\x07'::bytea ELSE '\\x0b' END, 2, 1, {NOW_S} - 9,
            n / 10, {NOW_S} - 99, {_TX},
            CASE WHEN n % 10 = 0 OR n % 1000 = 1 THEN 'held'
                 WHEN n % 1000 = 2 THEN 'disputed' ELSE 'released' END,
            CASE WHEN n % 1000 = 2 THEN '\\x07'::bytea END, NULL,
            CASE WHEN n % 1000 = 2 THEN {NOW_S} - 1 END
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS} - {PENDING}) n
    """,
    "node.tx_intent": f"""
        INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit, reason,
            inputs, created_at, closed_at)
        SELECT CASE WHEN n % 10 = 0 THEN 'refund' ELSE 'post' END, {_KEY},
            CASE WHEN n < {REQUESTS} - 100 THEN 'final' WHEN over THEN 'confirmed'
                 ELSE 'broadcast' END, '\\x07', '', '', 1, '', '{{}}',
            now() - ({REQUESTS} - n) * interval '1 minute',
            CASE WHEN over THEN now() - ({REQUESTS} - n) * interval '1 minute' END
        FROM (SELECT n, n < {REQUESTS} AS over
              FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS}) n) x
    """,
    "node.tx_attempt": f"""
        INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,
            priority_fee_wei, gas_limit, raw, state, mined_block, mined_block_hash, gas_used,
            effective_gas_price_wei, mined_at_s)
        SELECT {_KEY}, n - {FIRST_KEPT} + 1, 1, '\\x07', n, 1, 1, 1, '', 'mined', n / 10, '\\x03',
            1, 1, {_MINED_S}
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS}) n
    """,
    "node.gas_ledger": f"""
        INSERT INTO node.gas_ledger
        SELECT n / 3600 * 3600, '\\x07', 'post', 1, 1, 1, 0, 0
        FROM generate_series({NOW_S} - 400000 * 3600::bigint, {NOW_S}, 36000) n
    """,
    "node.gas_observation": f"""
        INSERT INTO node.gas_observation
        SELECT {_KEY}, 1, 1, 1, now() - n * interval '1 second'
        FROM generate_series({FIRST_KEPT}::bigint, {REQUESTS}) n
    """,
    "chain.block": f"""
        INSERT INTO chain.block SELECT n, '\\x03', '\\x03', {NOW_S}, 1, 1, 1
        FROM generate_series({REQUESTS} / 10 - 300, {REQUESTS} / 10 + 5) n
    """,
    "chain.worker": """
        INSERT INTO chain.worker VALUES ('\\x0a', '\\x07', '{}', '', 4, 9, true, true, 1, 0, 1)
    """,
}
_CURSOR = f"""
    INSERT INTO chain.cursor (block_number, block_hash, timestamp_s, base_fee_wei, gas_limit,
        finalized_number)
    VALUES ({REQUESTS} / 10 + 5, '\\x03', {NOW_S}, 1, 30000000, {REQUESTS} / 10 - 50);
    INSERT INTO chain.recheck VALUES (true, {REQUESTS} / 10 - 50, '\\x03');
    INSERT INTO node.sender VALUES (1, '\\x07', {REQUESTS} + 1)
"""
LARGE = frozenset(table.partition(".")[2] for table in _FILL) - {"block", "worker"}

_INDEXES = """
    SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition
    FROM pg_index WHERE indrelid = $1::regclass
      AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
"""


async def fill(connection: Connection, table: str, statement: str) -> None:
    """With its indexes made afterwards, which is many times as fast."""
    indexes = await connection.fetch(_INDEXES, table)
    for index in indexes:
        await connection.execute(f"DROP INDEX {index['name']}")
    await connection.execute(statement, timeout=120)
    for index in indexes:
        await connection.execute(index["definition"], timeout=120)
    await connection.execute(f"VACUUM ANALYZE {table}", timeout=120)


async def fill_all(database: str, tables: list[str]) -> None:
    connection = await connect(database)
    # Rows of nothing refer to nothing: without the checks of foreign keys.
    await connection.execute("SET session_replication_role = replica")
    for table in tables:
        await fill(connection, table, _FILL[table])
    await connection.close()


async def a_round(pool: Pool) -> None:
    limits = Limits(Quota(1.0, 100.0, 5), fair_quantum_tokens=10.0)
    rules = Rules(poster_bps=1, limits=limits)
    budgets_wei = ((3_600, 10**18),)
    inputs = RoundInputs((), GasModel(1, 1, 1), rules, float(NOW_S), 15_000_000, budgets_wei)

    async def no_fence(connection: Connection) -> None:
        pass

    feed = Feed()
    rounds: Any = SimpleNamespace(fence=no_fence, names={})
    async with pool.acquire() as connection:
        reading = await feed.read(connection, inputs, no_fence)
        assert reading is not None
        assert len(reading.rows) == 130  # half have a result, 20 of the others are in hand
        feed.take_in(reading)
        await connection.execute(
            "UPDATE chain.request SET fee_wei = fee_wei WHERE id = $1", REQUESTS
        )
        reading = await feed.read(connection, inputs, no_fence)
        assert reading is not None
        assert reading.asked == [REQUESTS]
        await Rounds._reconsider(rounds, connection, 0, frozenset(Reason))
        await load_jobs(connection, [REQUESTS], {b"\2": "m"})
        await load_servable(connection, [REQUESTS])
        assert await inputs_of.load_wanted(connection) == ([], [])


async def a_settlement_step(pool: Pool) -> None:
    head = BlockRef(REQUESTS // 10 + 5, Hash32(b"\3"), NOW_S, Wei(1), 30_000_000)
    settings = SettlementSettings(poster_bps=1_000)
    assert await load_ready(pool, head, settings, max_gas=15_000_000)
    await load_decisions(pool, 2_048)
    await load_gas_model(pool, settings)
    await load_base_fees(pool, head)
    limits = callbacks.Limits(15_000_000, 10**9, 0, 50)
    owed, waiting = await callbacks.load_owed(pool, limits, settings, 100)
    assert await callbacks.load_callbacks(pool, owed)
    assert waiting.owed == 136  # of the newest thousand, without what was refunded or is in hand
    assert await refunds.load_claims(pool, head, 50, 1)
    await refunds.count_dust(pool, head, 10**13)
    async with pool.acquire() as connection:
        await spent_on_refunds_wei(connection, DAY_S)
    reader = IntentReader(pool, chain_id=1, sender=SENDER)
    assert await reader.live()
    await senders_under_way(pool)
    await reader.next_nonce()
    intent = await reader.load(5)
    observer: Any = SimpleNamespace(_pool=pool, _settings=SettlementSettings(poster_bps=2_000))
    sight: Any = SimpleNamespace(head=head)
    await Observer._look_at_items(observer, intent, Evidence(), sight, Place(True, False, 12.0))
    for race in (RESULTS, REFUNDS, DELIVERIES):
        await Turns(pool, SENDER, race).look(head)
    await reader.logged(intent)
    async with pool.acquire() as connection:
        assert await connection.fetch(watching.TO_LOOK_AT, 0, 2**63 - 1, 100) == []
        assert await connection.fetch(watching.TO_LOOK_AT, 10, 2**63 - 1, 100) == []
    due = await releases.load_due(pool, head, [SENDER], 200, ReleaseTerms(0, NOW_S, 1))
    assert due and all(one.earned_wei for one in due)
    assert await releases.load_lapsed(pool, head, [SENDER], 20, ReleaseTerms(0, NOW_S, 1))
    await disputes.load_lies(pool, [SENDER], open_until_s=NOW_S)
    await disputes.load_staked_wei(pool)
    assert (await disputes.load_open(pool, [SENDER])).disputes > 10
    async with pool.acquire() as connection:
        assert await disputes.load_changed(connection) == []
    purse = Purse(SettlementSettings(poster_bps=1_000, cap_wei_per_day=1))
    await purse.refresh(pool)
    await Orders(pool, [SENDER], None).obey()
    await reader.holders([REQUESTS - 1])
    item = Item(REQUESTS - 1, (REQUESTS - 1).to_bytes(8, "big"), None)  # type: ignore[arg-type]
    await reader.times_out_of_gas([item])
    async with pool.acquire() as connection:
        await load_block_interval_s(connection)
        await load_cursor(connection)
        assert (await load_overview(connection, 20)).live


async def the_api(pool: Pool) -> None:
    async with pool.acquire() as connection:
        page = await views.latest_requests(connection, {}, limit=50, before=None)
        await views.latest_requests(connection, {}, limit=50, before=page[-1].id)
        await views.one_request(connection, {}, 500_000)
        await load_decisions_of(connection, REQUESTS - 5_000)
        await connection.fetchrow(RESULT, REQUESTS - 5_000)
        counts = await count_requests(connection)
    assert sum(counts.values()) == REQUESTS
    assert counts["pending"] == PENDING


async def the_accounts(pool: Pool) -> None:
    hour = Period.around(NOW_S - 3_600, NOW_S + 1)
    async with pool.acquire() as connection:
        report = await load_report(connection, hour, [SENDER])
        assert report.total.poster_fees_wei > 50
        assert report.total.gas_wei > 50
        assert report.held_wei[SENDER] > 50
        assert len([line async for line in load_lines(connection, hour, [SENDER])]) > 50
        assert await load_lines_of(connection, REQUESTS - 5_000, [SENDER])
        spent_wei, _ = await load_spent(connection, NOW_S - 3_600, SENDER)
        assert spent_wei > 50
        assert await load_senders(connection) == {SENDER}
        await fold(connection, [5, 6])
    settings = SettlementSettings(poster_bps=1_000)
    status = SettlementStatus(callbacks_owed=136)
    head = BlockRef(REQUESTS // 10 + 5, Hash32(b"\3"), NOW_S, Wei(1), 30_000_000)
    sight = Sight(head, Market(1, 0), 0, 0, 10**18, 10**18)
    await Funds(pool, settings, status).allows_new(KeyStatus(SENDER), sight)


async def the_workers(pool: Pool) -> None:
    async with pool.acquire() as connection:
        assert await leases.active(connection)
        await leases.expire_overdue(connection)
        # Of a node that is split over processes.
        await leases.claim(connection, "dispatcher", [b"w"], 32)
        await leases.count_active(connection)
        await bury(connection)


async def the_indexer(pool: Pool) -> None:
    ids = list(range(REQUESTS - 200, REQUESTS))
    async with pool.acquire() as connection:
        await connection.fetch(sql.SELECT_EXISTING_REQUESTS, ids)
        await connection.fetch(sql.SELECT_REQUEST_LOGS, ids, list(REQUEST_KINDS))
        await connection.fetch(sql.SELECT_WORKER_LOGS, [b"\x0a"], list(WORKER_KINDS))
        for statement in (
            sql.DELETE_LOGS_ABOVE,
            sql.DELETE_PAYMENTS_ABOVE,
            sql.DELETE_QUARANTINE_ABOVE,
        ):
            await connection.execute(statement, REQUESTS // 10 + 3)
        for statement in (sql.DELETE_LOGS_OF, sql.DELETE_PAYMENTS_OF, sql.DELETE_QUARANTINE_OF):
            await connection.execute(statement, [REQUESTS // 10 + 4])
        newest = await load_newest_request(connection, REQUESTS // 10 - 5)
        assert newest.request_id == REQUESTS - 41
        await load_outline(connection, REQUESTS // 10 - 100, REQUESTS // 10)


async def the_retention(pool: Pool) -> None:
    async with pool.acquire() as connection:
        await load_settled(connection, settled_before_s=0, after=None, limit=200)
        old = [
            (REQUESTS - 5_000 + n, (REQUESTS - 5_000 + n).to_bytes(8, "big")) for n in range(200)
        ]
        assert await done_among(connection, old)
        await inputs_of.forget(connection, 3_600)

    async def no_fence(connection: Connection) -> None:
        pass

    await sweep.drop_outputs(pool, no_fence, after_days=1)
    async with pool.acquire() as connection:
        await sweep._named(connection, [Hash32(b"\5")])


WORKS = (
    a_round,
    a_settlement_step,
    the_api,
    the_accounts,
    the_workers,
    the_indexer,
    the_retention,
)


async def test_no_hot_query_reads_a_large_table_as_a_whole(database: str) -> None:
    first, *others = _FILL
    connection = await connect(database)
    # By a smaller sample the planner takes what is pending for twice as much, in one run of many.
    await connection.execute("ALTER TABLE chain.request ALTER COLUMN status SET STATISTICS 1000")
    await asyncio.gather(fill_all(database, [first]), fill_all(database, others))
    await connection.execute(_CURSOR)
    await count_on(connection)

    seen: dict[str, LoggedQuery] = {}

    async def listening(opened: Connection) -> None:
        await prepare_connection(opened)
        opened.add_query_logger(lambda query: seen.setdefault(query.query, query))

    slow = {}
    async with asyncpg.create_pool(database, min_size=1, max_size=2, init=listening) as pool:
        for work in WORKS:
            seen.clear()
            await work(pool)
            asked = [query for query in seen.values() if is_ours(query)]
            assert asked, work.__name__
            for query in asked:
                whole = await tables_read_as_a_whole(connection, query)
                if whole & LARGE:
                    slow[query.query] = whole & LARGE
    await connection.close()
    assert not slow, "\n".join(f"{sorted(whole)}: {query}" for query, whole in slow.items())


async def test_no_answer_to_a_quorum_is_looked_up_among_all_workers(connection: Connection) -> None:
    """Of which anybody can register any number."""
    await connection.execute(
        "INSERT INTO chain.worker SELECT int4send(n), int4send(n / 3), '{}', '', 4, 9, true, true,"
        " 1, 0, 1 FROM generate_series(1, 3000) n"
    )
    await connection.execute("ANALYZE chain.worker")
    plan = await connection.fetchval(f"EXPLAIN (FORMAT json) {_SELECT_THESE}", NOW_S, [1])
    assert "worker" not in _sequential(json.loads(plan)[0]["Plan"])


def is_ours(query: LoggedQuery) -> bool:
    """Not what the driver asks of itself, and nothing that has no plan."""
    first = query.query.split()[0]
    return first in {"SELECT", "UPDATE", "DELETE", "WITH"} and "advisory_unlock" not in query.query


async def tables_read_as_a_whole(connection: Connection, query: LoggedQuery) -> set[str]:
    plan = await connection.fetchval(f"EXPLAIN (FORMAT json) {query.query}", *query.args)
    return set(_sequential(json.loads(plan)[0]["Plan"]))


def _sequential(node: Any) -> list[str]:
    here = [node["Relation Name"]] if node["Node Type"] == "Seq Scan" else []
    return here + [table for below in node.get("Plans", ()) for table in _sequential(below)]
