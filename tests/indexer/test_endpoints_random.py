"""Three moody endpoints and a foreign one: the index is that of a calm one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from indexer.database import Pool
from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil
from tests.indexer.scripted import result, scripted_node
from tests.indexer.world import World, caught_up, differences, index_once, running, tables


@dataclass
class Moody:
    """Passes on what it likes, `faults` times something else; ranges up to `widest` blocks."""

    dice: random.Random
    widest: int
    words: str
    """Of its refusal of a wider range; {widest}, {first} and {last} are filled in."""
    faults: int = 0
    too_wide: int = 0
    served: int = 0

    async def script(self, body: Any) -> Any:
        if self.faults and self.dice.random() < 0.3:
            self.faults -= 1
            return self.fault(body)
        criteria = body["params"][0] if isinstance(body, dict) and body["params"] else None
        if not isinstance(criteria, dict) or "fromBlock" not in criteria:
            return None
        first, last = int(criteria["fromBlock"], 16), int(criteria["toBlock"], 16)
        if last - first + 1 > self.widest:
            self.too_wide += 1
            proposed = hex(first + self.widest - 1)
            text = self.words.format(widest=self.widest, first=hex(first), last=proposed)
            return {"id": body["id"], "error": {"code": -32000, "message": text}}
        self.served += 1
        return None

    def fault(self, body: Any) -> Any:
        call = body[0] if isinstance(body, list) else body
        errors = ["rate limit exceeded", "request timed out", "header not found", "what now?"]
        answers: list[Any] = [
            web.Response(status=503),
            web.Response(status=429, headers={"retry-after": "0.1"}),
            web.Response(text="{"),
            result(call, None),
            *({"id": call["id"], "error": {"code": -32000, "message": text}} for text in errors),
        ]
        return self.dice.choice(answers)


async def foreign(body: Any) -> Any:
    return result(body, "0x1") if body["method"] == "eth_chainId" else None


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_any_moods__complete_and_nothing_twice(
    world: World, anvil: Anvil, pool: Pool, fresh_pool: Pool, seed: int
) -> None:
    await world.register()
    for _ in range(4):
        await world.submit()
        await world.mine(70)
    dice = random.Random(seed)
    moods = [
        Moody(dice, 7, "eth_getLogs is limited to a {widest} range"),
        Moody(dice, 25, "this block range should work: [{first}, {last}]"),
        Moody(dice, 40, "block range is too large"),
    ]
    dice.shuffle(moods)
    async with (
        scripted_node(anvil.url, moods[0].script) as one,
        scripted_node(anvil.url, moods[1].script) as two,
        scripted_node(anvil.url, foreign) as other,
        scripted_node(anvil.url, moods[2].script) as three,
        Rpc([one.url, two.url, other.url, three.url], timeout_s=5) as rpc,
    ):
        indexer = world.indexer(pool, rpc=rpc)
        await indexer.prepare()  # Whoever starts it repeats it; from here on it helps itself.
        for mood in moods:
            mood.faults = 12
        async with running(indexer):
            await caught_up(indexer, world, timeout_s=120)
        assert "eth_getLogs" not in {call["method"] for call in other.calls}
    assert sum(mood.served for mood in moods) >= 280 // 40
    for mood in moods:
        assert mood.too_wide <= 25
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}
    assert await pool.fetchval("SELECT count(*) FROM chain.request") == 4
