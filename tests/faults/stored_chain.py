"""Another fork: blocks as they once were, or a second node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.faults.exchange import Call, Exchange

Request = Callable[[str, list[Any]], Awaitable[Any]]


@dataclass
class StoredChain:
    """Answers as a node whose chain ends with the stored blocks. What is older, and what it has
    not stored, the real node is asked for."""

    first: int
    blocks: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    async def record(cls, request: Request, first: int, last: int) -> StoredChain:
        """Keeps blocks `first` to `last` with all of their logs."""
        stored = cls(first)
        for number in range(first, last + 1):
            block = await request("eth_getBlockByNumber", [hex(number), False])
            stored.blocks.append(block)
            criteria = {"blockHash": block["hash"]}
            stored.logs[block["hash"]] = await request("eth_getLogs", [criteria])
        return stored

    @property
    def last(self) -> int:
        return self.first + len(self.blocks) - 1

    async def answer(self, body: Any, exchange: Exchange) -> Any:
        calls = body if isinstance(body, list) else [body]
        answers = [await self._one(call, exchange) for call in calls]
        return answers if isinstance(body, list) else answers[0]

    async def _one(self, call: Call, exchange: Exchange) -> Any:
        method, params = call["method"], call.get("params", [])
        if method == "eth_blockNumber":
            return _result(call, hex(self.last))
        if method == "eth_getBlockByNumber":
            return await self._by_number(call, params[0], exchange)
        if method == "eth_getBlockByHash" and params[0] in self.logs:
            (block,) = (block for block in self.blocks if block["hash"] == params[0])
            return _result(call, block)
        if method == "eth_getLogs":
            return await self._logs(call, params[0], exchange)
        passed_on = await exchange.ask(call)
        known = passed_on.get("result")
        if method == "eth_getBlockByHash" and known and int(known["number"], 16) >= self.first:
            passed_on["result"] = None
        return passed_on

    async def _by_number(self, call: Call, where: str, exchange: Exchange) -> Any:
        if where == "latest":
            return _result(call, self.blocks[-1])
        if where.startswith("0x") and int(where, 16) >= self.first:
            at = int(where, 16) - self.first
            return _result(call, self.blocks[at] if at < len(self.blocks) else None)
        passed_on = await exchange.ask(call)
        block = passed_on.get("result")
        if block and int(block["number"], 16) >= self.first:
            at = int(block["number"], 16) - self.first
            passed_on["result"] = self.blocks[min(at, len(self.blocks) - 1)]
        return passed_on

    async def _logs(self, call: Call, criteria: dict[str, Any], exchange: Exchange) -> Any:
        if "blockHash" in criteria:
            if criteria["blockHash"] in self.logs:
                return _result(call, _ours(self.logs[criteria["blockHash"]], criteria))
            header = await exchange.result_of("eth_getBlockByHash", criteria["blockHash"], False)
            if header is None or int(header["number"], 16) >= self.first:
                error = {"code": -32000, "message": "unknown block"}
                return {"jsonrpc": "2.0", "id": call["id"], "error": error}
            return await exchange.ask(call)
        first, last = int(criteria["fromBlock"], 16), int(criteria["toBlock"], 16)
        found: list[dict[str, Any]] = []
        if first < self.first:
            older = criteria | {"toBlock": hex(min(last, self.first - 1))}
            found += await exchange.result_of("eth_getLogs", older) or []
        for block in self.blocks:
            if first <= int(block["number"], 16) <= last:
                found += _ours(self.logs[block["hash"]], criteria)
        return _result(call, found)


@dataclass
class OtherNode:
    """A second node, such as an Anvil on a fork of its own."""

    url: str

    async def answer(self, body: Any, exchange: Exchange) -> Any:
        async with aiohttp.ClientSession() as session, session.post(self.url, json=body) as got:
            return await got.json(content_type=None)


def _ours(logs: list[dict[str, Any]], criteria: dict[str, Any]) -> list[dict[str, Any]]:
    asked = criteria.get("address")
    addresses = [asked] if isinstance(asked, str) else asked
    return [entry for entry in logs if addresses is None or entry["address"] in addresses]


def _result(call: Call, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call["id"], "result": value}
