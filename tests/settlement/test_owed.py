"""What is owed to consumers is read once, and what cannot be called hides nothing that can."""

from __future__ import annotations

from dataclasses import replace

import asyncpg
import pytest
from asyncpg.connection import LoggedQuery
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexer.database import Connection, Pool, prepare_connection
from indexer.types import Address
from inferd.settlement.callbacks import Limits, Waiting, load_owed
from inferd.settlement.settings import SettlementSettings

OWNER = Address(b"\x07" * 20)
SETTINGS = SettlementSettings(poster_bps=1_000, own_accounts=frozenset({OWNER}))
LIMITS = Limits(max_gas=1_000_000, free_gas=10**9, price_wei=10, max_callbacks=50)
FINE, TOO_LARGE, TOO_DEAR = (20_000, 10**9), (2_000_000, 10**9), (20_000, 1)
"""Gas of the callback, and fee."""


async def owe(pool: Pool, kinds: list[tuple[int, int]]) -> None:
    """Fulfilled requests that were not delivered, in blocks of three, the oldest first."""
    await pool.execute("TRUNCATE chain.request, chain.worker, node.result")
    await pool.execute(
        "INSERT INTO chain.worker VALUES ('\\x0a', $1, '{}', '', 4, 9, true, true, 1, 0, 1)", OWNER
    )
    for at, (gas, fee_wei) in enumerate(kinds):
        commitment = at.to_bytes(20, "big")
        await pool.execute(
            "INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input,"
            " max_tokens, memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei,"
            " deadline_s, submitted_deadline_s, created_block, created_block_hash,"
            " created_log_index, created_tx_hash, created_at_s, status, worker, digest,"
            " settled_block, settled_tx_hash)"
            " VALUES ($1, $2, '', '', 0, '', 1, 0, $3, 1, true, 2, $4, 1, 1, 1, '', 0, '', 1,"
            " 'fulfilled', '\\x0a', '\\x05', $5, '\\x04')",
            at,
            commitment,
            gas,
            fee_wei,
            at // 3,
        )
        await pool.execute(
            "INSERT INTO node.result (request_id, commitment, worker, lease_id, digest, output,"
            " media_type, manifest, signature, compute_ms)"
            " VALUES ($1, $2, '\\x0a', 1, '\\x05', '', '', '{}', '', 1)",
            at,
            commitment,
        )


# One database for all examples: each empties the tables it fills.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.sampled_from([FINE, TOO_LARGE, TOO_DEAR]), max_size=12),
    part=st.integers(1, 15),
    limit=st.integers(1, 15),
)
async def test_whatever_the_part__the_oldest_that_can_be_called_are_found(
    pool: Pool, kinds: list[tuple[int, int]], part: int, limit: int
) -> None:
    await owe(pool, kinds)
    found, waiting = await load_owed(pool, LIMITS, SETTINGS, limit, part=part)
    can_be_called = [at for at, kind in enumerate(kinds) if kind is FINE]
    assert [one.request_id for one in found] == can_be_called[:limit]
    if len(can_be_called) < limit or part >= len(kinds):
        assert waiting == Waiting(len(kinds), kinds.count(TOO_LARGE), kinds.count(TOO_DEAR))


@pytest.mark.parametrize(("kind", "queries"), [(FINE, 1), (TOO_LARGE, 3)])
async def test_each_is_looked_at_once(
    pool: Pool, database: str, kind: tuple[int, int], queries: int
) -> None:
    """The next part is asked for only where this one has too few that can be called."""
    await owe(pool, [kind] * 8)
    asked: list[LoggedQuery] = []

    async def listening(opened: Connection) -> None:
        await prepare_connection(opened)
        opened.add_query_logger(asked.append)

    async with asyncpg.create_pool(database, min_size=1, max_size=1, init=listening) as heard:
        asked.clear()
        _, waiting = await load_owed(heard, replace(LIMITS, free_gas=1), SETTINGS, 3, part=3)
    assert len([query for query in asked if "chain.request" in query.query]) == queries
    assert waiting.owed == (3 if kind is FINE else 8)


@pytest.mark.parametrize(("others", "owned"), [((b"\x0b", b"\x0c"), 2), ((b"\x0c",), 1), ((), 1)])
async def test_of_a_quorum_each_share_that_is_known_to_be_ours_counts(
    pool: Pool, others: tuple[bytes, ...], owned: int
) -> None:
    """The event names one of its workers; who else signed our own posts is in the tables."""
    fee_wei = 10**9
    await owe(pool, [(20_000, fee_wei)])
    for signer, owner in ((b"\x0b", OWNER), (b"\x0c", b"\x08" * 20)):
        await pool.execute(
            "INSERT INTO chain.worker VALUES ($1, $2, '{}', '', 4, 9, true, true, 1, 0, 1)",
            signer,
            owner,
        )
    await pool.execute("UPDATE chain.request SET quorum = 3")
    intent = await pool.fetchval(
        "INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit, reason,"
        " inputs, closed_at) VALUES ('post', '', 'final', '', '', '', 1, '', '{}', now())"
        " RETURNING id"
    )
    await pool.execute(
        "INSERT INTO node.tx_item (intent_id, request_id, commitment, worker, live, outcome,"
        " others) SELECT $1, id, commitment, '\\x0a', false, 'settled', $2 FROM chain.request",
        intent,
        list(others),
    )
    ((one,), _) = await load_owed(pool, replace(LIMITS, price_wei=1), SETTINGS, 5)
    assert one.earned_wei == fee_wei * 9 // 10 // 3 * owned


@pytest.mark.parametrize(("state", "owed"), [("held", 1), ("released", 1), ("upheld", 0)])
async def test_a_lie_whose_fee_was_given_back_is_not_delivered(
    pool: Pool, state: str, owed: int
) -> None:
    await pool.execute("TRUNCATE chain.hold")
    await owe(pool, [FINE])
    await pool.execute(
        "INSERT INTO chain.hold SELECT id, commitment, digest, '{}', '{}', 9, '', 1, 1, 1, 1, 1,"
        " '', $1 FROM chain.request",
        state,
    )
    found, waiting = await load_owed(pool, LIMITS, SETTINGS, 5)
    assert len(found) == waiting.owed == owed
