"""Working with a database that comes and goes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from indexer.database import CONNECTION_LOST, is_unstorable

_T = TypeVar("_T")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


async def through_outages(
    once: Callable[[], Awaitable[_T]], *, log: Any, until_s: float | None = None
) -> _T:
    """Repeats `once` while the database is away, with growing, jittered pauses.

    `once` is one transaction at most and must bear to be repeated: a commit whose answer was
    lost counts as not done. `log` is a structlog logger. Raises what is in CONNECTION_LOST after
    `until_s`, in seconds of `time.monotonic`; without it, it goes on until it is cancelled. What
    `is_unstorable` is raised at once: no database takes it later.
    """
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await once()
        except CONNECTION_LOST as error:
            too_late = until_s is not None and time.monotonic() + pause_s > until_s
            if too_late or is_unstorable(error):
                raise
            log.warning("database_away", error=type(error).__name__, retry_in_s=round(pause_s, 2))
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
