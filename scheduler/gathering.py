"""When posting is decided between two blocks: once, shortly before the next.

What is posted at any time between two blocks is mined in the same one. So results that come in
between cost less gas in one transaction shortly before the next block than in one each, and none of
them is later on chain. That takes blocks that come in a known rhythm, and far enough apart; where
they do not, posting is decided at once, whenever a result comes.

The next block is expected an interval after the head's own time, or after its arrival where this
node's clock shows another time than the chain. A decision is never put off for more than a block:
where one comes before its moment, what waited is decided on at once. Where a block fails to come,
the next moment is an interval later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler.model import Block

MIN_INTERVAL_S = 4.0
"""Blocks that are nearer together than this have no company to wait for."""


@dataclass(frozen=True, slots=True)
class Gathering:
    """When posting is decided under one head; times are of this node's clock, in seconds."""

    head: bytes
    """The block's hash."""
    due_at_s: float
    """From when on posting is decided."""
    next_at_s: float
    """From when on it is decided once more, after it was."""
    every_s: float
    """How long after that it is due again and again; 0 = all the time."""
    holds: bool = False
    """Whether anything waits for it that was not decided on under this head."""

    def held(self) -> Gathering:
        """Something was put off until it is due."""
        return self if self.due_at_s == self.next_at_s else replace(self, holds=True)

    def decided(self, now_s: float) -> Gathering:
        """Posting was decided; before it is due, nothing is different."""
        if now_s < self.due_at_s or not self.every_s:
            return self
        passed = max((now_s - self.next_at_s) // self.every_s + 1, 0)
        again_at_s = self.next_at_s + passed * self.every_s
        return replace(self, due_at_s=again_at_s, next_at_s=again_at_s, holds=False)


def gather(
    before: Gathering | None, head: Block, *, now_s: float, interval_s: float, lead_s: float
) -> Gathering:
    """The gathering under this head, which the node sees at `now_s`: the same as long as the head
    is.

    `interval_s` is how far apart blocks are, 0 where they have no rhythm; `lead_s` is how long
    before the next one posting is decided.
    """
    if before is not None and before.head == head.hash:
        return before
    if interval_s < max(MIN_INTERVAL_S, 2 * lead_s):
        return Gathering(head.hash, 0.0, 0.0, 0.0)  # Also where the clock is set back.
    shown = 0.0 <= now_s - head.timestamp_s < interval_s
    began_s = head.timestamp_s if shown else now_s
    moment_s = began_s + interval_s - lead_s
    if before is not None and before.holds:
        return Gathering(head.hash, now_s, moment_s, interval_s)
    return Gathering(head.hash, moment_s, moment_s + interval_s, interval_s)
