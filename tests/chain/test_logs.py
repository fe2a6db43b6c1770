"""The search for logs works on endpoints of every temper and believes none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from indexer.errors import RangeRefused, RpcUnreachable
from indexer.rpc import RpcError, RpcMalformed, RpcRateLimited, RpcServerFault, RpcTimeout
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

    def __init__(
        self,
        logs: list[dict[str, Any]],
        widest: int = 10**9,
        words: str = "query returned more than 10000 results",
    ) -> None:
        self.logs = logs
        self.widest = widest
        self.words = words
        self.asked: list[tuple[int, int]] = []

    def pass_over(self, _: str) -> bool:
        return False

    async def request(self, method: str, params: Sequence[Any] = ()) -> Any:
        assert method == "eth_getLogs"
        (criteria,) = params
        assert criteria["topics"] == ["0x" + topic.hex() for topic in TOPICS]
        first, last = int(criteria["fromBlock"], 16), int(criteria["toBlock"], 16)
        self.asked.append((first, last))
        if last - first + 1 > self.widest:
            raise RpcError(-32005, self.words)
        return [entry for entry in self.logs if first <= int(entry["blockNumber"], 16) <= last]


@pytest.mark.parametrize("widest", [1, 3, 10, 100, 10**9])
async def test_every_match_is_found_newest_first(widest: int) -> None:
    rpc: Any = FakeRpc([log(5), log(17), log(63), log(99)], widest)

    found = [entry.block_number async for entry in search_logs(rpc, ADDRESS, TOPICS, 5, 99)]

    assert found == [99, 63, 17, 5]
    answered = [pair for pair in rpc.asked if pair[1] - pair[0] < widest]
    assert sum(last - first + 1 for first, last in answered) == 95


async def test_the_newest_match_ends_the_search() -> None:
    rpc: Any = FakeRpc([log(5), log(999)])

    found = await newest_log(rpc, ADDRESS, TOPICS, 0, 999)

    assert found is not None
    assert found.block_number == 999
    assert len(rpc.asked) == 1
    assert rpc.asked[0][0] > 900


async def test_foreign_logs_are_passed_over() -> None:
    foreign = [log(7, address=b"\xbb" * 20), log(8, topics=(TOPICS[0], b"\x03" * 32))]
    rpc: Any = FakeRpc(foreign)

    assert await newest_log(rpc, ADDRESS, TOPICS, 0, 99) is None


@pytest.mark.parametrize(
    ("widest", "words"),
    [
        (0, "query returned more than 10000 results"),
        (10, "query returned more than 10000 results. Try with this block range [0x24, 0x63]."),
    ],
)
async def test_where_no_range_is_taken__ends_with_the_endpoints_words(
    widest: int, words: str
) -> None:
    rpc: Any = FakeRpc([], widest, words)

    with pytest.raises(RangeRefused) as caught:
        await newest_log(rpc, ADDRESS, TOPICS, 0, 99)
    assert words in caught.value.message
    assert len(rpc.asked) < 20


async def test_a_limit_that_is_named_is_taken_at_once() -> None:
    rpc: Any = FakeRpc([log(5)], 10, "eth_getLogs is limited to a 10 range")

    assert await newest_log(rpc, ADDRESS, TOPICS, 5, 114) is not None
    assert rpc.asked[0] == (51, 114)
    assert [last - first + 1 for first, last in rpc.asked[1:]] == [10] * 11


@pytest.mark.parametrize(
    "refusal",
    [
        RpcError(-32005, "daily request count exceeded, request rate limited"),
        RpcRateLimited("slow down", help_text=""),
        RpcTimeout("no answer in time", help_text=""),
        RpcServerFault("503", help_text=""),
    ],
)
async def test_trouble_that_passes__waited_for__and_the_range_stays_as_wide(
    refusal: Exception,
) -> None:
    class Busy(FakeRpc):
        troubles = 2

        async def request(self, method: str, params: Sequence[Any] = ()) -> Any:
            answer = await super().request(method, params)
            self.troubles -= 1
            if self.troubles >= 0:
                raise refusal
            return answer

    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    rpc: Any = Busy([log(5), log(99)])
    found = [
        one.block_number async for one in search_logs(rpc, ADDRESS, TOPICS, 5, 99, pause=pause)
    ]
    assert found == [99, 5]
    assert rpc.asked == [(36, 99)] * 3 + [(5, 35)]
    assert len(pauses) == 2


async def test_trouble_that_does_not_pass__is_raised_in_the_end() -> None:
    async def pause(_: float) -> None:
        """Time passes."""

    rpc: Any = FakeRpc([], 0, "too many requests")
    with pytest.raises(RpcError, match="too many requests"):
        await newest_log(rpc, ADDRESS, TOPICS, 0, 99, pause=pause)
    assert rpc.asked == [(36, 99)] * 21


async def test_words_that_nobody_has_written_down__narrowed_with_patience() -> None:
    async def pause(_: float) -> None:
        """Time passes."""

    rpc: Any = FakeRpc([log(5)], 8, "words of tomorrow")
    assert await newest_log(rpc, ADDRESS, TOPICS, 5, 99, pause=pause) is not None


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
