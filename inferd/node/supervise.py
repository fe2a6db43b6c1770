"""Keeps the daemon's tasks alive: a crash is logged and restarted with backoff, too many of them
stop the daemon loudly; what ends the whole session is passed on."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import ClassVar, NoReturn

import asyncpg
import structlog

from indexer.database import CONNECTION_LOST
from indexer.errors import DatabaseUnreachable, ExitCode, OperatorError, TemporaryError
from inferd.node.leader import LostLeadership
from inferd.node.metrics import TASK_CRASHES

_MAX_CRASHES = 5
_CRASH_WINDOW_S = 300.0
_MAX_BACKOFF_S = 10.0

# What a server refuses today and does tomorrow: no room, no memory, no time, a rival's lock.
PASSING = (
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.ObjectInUseError,
    asyncpg.LockNotAvailableError,
)

log = structlog.get_logger("node")


class CrashLoop(OperatorError):
    """A task crashes again and again."""

    code: ClassVar[str] = "crash_loop"
    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL


class SessionEnded(Exception):
    """The database or the leadership is gone: all tasks of the session end and start anew."""


async def keep_running(
    name: str,
    work: Callable[[], Awaitable[None]],
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Runs `work` for ever.

    Raises SessionEnded, CrashLoop after five crashes within five minutes, and any OperatorError
    that only a person can mend.
    """
    crashes: deque[float] = deque(maxlen=_MAX_CRASHES)
    backoff_s = 0.1
    while True:
        started = clock()
        try:
            await work()
            raise RuntimeError(f"the {name} task returned")
        except (LostLeadership, DatabaseUnreachable, *CONNECTION_LOST, *PASSING) as error:
            raise SessionEnded(f"{name}: {type(error).__name__}: {error}") from error
        except TemporaryError as error:
            log.warning("task_waits", task=name, code=error.code, error=error.message)
        except OperatorError:
            raise
        except Exception:
            TASK_CRASHES.labels(name).inc()
            log.exception("task_crashed", task=name)
            crashes.append(clock())
            if len(crashes) == _MAX_CRASHES and crashes[-1] - crashes[0] < _CRASH_WINDOW_S:
                raise CrashLoop(
                    f"the {name} task crashed {_MAX_CRASHES} times within {_CRASH_WINDOW_S:.0f} s",
                    help_text="the log above has the tracebacks; report it",
                ) from None
        if clock() - started > _MAX_BACKOFF_S:
            backoff_s = 0.1
        await pause(backoff_s)
        backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)


async def run_all(works: Mapping[str, Callable[[], Awaitable[None]]]) -> NoReturn:
    """Keeps all of them running, each as `keep_running` does, until one of them ends the session.

    Raises what that one raised, and of several what only a person can mend. Told to stop, it stops,
    also in the very moment of a failure: not a TaskGroup, which forgets the one for the other.
    """
    tasks = [
        asyncio.create_task(keep_running(name, work), name=name) for name, work in works.items()
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    errors = [error for task in tasks if not task.cancelled() and (error := task.exception())]
    if not errors:
        raise SessionEnded("a task was cancelled from within")
    raise first_cause(BaseExceptionGroup("the session ended", errors))


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended a group of tasks: what only a person can mend goes before the rest."""
    causes = list(_flat(group))
    fatal = (cause for cause in causes if isinstance(cause, OperatorError))
    return next(fatal, causes[0])


def _flat(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flat(error)
        else:
            yield error
