"""The newest indexed blocks, and what a new header means to them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias

from indexer.types import Hash32


class Link(Protocol):
    """What the window keeps of a block."""

    @property
    def number(self) -> int: ...
    @property
    def hash(self) -> Hash32: ...
    @property
    def parent_hash(self) -> Hash32: ...


@dataclass(frozen=True, slots=True)
class BlockLink:
    number: int
    hash: Hash32
    parent_hash: Hash32


@dataclass(frozen=True, slots=True)
class Known:
    """Nothing to do: the block is indexed already, or the node lags behind all that we remember."""


@dataclass(frozen=True, slots=True)
class Append:
    """The block follows the tip."""


@dataclass(frozen=True, slots=True)
class FillGap:
    """Blocks `first` to `last` are missing between the tip and the block."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Replace:
    """The block's parent is block `ancestor` of ours, and what we have above that is orphaned."""

    ancestor: int


@dataclass(frozen=True, slots=True)
class NeedParent:
    """The block is on another branch, and so is its parent: look at that."""

    number: int
    hash: Hash32


@dataclass(frozen=True, slots=True)
class TooDeep:
    """The branches part below the oldest block we remember."""

    oldest: int


Action: TypeAlias = Known | Append | FillGap | Replace | NeedParent | TooDeep


class Window:
    """Indexed blocks without a gap, each the parent of the next. The newest is the tip.

    No block below `start` matters: a branch that parts below it replaces all there is.
    """

    __slots__ = ("_blocks", "start")

    def __init__(self, start: int, blocks: Iterable[Link] = ()) -> None:
        """Raises ValueError where the blocks are not linked."""
        self.start = start
        self._blocks: Sequence[Link] = tuple(blocks)
        for below, above in pairwise(self._blocks):
            if above.number != below.number + 1 or above.parent_hash != below.hash:
                raise ValueError(f"block {above.number} does not follow block {below.number}")

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def tip(self) -> Link | None:
        return self._blocks[-1] if self._blocks else None

    @property
    def next_number(self) -> int:
        return self._blocks[-1].number + 1 if self._blocks else self.start

    @property
    def oldest(self) -> int | None:
        return self._blocks[0].number if self._blocks else None

    def hash_at(self, number: int) -> Hash32 | None:
        """None where the window has no such block."""
        if not self._blocks or not 0 <= number - self._blocks[0].number < len(self._blocks):
            return None
        return self._blocks[number - self._blocks[0].number].hash

    def extended(self, ancestor: int, blocks: Iterable[Link], *, keep_from: int) -> Window:
        """The window after what is above `ancestor` was replaced by `blocks`.

        Blocks below `keep_from` are forgotten, save the tip, and so is all before a gap: a
        backfill keeps no more than the newest blocks.
        """
        whole = [block for block in self._blocks if block.number <= ancestor]
        whole += blocks
        kept = [block for block in whole[:-1] if block.number >= keep_from] + whole[-1:]
        return Window(self.start, linked_end(kept))


def linked_end(blocks: Sequence[Link]) -> Sequence[Link]:
    """The longest end of `blocks` in which each is the parent of the next."""
    for at in range(len(blocks) - 1, 0, -1):
        below, above = blocks[at - 1], blocks[at]
        if above.number != below.number + 1 or above.parent_hash != below.hash:
            return blocks[at:]
    return blocks


def reconcile(window: Window, header: Link) -> Action:
    """What to do about a header that the node says is on its chain.

    A lower number alone is no reorganisation; only a hash that contradicts ours is.
    """
    if header.number < window.start or window.hash_at(header.number) == header.hash:
        return Known()
    oldest = window.oldest
    if oldest is None:
        if header.number == window.start:
            return Append()
        return FillGap(window.start, header.number - 1)
    if header.number < oldest:
        return Known()
    if header.number > window.next_number:
        return FillGap(window.next_number, header.number - 1)
    if header.number == window.start:
        return Replace(window.start - 1)
    if header.number == oldest:
        return TooDeep(oldest)
    if window.hash_at(header.number - 1) != header.parent_hash:
        return NeedParent(header.number - 1, header.parent_hash)
    return Append() if header.number == window.next_number else Replace(header.number - 1)
