"""A database with rows of an earlier release, brought up to date."""

from __future__ import annotations

from importlib.resources import files

import asyncpg
import pytest

from indexer.database import connect, prepare_connection
from indexer.schema import chain_migrations, migrate, migrations_in
from indexer.types import DAY_S, Address
from inferd.settlement.decisions import SELECT_DECISION, decision_of
from inferd.settlement.outbox import Outbox
from inferd.settlement.overview import load_overview
from inferd.settlement.purse import spent_on_refunds_wei, spent_on_work_wei
from inferd.settlement.state import IntentState
from scheduler.model import Numbers, Reason

_BEFORE = 3
_BEFORE_ACCOUNTS = 7
_INPUTS = {
    "assigned": {
        "fee_wei": 10**22,
        "revenue_wei": 10**21,
        "gas_need_wei": 5,
        "wait_s": 1.5,
        "budget_ms": 9_000,
        "p90_ms": 700.5,
        "completion_ms": 300.25,
        "available": 2,
        "registered": 3,
    },
    "no_free_slot": {"budget_ms": 9_000, "wait_s": 1.5, "tried": 2},
    "no_available_worker": {
        "budget_ms": 9_000,
        "wait_s": 1.5,
        "registered": 3,
        "available": 1,
        "available_slots": 4,
    },
    "gas_too_dear_now": {
        "fee_wei": 10**15,
        "revenue_wei": 10**14,
        "gas_need_wei": 10**16,
        "gas_price_wei": 10**9,
        "gas_margin": 1.5,
        "delivery_gas": 7,
    },
    "expired": {"deadline_s": 100, "block_number": 5, "block_timestamp_s": 103},
    "deadline_infeasible": {
        "deadline_s": 100,
        "now_s": 98.5,
        "budget_ms": -1_500,
        "best_p90_ms": 700.5,
        "inclusion_s": 3.0,
    },
    "model_unknown": {"workers": 3, "model": "0x" + "ab" * 32},
    "memory_too_large": {"memory_mb": 5, "largest_memory_mb": 4},
    "unsupported": {"unsupported": "inputs by URI are not served by this node"},
    "attempts_exhausted": {"attempts": 8, "max_attempts": 8},
    "bad_input": {"bad_input": "it is no text"},
}


@pytest.mark.parametrize("reason", _INPUTS)
async def test_decisions_of_before_are_told_with_their_numbers(
    empty_database: str, reason: str
) -> None:
    connection = await connect(empty_database)
    of_node = migrations_in(files("inferd.node") / "migrations")
    await migrate(connection, "chain", chain_migrations())
    await migrate(connection, "node", of_node[:_BEFORE])
    await connection.execute(
        "INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, pending, assigned,"
        " kept, refused, duration_us) VALUES (1, '', 1, 'balanced', 1, 1, 1, 1, 1)"
    )
    await connection.execute(
        "INSERT INTO node.decision (round_id, request_id, commitment, kind, reason, sentence,"
        " inputs, leaf) VALUES (1, 1, '', 'keep', $1, '', $2, '\\x01')",
        reason,
        _INPUTS[reason],
    )
    await migrate(connection, "node", of_node)
    row = await connection.fetchrow(
        f"SELECT {SELECT_DECISION} FROM node.decision d JOIN node.round r ON r.id = d.round_id"
    )
    assert row is not None
    told = decision_of(row)
    assert told.reason is Reason(reason)
    assert told.numbers != Numbers()
    assert "?" not in told.sentence
    await connection.close()


async def test_transactions_of_before_are_dated_by_the_chain(empty_database: str) -> None:
    connection = await connect(empty_database)
    of_node = migrations_in(files("inferd.node") / "migrations")
    await migrate(connection, "chain", chain_migrations())
    await migrate(connection, "node", of_node[:_BEFORE_ACCOUNTS])
    await connection.execute(
        """
        INSERT INTO chain.block VALUES (5, '\\x05', '', 1234, 1, 1, 1);
        INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit, reason,
            inputs) VALUES ('post', '', 'mined', '', '', '', 1, '', '{}');
        INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,
            priority_fee_wei, gas_limit, raw, state, mined_block, mined_block_hash)
        SELECT hash, id, 1, '', 1, 1, 1, 1, '', 'mined', number, block
        FROM node.tx_intent, (VALUES ('\\x01'::bytea, 5::bigint, '\\x05'::bytea),
                                     ('\\x02', NULL, NULL)) x (hash, number, block)
        """
    )
    await migrate(connection, "node", of_node)
    rows = await connection.fetch("SELECT mined_at_s FROM node.tx_attempt ORDER BY hash")
    assert [row["mined_at_s"] for row in rows] == [1234, None]
    await connection.close()


