"""Tasks of one's own: several questions at once, some at a time; and the end of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

A = TypeVar("A")
T = TypeVar("T")


async def together(
    ask: Callable[[A], Awaitable[T]], about: Iterable[A], *, at_once: int
) -> list[T]:
    """All answers, in order. The first failure ends the rest and is raised as it is.

    Not a TaskGroup: that one forgets a cancellation that comes together with a failure, and a loop
    around it would go on after it was told to stop.
    """
    slots = asyncio.Semaphore(at_once)

    async def in_turn(one: A) -> T:
        async with slots:
            return await ask(one)

    tasks = [asyncio.create_task(in_turn(one)) for one in about]
    if not tasks:
        return []
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def end(task: asyncio.Task[Any]) -> None:
    """Cancels a task and waits until it has ended. Raises what it failed with, if it did.

    Whoever waits can be cancelled meanwhile: to suppress CancelledError around the task would take
    that for the task's own.
    """
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
