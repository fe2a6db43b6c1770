"""How much the base fee rose lately, measured on the blocks that are remembered."""

from __future__ import annotations

from indexer.database import Connection
from scheduler.rises import HORIZONS, WINDOW_BLOCKS, quantiles

_MEASURED_FOR_BLOCKS = 8
"""A measurement takes some 2 ms, and so few blocks more move its quantiles by next to nothing."""


class BaseFeeRises:
    """Measures again after some blocks."""

    def __init__(self) -> None:
        self._level = 0.0
        self._head = -1
        self._found: tuple[int, ...] = ()

    async def quantiles_ppm(self, connection: Connection, level: float) -> tuple[int, ...]:
        """As `scheduler.model.Rules` takes them; `level` is the quantile's, from 0 to 1."""
        head = await connection.fetchval("SELECT max(number) FROM chain.block")
        if head is None:
            return ()
        if level != self._level or not 0 <= head - self._head < _MEASURED_FOR_BLOCKS:
            self._found = quantiles(await _base_fees(connection), HORIZONS, level)
            self._level, self._head = level, head
        return self._found


async def _base_fees(connection: Connection) -> list[int]:
    """Of the newest blocks without a gap, oldest first, in wei."""
    rows = await connection.fetch(
        "SELECT number, base_fee_wei FROM chain.block ORDER BY number DESC LIMIT $1",
        WINDOW_BLOCKS + 1,
    )
    head = rows[0]["number"]
    newest = [row["base_fee_wei"] for at, row in enumerate(rows) if head - row["number"] == at]
    return [int(fee_wei) for fee_wei in reversed(newest)]
