"""What an indexer can say of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexerStatus:
    """A snapshot. Block numbers are None until one is known."""

    head: int | None = None
    """The node's newest block, when it was last asked."""
    indexed: int | None = None
    finalized: int | None = None
    """The newest indexed block that counts as final."""
    lag_blocks: int = 0
    """Blocks between `indexed` and `head`; 0 where the node is the one behind."""
    lag_s: int = 0
    """The same in seconds of block time."""
    left_s: float | None = None
    """How long a backfill still takes at its pace; None at the head."""
    range_blocks: int = 0
    """How many blocks a backfill asks for at once."""
    reorgs: int = 0
    """Since the start of the process, as the next."""
    deepest_reorg: int = 0
    """Blocks given up by the deepest of them."""
    completed_blocks: int = 0
    """Near the head, with requests that an endpoint had left out; since the start too."""
    quarantined: int = 0
    """Logs of ours on the canonical chain that could not be read."""
    last_error: str | None = None
    """Why the last step failed; None once a step succeeds."""
    rpc_ok: bool = False
    last_progress_monotonic: float | None = None
    """`time.monotonic()` of the last step that succeeded, even if it found nothing new."""

    @property
    def head_behind_blocks(self) -> int:
        """How far the node's newest block is below what is indexed: one that syncs anew, or lags. A
        lower head alone is no reorganisation, so nothing else tells of it."""
        if self.head is None or self.indexed is None:
            return 0
        return max(0, self.indexed - self.head)
