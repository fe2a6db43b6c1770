"""Blocking calls beside the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_SWITCH_S = 0.001
"""How long the thread of a round or of a posting decision may keep the interpreter once the event
loop wants it. The loop asks for it anew after each wait for the network, so it pays this several
times for one answer."""


def give_way() -> None:
    """Of this process, threads let the event loop on within a millisecond from now on."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_S))


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
