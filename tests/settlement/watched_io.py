"""Every await of settlement's I/O is found by itself, has a name, and can be the last one.

A name says what is asked, and the functions of settlement that lead there: it is the same in every
process, whatever else differs between two runs.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import FrameType
from typing import Any

_WATCHED = "inferd.settlement."
_TOP = frozenset({"Settlement.step", "Settlement._step"})
_EFFECTS = frozenset({"rpc.send_raw_transaction"})
_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE|JOIN)\s+((?:node|chain)\.\w+)", re.IGNORECASE)


class Watch:
    """Kills this process with SIGKILL when it comes to `die_at` for the first time."""

    def __init__(self, die_at: str | None = None) -> None:
        self.points: dict[str, None] = {}
        """In the order in which they were passed. What leaves something behind is one each time,
        all else the first time only."""
        self.awaits = 0
        self.unwatched: set[str] = set()
        """Functions that waited while nothing watched was under way."""
        self._die_at = die_at
        self._under_way = 0
        self._times: Counter[str] = Counter()

    async def around(
        self, what: str, call: Callable[[], Awaitable[Any]], *, effect: bool = False
    ) -> Any:
        """A call that leaves the process: it can end before it, and after its effect.

        After one that leaves all as it was, it would be as before it.
        """
        name = f"{what} in {_way_here()}"
        self.awaits += 1
        self._pass(f"before {name}")
        answer = await self.through(call)
        if effect:
            point = f"after {name}"
            self._times[point] += 1
            self._pass(point if self._times[point] == 1 else f"{point}, {self._times[point]}")
        return answer

    def at(self, point: str) -> None:
        """Between two calls."""
        self._pass(point)

    async def through(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """A call without an effect of its own: to end there is to end at its neighbours."""
        self._under_way += 1
        try:
            return await call()
        finally:
            self._under_way -= 1

    def _pass(self, point: str) -> None:
        self.points.setdefault(point)
        if point == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def all_of(self, coroutine: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
        """Runs it, and notes where it waits for what is not watched."""
        return _Driven(coroutine, self)

    def note(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        if not self._under_way:
            self.unwatched.add(_innermost(coroutine))


class _Driven:
    def __init__(self, coroutine: Coroutine[Any, Any, Any], watch: Watch) -> None:
        self._coroutine, self._watch = coroutine, watch

    def __await__(self) -> Generator[Any, Any, Any]:
        thrown: BaseException | None = None
        while True:
            try:
                waited = self._coroutine.throw(thrown) if thrown else self._coroutine.send(None)
            except StopIteration as done:
                return done.value
            thrown = None
            self._watch.note(self._coroutine)
            try:
                yield waited
            except BaseException as error:
                thrown = error


def _innermost(coroutine: Any) -> str:
    """The last function of settlement on its way to what it waits for."""
    name = ""
    while hasattr(coroutine, "cr_code"):
        if "settlement" in coroutine.cr_code.co_filename:
            name = coroutine.cr_code.co_qualname
        coroutine = coroutine.cr_await
    return name


def _way_here() -> str:
    """Functions of settlement that are being run, the last with its line within it."""
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if (
            frame.f_globals.get("__name__", "").startswith(_WATCHED)
            and code.co_qualname not in _TOP
        ):
            line = "" if names else f"+{frame.f_lineno - code.co_firstlineno}"
            names.append(code.co_qualname.replace(".<locals>", "") + line)
        frame = frame.f_back
    return " > ".join(reversed(names))


class WatchedCalls:
    """An endpoint or a signer, each of whose coroutines is watched."""

    def __init__(self, real: Any, kind: str, watch: Watch) -> None:
        self._real, self._kind, self._watch = real, kind, watch

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if not callable(real):
            return real

        async def call(*args: Any, **named: Any) -> Any:
            what = f"{self._kind}.{args[0] if name == 'request' else name}"
            return await self._watch.around(
                what, lambda: real(*args, **named), effect=what in _EFFECTS
            )

        return call


class WatchedPool:
    """An asyncpg pool, all of whose statements, begins and commits are watched."""

    def __init__(self, pool: Any, watch: Watch) -> None:
        self._pool, self._watch = pool, watch

    def acquire(self) -> _Acquired:
        return _Acquired(self._pool.acquire(), self._watch)


class _Acquired:
    def __init__(self, context: Any, watch: Watch) -> None:
        self._context, self._watch = context, watch

    async def __aenter__(self) -> _Connection:
        real = await self._watch.through(self._context.__aenter__)
        return _Connection(real, self._watch)

    async def __aexit__(self, *error: Any) -> Any:
        return await self._watch.through(lambda: self._context.__aexit__(*error))


class _Connection:
    def __init__(self, real: Any, watch: Watch) -> None:
        self._real, self._watch = real, watch

    def transaction(self, **options: Any) -> _Transaction:
        return _Transaction(self._real.transaction(**options), self._watch)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)

        async def call(statement: str, *args: Any, **named: Any) -> Any:
            what = _verb_and_table(statement)
            effect = not (what.startswith("SELECT") or self._real.is_in_transaction())
            return await self._watch.around(
                what, lambda: real(statement, *args, **named), effect=effect
            )

        return call


class _Transaction:
    def __init__(self, real: Any, watch: Watch) -> None:
        self._real, self._watch = real, watch

    async def __aenter__(self) -> None:
        await self._watch.around("BEGIN", self._real.__aenter__)

    async def __aexit__(self, *error: Any) -> Any:
        what = "COMMIT" if error[0] is None else "ROLLBACK"
        return await self._watch.around(
            what, lambda: self._real.__aexit__(*error), effect=error[0] is None
        )


def _verb_and_table(statement: str) -> str:
    table = _TABLE.search(statement)
    return f"{statement.split(maxsplit=1)[0].upper()} {table[1] if table else ''}".strip()
