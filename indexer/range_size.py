"""How wide the next range of a backfill is. Pure: what was answered goes in, a width comes out."""

from __future__ import annotations

from enum import Enum

from indexer.rpc.ranges import Meaning, Refusal

_FIRST_BLOCKS = 64
_MAX_BLOCKS = 100_000
_ENOUGH_LOGS = 5_000
"""A range with so many fills a transaction; wider ones only cost memory."""
_SLOW_S = 2.0
_PATIENCE = 3
"""So many failures of one width that may not be about the width at all are waited out."""
_FIRST_CALM = 16
_MAX_CALM = 1024


class Next(Enum):
    """What to do after a refusal."""

    AGAIN = "again"
    """Ask at once, with the new width."""
    LATER = "later"
    """Back off first: the width is not to blame, or it is not known."""
    NEVER = "never"
    """No width helps: the endpoint refuses what it offers, or a single block."""


class RangeSize:
    """What one endpoint takes, as far as it has shown it.

    Ranges double until a limit is met. From then on they grow by an eighth, and by half of what is
    left to the narrowest width that was refused; after a refusal they go back to what was answered
    since the one before. A limit that the endpoint names is never exceeded. A width that it
    refused without naming one is tried again after `_FIRST_CALM` answered ranges, and after twice
    as many each time something is refused again.
    """

    def __init__(self) -> None:
        self._blocks = _FIRST_BLOCKS
        self._limit = _MAX_BLOCKS
        self._refused: int | None = None
        self._answered = 0
        self._met_limit = False
        self._calm = 0
        self._calm_needed = _FIRST_CALM
        self._failures = 0

    @property
    def blocks(self) -> int:
        """The width of the next range, both ends included."""
        return self._blocks

    def answered(self, blocks: int, logs: int, took_s: float) -> None:
        """A range of `blocks` was answered with so many logs."""
        self._failures = 0
        self._answered = max(self._answered, blocks)
        if logs > _ENOUGH_LOGS:
            self._blocks = max(1, blocks * _ENOUGH_LOGS // logs)
        elif took_s < _SLOW_S and blocks >= self._blocks:
            self._grow()

    def refused(self, blocks: int, refusal: Refusal) -> Next:
        """A range of `blocks` was refused."""
        if refusal.meaning is Meaning.TOO_LARGE:
            return self._too_large(blocks, refusal)
        if refusal.meaning is not Meaning.RATE_LIMITED:
            self._failures += 1
            if self._failures >= _PATIENCE:
                # A dialect that nobody has written down, or too much work for the node. It is no
                # limit, so that an outage leaves no trace once answers come again.
                self._failures = 0
                self._blocks = max(1, blocks // 2)
        return Next.LATER

    def _too_large(self, blocks: int, refusal: Refusal) -> Next:
        hint = refusal.blocks
        if blocks in {1, hint}:
            return Next.NEVER
        self._failures = 0
        self._calm = 0
        if self._met_limit:
            self._calm_needed = min(_MAX_CALM, self._calm_needed * 2)
        self._met_limit = True
        if hint is not None and hint < blocks:
            self._blocks = hint
            if refusal.lasting:
                self._limit = hint
                return Next.AGAIN
        else:
            known = self._answered if self._answered < blocks else 0
            self._blocks = max(known, blocks // 2)
        self._refused, self._answered = blocks, 0
        return Next.AGAIN

    def _grow(self) -> None:
        if not self._met_limit:
            self._blocks = min(self._limit, self._blocks * 2)
            return
        self._calm += 1
        if self._refused is not None and self._calm >= self._calm_needed:
            self._calm, self._refused = 0, None
        step = max(1, self._blocks // 8)
        if self._refused is not None:
            step = min(step, (self._refused - self._blocks) // 2)
        self._blocks = min(self._limit, self._blocks + max(0, step))