async def test_transactions_of_before_are_final_after_a_day(empty_database: str) -> None:
    connection = await connect(empty_database)
    of_node = migrations_in(files("inferd.node") / "migrations")
    await migrate(connection, "chain", chain_migrations())
    await migrate(connection, "node", of_node[:7])
    await connection.execute(
        "INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit, reason,"
        " inputs, closed_at) SELECT 'post', state::bytea, state, '', '', '', 1, '', '{}',"
        " CASE WHEN old THEN now() - interval '25 hours'"
        "      WHEN state <> 'broadcast' THEN now() END"
        " FROM (VALUES ('confirmed', true), ('cancelled', true), ('failed', false),"
        "              ('broadcast', false)) AS before (state, old)"
    )
    await migrate(connection, "node", of_node)
    rows = await connection.fetch("SELECT state FROM node.tx_intent ORDER BY id")
    assert [row["state"] for row in rows] == ["final", "final", "failed", "broadcast"]
    await connection.close()


async def test_transactions_of_before_in_every_state_are_read_and_go_on(
    empty_database: str,
) -> None:
    connection = await connect(empty_database)
    of_node = migrations_in(files("inferd.node") / "migrations")
    await migrate(connection, "chain", chain_migrations())
    await migrate(connection, "node", of_node[:_BEFORE_ACCOUNTS])
    await connection.execute(
        """
        INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit, reason,
            inputs, closed_at)
        SELECT kind, kind::bytea || state::bytea, state, '\\x01', '', '\\x1234', 1, '', '{}',
               CASE WHEN state IN ('confirmed', 'failed', 'cancelled') THEN now() END
        FROM unnest(ARRAY['planned', 'signed', 'broadcast', 'mined', 'confirmed', 'failed',
                          'cancelled']) state,
             unnest(ARRAY['post', 'deliver', 'refund']) kind;
        INSERT INTO node.tx_item (intent_id, request_id, commitment, live, outcome)
        SELECT id, id, '', closed_at IS NULL, CASE WHEN closed_at IS NOT NULL THEN 'abandoned' END
        FROM node.tx_intent;
        INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,
            priority_fee_wei, gas_limit, raw, state, mined_block, mined_block_hash, gas_used,
            effective_gas_price_wei)
        SELECT i.state::bytea || a.state::bytea || i.kind::bytea, i.id, 1, '\\x01', i.id, 3, 1, 10,
               '\\x021234', a.state,
               receipt.*
        FROM node.tx_intent i
        JOIN unnest(ARRAY['signed', 'broadcast', 'mined', 'replaced', 'dropped']) a (state)
          ON i.state <> 'planned'
         AND (a.state <> 'mined' OR i.state NOT IN ('signed', 'broadcast'))
        LEFT JOIN (VALUES (5, '\\x05'::bytea, 7, 2)) receipt ON a.state = 'mined'
        """
    )
    await migrate(connection, "node", of_node)
    overview = await load_overview(connection, 100)
    assert (len(overview.live), len(overview.over), len(overview.given_up)) == (12, 9, 9)
    assert {line.cost_wei for line in overview.over} == {14}
    async with asyncpg.create_pool(
        empty_database, min_size=1, max_size=1, init=prepare_connection
    ) as pool:
        outbox = Outbox(pool, chain_id=1, sender=Address(b"\x01"))
        live = await outbox.live()
        assert len(live) == 12
        # What is under way counts with the most it may cost, what was mined by its receipt.
        assert await spent_on_work_wei(connection, DAY_S) == 4 * 30 + 8 * 14
        assert await spent_on_refunds_wei(connection, DAY_S) == 2 * 30 + 4 * 14
        for intent in live:
            if intent.state is IntentState.MINED:
                await outbox.mark_unmined(intent.id)
            elif intent.attempts:
                await outbox.mark_found(intent.id, intent.attempts[-1].hash)
    states = await connection.fetch(
        "SELECT DISTINCT state FROM node.tx_intent WHERE closed_at IS NULL"
    )
    assert {row["state"] for row in states} == {"planned", "broadcast"}
    await connection.close()
