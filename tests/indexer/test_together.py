"""Several questions at once: in order, some at a time, and stopped when told to."""

from __future__ import annotations

import asyncio
import gc

import pytest

from indexer.together import end, together


async def test_results_are_in_the_order_of_the_questions() -> None:
    async def late(number: int) -> int:
        await asyncio.sleep(0.01 if number % 2 else 0)
        return number

    assert await together(late, range(9), at_once=3) == list(range(9))
    assert await together(late, (), at_once=3) == []


async def test_no_more_than_that_many_run() -> None:
    running = most = 0

    async def counted(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await together(counted, range(20), at_once=4)
    assert most == 4


async def test_the_first_failure_ends_the_others() -> None:
    ended = []

    async def question(number: int) -> None:
        try:
            if number == 1:
                raise ValueError("no")
            await asyncio.sleep(60)
        finally:
            ended.append(number)

    with pytest.raises(ValueError, match="no"):
        await together(question, range(5), at_once=3)
    assert 0 in ended
    assert len(asyncio.all_tasks()) == 1


async def test_stopped_in_the_moment_of_a_failure__stops() -> None:
    async def failing(_: int) -> None:
        task.cancel()
        raise ValueError("no")

    async def ask() -> None:
        await together(failing, [1], at_once=1)

    task = asyncio.create_task(ask())
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
async def test_stopped_twice__no_question_is_left_half_begun() -> None:
    async def question(_: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            task.cancel()

    task = asyncio.create_task(together(question, range(5), at_once=2))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gc.collect()


async def test_end__of_a_task__raises_what_it_failed_with() -> None:
    async def failing() -> None:
        raise ValueError("no")

    await end(asyncio.create_task(asyncio.sleep(60)))
    task = asyncio.create_task(failing())
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="no"):
        await end(task)


async def test_end__stopped_meanwhile__stops() -> None:
    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            waiting.cancel()

    async def wait_for_it() -> None:
        await end(task)

    task = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(wait_for_it())
    with pytest.raises(asyncio.CancelledError):
        await waiting
