"""What can go wrong between a node and us, as values."""

from __future__ import annotations

import asyncio
import copy
import random
from dataclasses import dataclass
from typing import Any, Protocol

from tests.faults.dialects import RangeDialect
from tests.faults.exchange import Call, Exchange


class Fault(Protocol):
    """Changes one exchange. Faults of one exchange are applied in order."""

    async def apply(self, exchange: Exchange) -> None: ...


@dataclass(frozen=True)
class HangUp:
    """The connection is closed after a share of the answer: 0 for before its first byte.

    With `unasked` the node never hears of the call.
    """

    after: float = 0.0
    unasked: bool = False

    async def apply(self, exchange: Exchange) -> None:
        exchange.hang_up_after = self.after
        if self.unasked:
            exchange.text = ""


@dataclass(frozen=True)
class Truncate:
    """Only the first part of the answer comes, as if it were whole."""

    share: float = 0.5

    async def apply(self, exchange: Exchange) -> None:
        exchange.cut = self.share


@dataclass(frozen=True)
class Delay:
    """The answer is late. Over a websocket, later ones overtake it."""

    seconds: float

    async def apply(self, exchange: Exchange) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True)
class Silence:
    """No answer ever comes."""

    async def apply(self, exchange: Exchange) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Shuffle:
    """The answers of a batch come in another order."""

    seed: int = 0

    async def apply(self, exchange: Exchange) -> None:
        answers = list(await exchange.answers())
        if exchange.is_batch:
            before = list(answers)
            random.Random(self.seed).shuffle(answers)
            if answers == before:
                answers.append(answers.pop(0))
            exchange.answer = answers


@dataclass(frozen=True)
class Repeat:
    """One answer of a batch comes twice; a websocket message comes twice."""

    async def apply(self, exchange: Exchange) -> None:
        answers = await exchange.answers()
        if exchange.is_batch:
            exchange.answer = [*answers, answers[0]]
        exchange.copies = 2


@dataclass(frozen=True)
class OmitAnswer:
    """One answer of a batch is missing."""

    async def apply(self, exchange: Exchange) -> None:
        answers = await exchange.answers()
        if exchange.is_batch:
            exchange.answer = answers[1:]


@dataclass(frozen=True)
class NullResult:
    """`result: null`, which nodes say of what they do not have."""

    async def apply(self, exchange: Exchange) -> None:
        await exchange.change_results(lambda call, result: None)


@dataclass(frozen=True)
class HttpStatus:
    """An HTTP error with a text body, as a gateway gives it."""

    status: int
    retry_after_s: int | None = None
    text: str = "no"

    async def apply(self, exchange: Exchange) -> None:
        exchange.http_status = self.status
        exchange.text = self.text
        if self.retry_after_s is not None:
            exchange.http_headers["Retry-After"] = str(self.retry_after_s)


@dataclass(frozen=True)
class ErrorObject:
    """Every call is answered with a JSON-RPC error."""

    code: int
    message: str
    http_status: int = 200

    async def apply(self, exchange: Exchange) -> None:
        exchange.fail_all({"code": self.code, "message": self.message})
        exchange.http_status = self.http_status


@dataclass(frozen=True)
class RefuseRange:
    """Ranges of eth_getLogs over `limit` blocks are refused in a provider's own words."""

    dialect: RangeDialect
    limit: int

    async def apply(self, exchange: Exchange) -> None:
        for call in exchange.calls:
            asked = asked_range(call)
            if asked is None or asked[1] - asked[0] < self.limit:
                continue
            dialect = self.dialect.value
            error = dialect.error(*asked, self.limit)
            exchange.fail_all(error)
            exchange.http_status = dialect.http_status
            if not dialect.as_json:
                exchange.text = error["message"]


@dataclass(frozen=True)
class OmitLogs:
    """Of each call's logs only the first `keep` come."""

    keep: int = 0

    async def apply(self, exchange: Exchange) -> None:
        await exchange.change_results(
            lambda call, result: result[: self.keep] if is_logs(call, result) else result
        )


@dataclass(frozen=True)
class RepeatLogs:
    """Every log comes twice."""

    async def apply(self, exchange: Exchange) -> None:
        await exchange.change_results(
            lambda call, result: result * 2 if is_logs(call, result) else result
        )


@dataclass(frozen=True)
class ReverseLogs:
    """The logs come last first: an order, but not the chain's."""

    async def apply(self, exchange: Exchange) -> None:
        await exchange.change_results(
            lambda call, result: result[::-1] if is_logs(call, result) else result
        )


@dataclass(frozen=True)
class ChangeLog:
    """One more log comes, which is another one but for a field: removed, of another block, ..."""

    name: str
    value: Any

    async def apply(self, exchange: Exchange) -> None:
        def change(call: Call, result: Any) -> Any:
            if not is_logs(call, result) or not result:
                return result
            extra = copy.deepcopy(result[-1])
            extra["logIndex"] = hex(int(extra["logIndex"], 16) + 1)
            return [*result, extra | {self.name: self.value}]

        await exchange.change_results(change)


@dataclass(frozen=True)
class DamageLogs:
    """The data of every log is replaced: bytes that mean nothing."""

    data: str
    topics: tuple[str, ...] | None = None

    async def apply(self, exchange: Exchange) -> None:
        def change(call: Call, result: Any) -> Any:
            if is_logs(call, result):
                for entry in result:
                    entry["data"] = self.data
                    entry["topics"] = list(self.topics or entry["topics"])
            return result

        await exchange.change_results(change)


@dataclass(frozen=True)
class LagHead:
    """A node that has not heard of the newest `blocks` blocks."""

    blocks: int

    async def apply(self, exchange: Exchange) -> None:
        real = int(await exchange.result_of("eth_blockNumber"), 16)
        head = max(0, real - self.blocks)
        block = await exchange.result_of("eth_getBlockByNumber", hex(head), False)

        def change(call: Call, result: Any) -> Any:
            if call["method"] == "eth_blockNumber":
                return hex(head)
            if call["method"] == "eth_getBlockByNumber" and call["params"][0] == "latest":
                return block
            if is_logs(call, result):
                return [entry for entry in result if int(entry["blockNumber"], 16) <= head]
            if call["method"].startswith("eth_getBlockBy") and result is not None:
                return result if int(result["number"], 16) <= head else None
            return result

        await exchange.change_results(change)


@dataclass(frozen=True)
class NoTag:
    """A chain that does not know a tag such as `finalized`."""

    tag: str
    code: int = -32602
    message: str = "unknown block tag"

    async def apply(self, exchange: Exchange) -> None:
        if any(self.tag in call.get("params", ()) for call in exchange.calls):
            exchange.fail_all({"code": self.code, "message": self.message})


class Answering(Protocol):
    """A stored chain, or another node."""

    async def answer(self, body: Any, exchange: Exchange) -> Any: ...


@dataclass(frozen=True)
class AnswerFrom:
    """Somebody else answers: a node on another fork."""

    other: Answering

    async def apply(self, exchange: Exchange) -> None:
        exchange.answer = await self.other.answer(exchange.body, exchange)


def is_logs(call: Call, result: Any) -> bool:
    return bool(call["method"] == "eth_getLogs" and isinstance(result, list))


def asked_range(call: Call) -> tuple[int, int] | None:
    """First and last block of an eth_getLogs by numbers."""
    if call["method"] != "eth_getLogs":
        return None
    criteria = call["params"][0]
    if "blockHash" in criteria:
        return None
    try:
        return int(criteria.get("fromBlock", "0x0"), 16), int(criteria["toBlock"], 16)
    except (KeyError, ValueError):
        return None
