"""Which items of a batch spoil it, in few calls. Pure but for what it asks.

A call says how many of its items the contract would take. So of two halves one is asked, and what
the whole said tells the other: k dead ones among n are found in some k * log2(n / k) calls, all or
none in one. Where a half reverts, or the node fails on it, its count says nothing of the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from inferd.settlement.chain import RPC_TROUBLE

T = TypeVar("T")


@dataclass(slots=True)
class Sifted(Generic[T]):
    """Those that may not go with the others."""

    dead: list[T] = field(default_factory=list)
    """The contract passes them over, or reverts because of each alone."""
    failing: list[tuple[T, str]] = field(default_factory=list)
    """The node has no answer for each alone, though it has for a call without items; and its
    words."""

    @property
    def any(self) -> bool:
        return bool(self.dead or self.failing)


class Sifter(Generic[T]):
    def __init__(
        self,
        ask: Callable[[Sequence[T]], Awaitable[int | None]],
        control: Callable[[], Awaitable[object]],
    ) -> None:
        """`ask` says how many of some items the contract would take, None where the call reverts,
        and raises RPC_TROUBLE. `control` asks the same of none: where that raises, too, it is not
        the items' fault."""
        self._ask = ask
        self._control = control
        self._found: Sifted[T] = Sifted()

    async def sift(self, items: Sequence[T]) -> Sifted[T]:
        """Raises RPC_TROUBLE where no item is to blame for it."""
        if items:
            await self._look(items, await self._count(items))
        return self._found

    async def _count(self, items: Sequence[T]) -> int | str | None:
        """Or what the node says instead."""
        try:
            return await self._ask(items)
        except RPC_TROUBLE as error:
            await self._control()
            return str(error)

    async def _look(self, items: Sequence[T], count: int | str | None) -> None:
        if count == len(items):
            return
        if count == 0:
            self._found.dead += items
        elif len(items) > 1:
            half = len(items) // 2
            first, second = items[:half], items[half:]
            in_first = await self._count(first)
            if isinstance(count, int) and isinstance(in_first, int):
                in_second: int | str | None = count - in_first
            else:
                in_second = await self._count(second)
            await self._look(first, in_first)
            await self._look(second, in_second)
        elif isinstance(count, str):
            self._found.failing.append((items[0], count))
        else:
            self._found.dead += items
