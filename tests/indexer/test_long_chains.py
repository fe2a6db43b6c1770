"""From the very first block, and a million of them without a word."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from indexer.database import Pool
from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil
from tests.faults.exchange import Exchange
from tests.faults.rpc_faults import AnswerFrom
from tests.faults.rpc_plans import Always
from tests.faults.rpc_proxy import rpc_proxy
from tests.indexer.world import World, caught_up, running


async def test_empty_million_blocks__few_calls_and_the_request_behind_them(
    world: World, anvil: Anvil, pool: Pool
) -> None:
    """The blocks are made up: Anvil would mine them for minutes."""
    await world.submit(b"before")
    head = await world.head()
    chain = LongChain(head.number, 1_000_000)
    plan = Always([AnswerFrom(chain)])
    async with rpc_proxy(anvil.url, plan) as proxy, Rpc([proxy.url]) as rpc:
        indexer = world.indexer(pool, rpc=rpc)
        async with running(indexer), asyncio.timeout(60):
            while indexer.status.indexed != head.number + 1_000_000:
                await asyncio.sleep(0.01)
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 1
    assert await pool.fetchval("SELECT count(*) FROM chain.block") == 256 + 1 + 64
    assert proxy.exchanges < 400


class LongChain:
    """Empty blocks on top of block `base` of the real chain."""

    def __init__(self, base: int, blocks: int) -> None:
        self.base, self.last = base, base + blocks
        self._template: dict[str, Any] = {}

    async def answer(self, body: Any, exchange: Exchange) -> Any:
        calls = body if isinstance(body, list) else [body]
        if not self._template:
            self._template = await exchange.result_of("eth_getBlockByNumber", hex(self.base), False)
        answers = [await self._one(call, exchange) for call in calls]
        return answers if isinstance(body, list) else answers[0]

    async def _one(self, call: Any, exchange: Exchange) -> Any:
        method, where = call["method"], (call["params"] or [None])[0]
        value: Any = None
        if method == "eth_getBlockByNumber":
            tags = {"latest": self.last, "finalized": self.last - 64}
            number = tags.get(where) if where in tags else int(where, 16)
            if number is not None and number > self.base:
                value = self._block(number)
        elif method == "eth_getLogs" and "fromBlock" in where and where["fromBlock"] != "0x0":
            real = where | {"toBlock": hex(min(int(where["toBlock"], 16), self.base))}
            empty = int(where["fromBlock"], 16) > self.base
            value = [] if empty else await exchange.result_of("eth_getLogs", real)
        elif method == "eth_getLogs" and int(where["blockHash"], 16) < 1 << 64:
            value = []
        if value is None:
            return await exchange.ask(call)
        return {"jsonrpc": "2.0", "id": call["id"], "result": value}

    def _block(self, number: int) -> dict[str, Any]:
        parent = self._template["hash"] if number == self.base + 1 else f"{number - 1:#066x}"
        return self._template | {
            "number": hex(number),
            "hash": f"{number:#066x}",
            "parentHash": parent,
            "timestamp": hex(int(self._template["timestamp"], 16) + number - self.base),
            "logsBloom": "0x" + "00" * 256,
            "transactions": [],
        }


async def test_genesis__all_blocks_but_the_first_replaced(world: World, pool: Pool) -> None:
    contracts = replace(world.contracts, start_block=0)
    indexer = world.indexer(pool, contracts=contracts)
    async with running(indexer):
        await world.submit()
        await caught_up(indexer, world)
        await world.reorg((await world.head()).number, [])
        await caught_up(indexer, world)
        assert await pool.fetchval("SELECT count(*) FROM chain.log") == 0
        kept = await pool.fetch("SELECT number, hash FROM chain.block ORDER BY number")
        numbers = range((await world.head()).number + 1)
        there = [await world.rpc.header(number) for number in numbers]
        assert [(row["number"], row["hash"]) for row in kept] == [
            (header.number, header.hash) for header in there if header
        ]
