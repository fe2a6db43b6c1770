"""Several processes that settle on the same tables, each with keys of its own."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from indexer.types import Address


class Sharing(Protocol):
    """Their steps take turns, so that what one plans and reserves is seen by the next: one plan and
    one purse for all keys, wherever they are."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Waits for the steps of the others, and holds them off until it is left. The fences that
        settlement was given refuse who has lost it unnoticed."""

    async def leave(self, poster: Address) -> None:
        """Gives back the lock of a key that was claimed."""

    async def is_elsewhere(self, poster: Address) -> bool:
        """Whether another process has that key now."""
