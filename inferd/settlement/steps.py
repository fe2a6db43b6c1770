"""Steps of intents and attempts that several transactions of the outbox have in common."""

from __future__ import annotations

from indexer.database import Connection, plain_text
from indexer.types import Hash32

NOT_MINED = (
    "mined_block = NULL, mined_block_hash = NULL, status = NULL, gas_used = NULL,"
    " effective_gas_price_wei = NULL, data_fee_wei = kept_data_fee_wei"
)
"""SQL: nothing was paid for an attempt, and what is kept for it is kept again."""


async def note_answer(connection: Connection, tx_hash: Hash32, error: str) -> None:
    """What an endpoint said that was no success."""
    await connection.execute(
        "UPDATE node.tx_attempt SET error = $2, sends = sends + 1 WHERE hash = $1",
        tx_hash,
        plain_text(error)[:500],
    )


async def take(connection: Connection, intent_id: int, tx_hash: Hash32, *, sends: int) -> None:
    """A pool has it: those before it are replaced by it."""
    await connection.execute(
        "UPDATE node.tx_attempt SET state = 'broadcast', sends = sends + $2, error = NULL,"
        " sent_at = now() WHERE hash = $1",
        tx_hash,
        sends,
    )
    await connection.execute(
        "UPDATE node.tx_attempt SET state = 'replaced' WHERE intent_id = $1 AND hash <> $2"
        " AND state IN ('signed', 'unknown', 'broadcast', 'dropped')",
        intent_id,
        tx_hash,
    )
    await connection.execute(
        "UPDATE node.tx_intent SET state = 'broadcast'"
        " WHERE id = $1 AND state IN ('signed', 'unknown')",
        intent_id,
    )


async def unmine(connection: Connection, intent_id: int) -> None:
    """What was mined, or had lost its nonce, is on its way again."""
    await connection.execute(
        f"UPDATE node.tx_attempt SET state = 'broadcast', {NOT_MINED}"  # noqa: S608 - constants
        " WHERE intent_id = $1 AND state IN ('mined', 'dropped')",
        intent_id,
    )
