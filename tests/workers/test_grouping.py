"""Items that come while others are worked on are worked on together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.workers.grouping import Grouped


class Bad(Exception):
    pass


async def test_what_comes_meanwhile_is_one_group() -> None:
    groups: list[list[int]] = []
    opened = asyncio.Event()

    async def work(items: Sequence[int]) -> list[int]:
        groups.append(list(items))
        if len(groups) == 1:
            await opened.wait()
        return [item * 10 for item in items]

    grouped = Grouped(work, most=4)
    first = asyncio.create_task(grouped.do(1))
    while not groups:
        await asyncio.sleep(0)
    rest = [asyncio.create_task(grouped.do(number)) for number in range(2, 8)]
    await asyncio.sleep(0)
    opened.set()
    assert await asyncio.gather(first, *rest) == [10, 20, 30, 40, 50, 60, 70]
    assert groups == [[1], [2, 3, 4, 5], [6, 7]], "at most four, and the first waits for nobody"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30),
    st.integers(1, 8),
)
def test_each_item_hears_of_itself_alone(items: list[tuple[int, bool]], most: int) -> None:
    """Bad ones spoil nobody else; no group holds one key twice; of one key, the order stays."""
    done: list[tuple[int, int]] = []

    async def work(group: Sequence[tuple[int, tuple[int, bool]]]) -> list[int]:
        await asyncio.sleep(0)
        assert 0 < len(group) <= most
        assert max(Counter(key for _, (key, _) in group).values()) == 1
        if any(bad for _, (_, bad) in group):
            raise Bad
        done.extend((key, number) for number, (key, _) in group)
        return [number for number, _ in group]

    async def run() -> list[int | BaseException]:
        grouped = Grouped(work, most=most, apart=lambda item: item[1][0])
        return await asyncio.gather(
            *(grouped.do(item) for item in enumerate(items)), return_exceptions=True
        )

    heard = asyncio.run(run())
    assert len(heard) == len(items)
    for number, ((_, bad), answer) in enumerate(zip(items, heard, strict=True)):
        assert isinstance(answer, Bad) if bad else answer == number
    for wanted in range(4):
        numbers = [number for key, number in done if key == wanted]
        assert numbers == sorted(numbers)


async def test_a_database_that_is_away_is_asked_once_for_all() -> None:
    calls = 0

    async def work(items: Sequence[int]) -> list[int]:
        nonlocal calls
        calls += 1
        raise ConnectionResetError

    grouped = Grouped(work, most=100)
    heard = await asyncio.gather(*map(grouped.do, range(50)), return_exceptions=True)
    assert all(isinstance(one, ConnectionResetError) for one in heard)
    assert calls == 1


async def test_who_gave_up_is_left_out_and_closing_frees_the_rest() -> None:
    groups: list[list[int]] = []

    async def work(items: Sequence[int]) -> list[int]:
        groups.append(list(items))
        await asyncio.Event().wait()
        return list(items)

    grouped = Grouped(work, most=100)
    tasks = [asyncio.create_task(grouped.do(number)) for number in range(3)]
    while not groups:
        await asyncio.sleep(0)
    late = [asyncio.create_task(grouped.do(number)) for number in (7, 8)]
    await asyncio.sleep(0)
    late[0].cancel()
    await grouped.close()
    for task in (*tasks, *late):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert groups == [[0, 1, 2]]

    async def echo(items: Sequence[int]) -> list[int]:
        groups.append(list(items))
        return list(items)

    again = Grouped(echo, most=100)
    tasks = [asyncio.create_task(again.do(number)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert groups[-1] == [0, 2]
