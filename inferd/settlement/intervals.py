"""How far apart the chain's blocks are, measured on those that are remembered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median_low

from indexer.database import Connection

_BLOCKS = 21
_MIN_STEPS = 4
_MAX_INTERVAL_S = 30.0
"""No chain with a rhythm is slower; one that mines on demand has none to wait for."""


async def load_block_interval_s(connection: Connection) -> float:
    """Seconds between two of the newest indexed blocks, as a rule; 0 where there are none yet."""
    return block_interval_s(await load_newest(connection))


async def load_newest(connection: Connection) -> list[tuple[int, int]]:
    """Number and timestamp in seconds of the newest indexed blocks, in ascending order."""
    rows = await connection.fetch(
        "SELECT number, timestamp_s FROM chain.block ORDER BY number DESC LIMIT $1", _BLOCKS
    )
    return [(row["number"], row["timestamp_s"]) for row in reversed(rows)]


def block_interval_s(blocks: Sequence[tuple[int, int]]) -> float:
    """The median step of blocks given as (number, timestamp in seconds), in ascending order.

    A missed slot or an idle hour moves a median little, and an average much.
    """
    steps = [
        (later_s - earlier_s) / (later - earlier)
        for (earlier, earlier_s), (later, later_s) in pairwise(blocks)
    ]
    return min(median_low(steps), _MAX_INTERVAL_S) if steps else 0.0


def rhythm_s(blocks: Sequence[tuple[int, int]]) -> float:
    """The same where three of four blocks come within a quarter of it, or a second, of when they
    are expected; 0 where they do not, or where there are too few to tell."""
    interval_s = block_interval_s(blocks)
    near_s = max(1.0, interval_s / 4)
    near = [
        abs(later_s - earlier_s - interval_s) <= near_s
        for (_, earlier_s), (_, later_s) in pairwise(blocks)
    ]
    return interval_s if len(near) >= _MIN_STEPS and 4 * sum(near) >= 3 * len(near) else 0.0
