"""The search for logs works on endpoints of every temper and believes none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from indexer.errors import RpcUnreachable
from indexer.rpc import RpcError, RpcMalformed
from indexer.types import Address
from inferd.chain.logs import newest_log, search_logs

ADDRESS = Address(b"\xaa" * 20)
TOPICS = (b"\x01" * 32, b"\x02" * 32)


def log(
    block: int, *, address: bytes = ADDRESS, topics: Sequence[bytes] = TOPICS
) -> dict[str, Any]:
    return {
        "address": "0x" + address.hex(),
        "topics": ["0x" + topic.hex() for topic in topics],
        "data": "0x",
        "blockNumber": hex(block),
        "blockHash": "0x" + "00" * 32,
        "transactionHash": "0x" + "00" * 32,
        "transactionIndex": "0x0",
        "logIndex": "0x0",
        "removed": False,
    }


class FakeRpc:
    """An endpoint that takes at most `widest` blocks at once."""

    endpoint = "http://fake"

    def __init__(self, logs: list[dict[str, Any]], widest: int = 10**9) -> None:
        self.logs = logs
        self.widest = widest
        self.asked: list[tuple[int, int]] = []

    async def request(self, method: str, params: Sequence[Any] = ()) -> Any:
        assert method == "eth_getLogs"
        (criteria,) = params
        assert criteria["topics"] == ["0x" + topic.hex() for topic in TOPICS]
        first, last = int(criteria["fromBlock"], 16), int(criteria["toBlock"], 16)
        self.asked.append((first, last))
        if last - first + 1 > self.widest:
            raise RpcError(-32005, "query returned more than 10000 results")
        return [entry for entry in self.logs if first <= int(entry["blockNumber"], 16) <= last]


@pytest.mark.parametrize("widest", [1, 3, 10, 100, 10**9])
async def test_every_match_is_found_newest_first(widest: int) -> None:
    rpc: Any = FakeRpc([log(5), log(17), log(63), log(99)], widest)

    found = [entry.block_number async for entry in search_logs(rpc, ADDRESS, TOPICS, 5, 99)]

    assert found == [99, 63, 17, 5]
    answered = [pair for pair in rpc.asked if pair[1] - pair[0] < widest]
    assert sum(last - first + 1 for first, last in answered) == 95


async def test_the_newest_match_ends_the_search() -> None:
    rpc: Any = FakeRpc([log(5), log(99)], widest=10)

    found = await newest_log(rpc, ADDRESS, TOPICS, 0, 99)

    assert found is not None
    assert found.block_number == 99
    assert min(first for first, last in rpc.asked if last - first < 10) > 80


async def test_foreign_logs_are_passed_over() -> None:
    foreign = [log(7, address=b"\xbb" * 20), log(8, topics=(TOPICS[0], b"\x03" * 32))]
    rpc: Any = FakeRpc(foreign)

    assert await newest_log(rpc, ADDRESS, TOPICS, 0, 99) is None


async def test_an_endpoint_that_refuses_even_one_block_is_believed() -> None:
    rpc: Any = FakeRpc([], widest=0)

    with pytest.raises(RpcError, match="10000"):
        await newest_log(rpc, ADDRESS, TOPICS, 0, 99)
    assert len(rpc.asked) < 20


async def test_an_endpoint_that_is_away_is_not_asked_for_less() -> None:
    class Away(FakeRpc):
        async def request(self, method: str, params: Sequence[Any] = ()) -> Any:
            self.asked.append((0, 0))
            raise RpcUnreachable("away", help_text="start it")

    rpc: Any = Away([])
    with pytest.raises(RpcUnreachable):
        await newest_log(rpc, ADDRESS, TOPICS, 0, 99)
    assert len(rpc.asked) == 1


async def test_logs_that_are_none_are_told() -> None:
    rpc: Any = FakeRpc([log(5) | {"data": "nonsense"}])

    with pytest.raises(RpcMalformed, match="cannot be read"):
        await newest_log(rpc, ADDRESS, TOPICS, 0, 99)


async def test_an_empty_range_asks_nothing() -> None:
    rpc: Any = FakeRpc([])

    assert await newest_log(rpc, ADDRESS, TOPICS, 10, 9) is None
    assert rpc.asked == []
