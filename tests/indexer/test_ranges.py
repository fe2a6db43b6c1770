"""Which answers with logs are believed, and how wide the ranges of a backfill are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from indexer.backfill import RangeReader
from indexer.completeness import checked_logs
from indexer.errors import RangeRefused, RpcUnreachable
from indexer.rpc import (
    Header,
    RawLog,
    RpcAnswerTooLarge,
    RpcError,
    RpcMalformed,
    RpcRateLimited,
    RpcServerFault,
    RpcTimeout,
)
from indexer.types import Address, BlockRef, Hash32, Wei

OURS = Address(b"\1" * 20)


def block_hash(number: int) -> Hash32:
    return Hash32(number.to_bytes(32, "big"))


def header(number: int) -> Header:
    return Header(
        number, block_hash(number), block_hash(number - 1), 100 + number, Wei(0), 0, 0, bytes(256)
    )


def a_log(number: int, log_index: int = 0) -> RawLog:
    return RawLog(OURS, (), b"", number, block_hash(number), block_hash(1), 0, log_index)


HEADERS = {number: header(number) for number in range(1, 10)}


def test_logs__in_any_order__come_in_chain_order() -> None:
    logs = [a_log(3, 1), a_log(2, 5), a_log(3, 0)]
    ordered = checked_logs(logs, HEADERS, [OURS])
    assert [(log.block_number, log.log_index) for log in ordered] == [(2, 5), (3, 0), (3, 1)]


@pytest.mark.parametrize(
    "bad",
    [
        replace(a_log(3, 1), address=Address(b"\2" * 20)),
        replace(a_log(3, 1), block_hash=block_hash(4)),
        replace(a_log(3, 1), block_number=77),
        a_log(3, 0),
        replace(a_log(3, 0), data=b"another"),
    ],
)
def test_logs__one_foreign_or_twice__none_is_believed(bad: RawLog) -> None:
    with pytest.raises(RpcMalformed):
        checked_logs([a_log(3, 0), bad], HEADERS, [OURS])


class Node:
    """A chain with a log in every 50th block, behind what a backfill uses of an Rpc."""

    endpoint = "http://node"

    def __init__(self, refuse: Callable[[int], Exception | None] = lambda _: None) -> None:
        self.refuse = refuse
        self.asked: list[int] = []
        self.headers_asked: list[int] = []

    def pass_over(self, _: str) -> bool:
        return False

    async def logs_in_range(self, first: int, last: int, _: Iterable[Address]) -> list[RawLog]:
        self.asked.append(last - first + 1)
        error = self.refuse(last - first + 1)
        if error:
            raise error
        return [a_log(number) for number in range(first, last + 1) if number % 50 == 0]

    async def headers(self, numbers: Sequence[int]) -> list[Header | None]:
        self.headers_asked += numbers
        return [header(number) for number in numbers]


async def read_all(node: Any, target: int) -> list[RawLog]:
    """As the indexer does: what is raised is asked again."""
    reader = RangeReader(node, [OURS])
    logs: list[RawLog] = []
    first, cursor = 1, None
    while first <= target:
        try:
            read = await reader.read(first, target, cursor=cursor, keep_from=target - 10)
        except (RpcUnreachable, RpcError):
            assert len(node.asked) < 100_000
            continue
        logs += read.logs
        cursor = read.headers[-1].ref()
        first = cursor.number + 1
    return logs


async def test_backfill__calm_node__ranges_grow_and_few_headers_are_fetched() -> None:
    node = Node()
    logs = await read_all(node, 1_000_000)
    assert len(logs) == 20_000
    assert len(node.asked) < 30
    assert max(node.asked) == 100_000
    assert len(node.headers_asked) < 20_000 + 2 * len(node.asked) + 11


@pytest.mark.parametrize(
    "error",
    [
        RpcError(-32005, "query returned more than 10000 results"),
        RpcError(-32000, "words of tomorrow"),
        RpcTimeout("slow", help_text=""),
        RpcServerFault("503", help_text=""),
        RpcAnswerTooLarge("large", help_text=""),
    ],
)
async def test_backfill__range_refused__narrowed_until_it_is_taken(error: Exception) -> None:
    node = Node(lambda blocks: error if blocks > 10 else None)
    logs = await read_all(node, 1_000)
    assert [log.block_number for log in logs] == list(range(50, 1_001, 50))
    taken = [blocks for blocks in node.asked if blocks <= 10]
    assert sum(taken) == 1_000
    assert len(taken) < 250


async def test_backfill__limit_named__taken_at_once_and_kept() -> None:
    limit = RpcError(-32614, "eth_getLogs is limited to a 10 range")
    node = Node(lambda blocks: limit if blocks > 10 else None)
    await read_all(node, 1_000)
    assert node.asked == [64] + [10] * 100


async def test_backfill__limit_of_one_endpoint__is_not_the_next_ones() -> None:
    limit = RpcError(-32614, "eth_getLogs is limited to a 10 range")
    node = Node(lambda blocks: limit if node.endpoint == "http://small" and blocks > 10 else None)
    node.endpoint = "http://small"
    reader: Any = RangeReader(node, [OURS])  # type: ignore[arg-type]
    read = await reader.read(1, 10_000, cursor=None, keep_from=10_000)
    assert read.headers[-1].number == 10
    node.endpoint = "http://large"
    read = await reader.read(11, 10_000, cursor=None, keep_from=10_000)
    assert read.headers[-1].number == 74
    assert reader.blocks == 128
    node.endpoint = "http://small"
    assert reader.blocks == 10


@pytest.mark.parametrize(
    ("refusal", "blocks"),
    [
        ("block range too large", "block 1,"),
        (
            "query returned more than 10000 results. Try with this block range [0x1, 0x40]",
            "1 to 64",
        ),
    ],
)
async def test_backfill__nothing_smaller_is_taken__ends_with_the_endpoints_words(
    refusal: str, blocks: str
) -> None:
    node: Any = Node(lambda _: RpcError(-32000, refusal))
    with pytest.raises(RangeRefused) as caught:
        await RangeReader(node, [OURS]).read(1, 100, cursor=None, keep_from=100)
    assert refusal in str(caught.value)
    assert blocks in str(caught.value)
    assert "http://node" in str(caught.value)
    assert len(node.asked) <= 7


@pytest.mark.parametrize(
    "error",
    [
        RpcRateLimited("slow down", help_text=""),
        RpcError(-32005, "project ID request rate exceeded"),
        RpcUnreachable("away", help_text=""),
    ],
)
async def test_backfill__trouble_that_is_not_about_the_range__raised_and_range_kept(
    error: Exception,
) -> None:
    node: Any = Node(lambda _: error)
    reader = RangeReader(node, [OURS])
    for _ in range(20):
        with pytest.raises(type(error)):
            await reader.read(1, 100, cursor=None, keep_from=100)
    assert node.asked == [64] * 20


async def test_backfill__first_block_off_our_chain__nothing_is_believed() -> None:
    orphan = BlockRef(4, block_hash(99), 0, Wei(0), 0)
    node: Any = Node()
    with pytest.raises(RpcMalformed, match="does not follow"):
        await RangeReader(node, [OURS]).read(5, 50, cursor=orphan, keep_from=0)
