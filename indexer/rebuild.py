"""Empties the tables of the chain, for an index that is beyond repair."""

from __future__ import annotations

from typing import Final

from indexer.database import Connection

_LOCK_CURSOR: Final = "SELECT FROM chain.cursor FOR UPDATE"
# Readers of these go on undisturbed until the commit; nobody but the indexer reads the others.
_DELETED: Final = ("cursor", "block", "request", "hold", "worker", "recheck", "forgotten")
_TRUNCATED: Final = ("log", "payment", "terms", "quarantine")

_RESET_TALLY: Final = """
    UPDATE chain.tally SET to_block = -1, fulfilled = 0, refunded = 0, forgotten_fulfilled = 0,
        forgotten_refunded = 0
"""


async def empty_tables(connection: Connection) -> None:
    """Deletes all that was indexed, in the caller's transaction. Which deployment the database
    belongs to stays. Whoever indexes begins anew from the deployment's block."""
    await connection.execute(_LOCK_CURSOR)
    for table in _DELETED:
        await connection.execute(f"DELETE FROM chain.{table}")  # noqa: S608 - constants
    names = ", ".join(f"chain.{table}" for table in _TRUNCATED)
    await connection.execute(f"TRUNCATE {names}")
    await connection.execute(_RESET_TALLY)
