"""How a process that serves for ever ends by a signal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from indexer.errors import ExitCode

_STOP_WITHIN_S = 9.0


async def until_signalled(
    work: asyncio.Task[None], on_stop: Callable[[], None] | None = None
) -> None:
    """Cancels the work at the first SIGTERM or SIGINT, after `on_stop`, and waits for its end; the
    second one, and an end that takes too long, end the process at once."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            os._exit(ExitCode.INTERRUPTED)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not work.done():
        if on_stop is not None:
            on_stop()
        # Whatever hangs: all that matters survives a kill, and a supervisor sends one after 10 s.
        loop.call_later(_STOP_WITHIN_S, os._exit, ExitCode.INTERNAL)
        work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
