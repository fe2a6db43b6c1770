"""Blocking calls beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T], *, stop: threading.Event | None = None) -> T:
    """Runs `call` in a thread. Cancelled, it waits for the call's end first: whoever cleans up
    next must not race with half-started work. `stop` is set then, for a call that looks at it."""
    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        await asyncio.wait({running})
        raise
