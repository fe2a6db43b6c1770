"""Endpoints that misbehave as a test says, and processes that die at a chosen await."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from indexer.errors import RpcUnreachable
from indexer.rpc import RpcError

Real = Callable[..., Awaitable[Any]]
Script = Callable[..., Awaitable[Any]]
"""Called with the real method and its arguments."""


class ScriptedRpc:
    """Passes every call on, but for those that a script was queued for."""

    def __init__(self, rpc: Any) -> None:
        self._rpc = rpc
        self._scripts: dict[str, list[Script]] = {}
        self._always: dict[str, Script] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def then(self, method: str, *scripts: Script) -> None:
        self._scripts.setdefault(method, []).extend(scripts)

    def always(self, method: str, script: Script | None) -> None:
        if script is None:
            self._always.pop(method, None)
        else:
            self._always[method] = script

    def forget_scripts(self) -> None:
        """Those that were queued; what holds always goes on."""
        self._scripts.clear()

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.calls)

    def __getattr__(self, name: str) -> Real:
        real: Real = getattr(self._rpc, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args))
            queue = self._scripts.get(name)
            script = queue.pop(0) if queue else self._always.get(name)
            return await (script(real, *args, **kwargs) if script else real(*args, **kwargs))

        return call


def unreachable() -> RpcUnreachable:
    return RpcUnreachable("nobody answers", help_text="wait")


async def no_answer(real: Real, *args: Any, **kwargs: Any) -> Any:
    """The call never reaches the node."""
    raise unreachable()


async def answer_lost(real: Real, *args: Any, **kwargs: Any) -> Any:
    """The node does it, and its answer is lost."""
    await real(*args, **kwargs)
    raise unreachable()


def error(message: str, code: int = -32000) -> Script:
    async def script(real: Real, *args: Any, **kwargs: Any) -> Any:
        raise RpcError(code, message)

    return script


def answer(value: Any) -> Script:
    async def script(real: Real, *args: Any, **kwargs: Any) -> Any:
        return value

    return script


class Crash(BaseException):
    """The process is gone."""


class CrashPoints:
    """Counts every await of I/O, and ends the process before the chosen one.

    To die after one await is to die before the next: nothing happens in between.
    """

    def __init__(self, at: int | None = None) -> None:
        self.passed = 0
        self.names: list[str] = []
        self._at = at

    async def around(self, name: str, awaitable: Any) -> Any:
        self.passed += 1
        self.names.append(name)
        if self.passed == self._at:
            if hasattr(awaitable, "close"):
                awaitable.close()
            raise Crash(name)
        return await awaitable


class CrashingRpc:
    def __init__(self, rpc: Any, points: CrashPoints) -> None:
        self._rpc = rpc
        self._points = points

    def __getattr__(self, name: str) -> Real:
        real = getattr(self._rpc, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._points.around(name, real(*args, **kwargs))

        return call


class CrashingPool:
    """An asyncpg pool whose queries and commits are crash points."""

    def __init__(self, pool: Any, points: CrashPoints) -> None:
        self._pool = pool
        self._points = points

    def acquire(self) -> _Acquired:
        return _Acquired(self._pool.acquire(), self._points)


class _Acquired:
    def __init__(self, context: Any, points: CrashPoints) -> None:
        self._context = context
        self._points = points

    async def __aenter__(self) -> _CrashingConnection:
        return _CrashingConnection(await self._context.__aenter__(), self._points)

    async def __aexit__(self, *exception: Any) -> Any:
        return await self._context.__aexit__(*exception)


class _CrashingConnection:
    def __init__(self, connection: Any, points: CrashPoints) -> None:
        self._connection = connection
        self._points = points

    def transaction(self) -> _CrashingTransaction:
        return _CrashingTransaction(self._connection.transaction(), self._points)

    def __getattr__(self, name: str) -> Real:
        real = getattr(self._connection, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            statement = " ".join(str(args[0]).split()[:3])
            return await self._points.around(statement, real(*args, **kwargs))

        return call


class _CrashingTransaction:
    def __init__(self, transaction: Any, points: CrashPoints) -> None:
        self._transaction = transaction
        self._points = points

    async def __aenter__(self) -> None:
        await self._transaction.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if kind is not None:
            return await self._transaction.__aexit__(kind, error, trace)
        try:
            return await self._points.around(
                "COMMIT", self._transaction.__aexit__(None, None, None)
            )
        except Crash as crash:
            # The server rolls back what it was told so far.
            await self._transaction.__aexit__(Crash, crash, None)
            raise
