"""How an intent ends in the tables, and how it comes back. Within the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping

from indexer.database import Connection
from indexer.rpc import Receipt
from inferd.protocol.request import Commitment, Delivery
from inferd.settlement.receipts import FAULTS
from inferd.settlement.records import Intent
from inferd.settlement.state import IntentState
from inferd.settlement.steps import unmine

ItemKey = tuple[int, Commitment]


async def end(
    connection: Connection,
    intent: Intent,
    state: IntentState,
    outcome: str,
    outcomes: Mapping[ItemKey, str],
    *,
    max_failures: int,
    receipt: Receipt | None = None,
    groups: int | None = None,
    diagnosis: str | None = None,
) -> int:
    """Ends the intent, frees its items, and gives up those that failed too often.

    Where it did not anchor its decisions, the next post shall. `groups` is how many groups a post
    had that settled all of its items, each signature of a quorum counting as one: its gas is an
    observation. Returns how many items were given up.
    """
    await connection.execute(
        "UPDATE node.tx_intent SET state = $2, outcome = $3, diagnosis = $4,"
        " closed_at = now() WHERE id = $1",
        intent.id,
        state.value,
        outcome,
        diagnosis,
    )
    await connection.executemany(
        "UPDATE node.tx_item SET live = false, outcome = $4"
        " WHERE intent_id = $1 AND request_id = $2 AND commitment = $3",
        [
            (
                intent.id,
                item.request_id,
                item.commitment,
                outcomes.get((item.request_id, item.commitment)),
            )
            for item in intent.items
        ],
    )
    given_up = await _give_up(connection, intent.id, max_failures)
    if state is not IntentState.CONFIRMED:
        await connection.execute(
            "UPDATE node.decision SET intent_id = NULL WHERE intent_id = $1", intent.id
        )
    if state is IntentState.CANCELLED:
        await connection.execute(
            "UPDATE node.tx_attempt SET state = 'dropped'"
            " WHERE intent_id = $1 AND state <> 'mined'",
            intent.id,
        )
    if groups is not None and receipt is not None:
        await _observe_gas(connection, intent, receipt, groups)
    return given_up


async def revive(connection: Connection, intent_id: int) -> None:
    """A closed intent's transaction left the chain: it is live again, with the same bytes, and so
    are those of its items that no other live intent has.

    Raises UniqueViolationError where the same effect is in a live intent by now.
    """
    await unmine(connection, intent_id)
    await connection.execute(
        "UPDATE node.tx_intent SET state = 'broadcast', outcome = NULL,"
        " diagnosis = NULL, closed_at = NULL WHERE id = $1",
        intent_id,
    )
    await connection.execute(
        "UPDATE node.tx_item item SET live = true, outcome = NULL"
        " WHERE intent_id = $1 AND NOT EXISTS (SELECT 1 FROM node.tx_item other"
        " WHERE other.live AND other.request_id = item.request_id"
        " AND other.commitment = item.commitment)",
        intent_id,
    )


async def _give_up(connection: Connection, intent_id: int, max_failures: int) -> int:
    rows = await connection.fetch(
        "UPDATE node.tx_item item SET outcome = 'abandoned'"
        " WHERE intent_id = $1 AND outcome = ANY($2::text[])"
        # Where others failed with it, the fault may be theirs.
        " AND (SELECT count(*) FROM node.tx_item other WHERE other.intent_id = $1"
        "      AND other.outcome = ANY($2::text[])) = 1"
        " AND (SELECT count(*) FROM node.tx_item same WHERE same.request_id = item.request_id"
        "      AND same.commitment = item.commitment"
        "      AND same.worker IS NOT DISTINCT FROM item.worker"
        "      AND same.outcome = ANY($2::text[])) >= $3"
        " RETURNING 1",
        intent_id,
        list(FAULTS),
        max_failures,
    )
    return len(rows)


async def _observe_gas(
    connection: Connection, intent: Intent, receipt: Receipt, groups: int
) -> None:
    """Of a post with a request whose row is gone by now the deliveries are not known."""
    await connection.execute(
        "INSERT INTO node.gas_observation"
        " (tx_hash, groups, items, gas_used, stored, callbacks)"
        " SELECT $1, $2, $3::integer, $4, count(*) FILTER (WHERE r.delivery = $6),"
        "        count(*) FILTER (WHERE r.delivery = $7)"
        " FROM node.tx_item i JOIN chain.request r"
        "   ON r.id = i.request_id AND r.commitment = i.commitment"
        " WHERE i.intent_id = $5 HAVING count(*) = $3::integer ON CONFLICT DO NOTHING",
        receipt.tx_hash,
        groups,
        len(intent.items),
        receipt.gas_used,
        intent.id,
        Delivery.STORED,
        Delivery.CALLBACK,
    )
