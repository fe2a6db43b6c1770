"""Random histories of requests, reorganisations, foreign transactions, withdrawals, lies, refusals
for good, evictions, what is not shown, orders, new keys and deaths.

`HISTORY_SEEDS=100:200 pytest tests/settlement/test_random_history.py` tries others than the usual.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from indexer.rpc import RpcError
from inferd.chain.signers import LocalSigner
from inferd.chain.transact import TransactionRefused
from inferd.settlement.engine import Settlement
from inferd.settlement.orders import Order, give
from inferd.settlement.state import LIVE_SQL
from tests.settlement.scripted import (
    Crash,
    CrashingPool,
    CrashingRpc,
    CrashPoints,
    ScriptedRpc,
    answer,
    answer_lost,
    error,
    no_answer,
)
from tests.settlement.world import GWEI, World

_FOUND_FAULTS = "1030,1043,1056,1064,1091,1096"
_SEEDS = [
    seed
    for part in os.environ.get("HISTORY_SEEDS", _FOUND_FAULTS).split(",")
    for first, _, end in [part.partition(":")]
    for seed in range(int(first), int(end or int(first) + 1))
]
_HAPPENINGS = 40
_PATIENCE_BLOCKS = 60
_EMPTY_POST_BYTES = 300
"""More than a transaction without effect has: one that is refused for good as well ends nothing."""


@dataclass
class History:
    world: World
    dice: random.Random
    rpc: ScriptedRpc
    settings: dict[str, Any]
    told: list[str] = field(default_factory=list)
    never_taken: set[bytes] = field(default_factory=set)
    refuses_next: bool = False

    def __post_init__(self) -> None:
        self.rpc.always("send_raw_transaction", self._choosy)
        self.settlement = self.restarted()

    async def _choosy(self, real: Any, raw: bytes) -> Any:
        if self.refuses_next and len(raw) > _EMPTY_POST_BYTES:
            self.refuses_next = False
            self.never_taken.add(raw)
        if raw in self.never_taken:
            raise RpcError(-32000, "tx fee exceeds the configured cap")
        return await real(raw)

    def restarted(self, rpc: Any = None, pool: Any = None) -> Settlement:
        return self.world.settlement(rpc or self.rpc, pool, **self.settings)

    async def submit(self) -> None:
        dice = self.dice
        try:
            await self.world.submit(
                dice.randint(1, 4),
                batchable=dice.random() < 0.8,
                lifetime_s=dice.choice([20, 3600, 3600]),
            )
        except TransactionRefused:
            await self.world.automine(False)  # its deadline passed while time was leaping
        await self.compute(0.8)

    async def compute(self, share: float) -> None:
        rows = await self.world.pool.fetch(
            "SELECT id FROM chain.request q WHERE status = 'pending' AND NOT EXISTS (SELECT 1"
            " FROM node.result n WHERE n.request_id = q.id AND n.commitment = q.commitment)"
        )
        ids = [row["id"] for row in rows if self.dice.random() < share]
        await self.world.compute(ids, self.dice.randint(0, 1))

    async def blocks(self) -> None:
        await self.world.tick(self.settlement, self.dice.randint(1, 3))

    async def step(self) -> None:
        await self.settlement.step(await self.world.index())

    async def reorg(self) -> None:
        depth = self.dice.randint(1, 8)
        if (await self.world.index()).number - depth > 10:  # the contracts stay
            await self.world.reorg(depth)

    async def foreign(self) -> None:
        try:
            await self.world.poster_transfer(await self.world.posted())
        except RpcError as refusal:
            self.told.append(refusal.message)

    async def base_fee(self) -> None:
        wei = self.dice.choice([1, 5, 20]) * GWEI
        await self.world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(wei)])

    async def leap(self) -> None:
        await self.world.rpc.request("evm_increaseTime", [self.dice.randint(1, 30)])

    async def refuse_for_good(self) -> None:
        self.refuses_next = True

    async def withdraw(self) -> None:
        """In the next block, before anything of ours: slots that were written are fresh again."""
        try:
            await self.world.withdraw_first(self.dice.choice([0, 1]))
        except RpcError as refusal:
            self.told.append(refusal.message)

    async def another_key(self) -> None:
        self.world.poster = LocalSigner(self.world.anvil.config.account(self.dice.choice([2, 4])))
        await self.restart()

    async def evict(self) -> None:
        await self.world.rpc.request("anvil_dropAllTransactions", [])

    async def hide(self) -> None:
        """For some blocks the endpoint shows nothing of what is mined or pooled."""
        for method, value in (("receipt", None), ("transaction_exists", False)):
            self.rpc.always(method, answer(value))
        await self.world.tick(self.settlement, self.dice.randint(1, 4))
        self.show()

    def show(self) -> None:
        for method in ("receipt", "transaction_exists"):
            self.rpc.always(method, None)

    async def order(self) -> None:
        """Of an operator who has had enough of any intent."""
        newest = await self.world.pool.fetchval("SELECT max(id) FROM node.tx_intent")
        if newest is None:
            return
        async with self.world.pool.acquire() as connection:
            act = self.dice.choice([Order.CANCEL, Order.CANCEL, Order.RETRY])
            await give(connection, act, self.dice.randint(max(newest - 3, 1), newest), "a test")

    async def lie(self) -> None:
        method = self.dice.choice(
            ["send_raw_transaction", "receipt", "transaction_exists", "estimate_gas", "call"]
        )
        scripts = [no_answer, answer_lost, error("bla")]
        if method == "send_raw_transaction":
            scripts += [error("transaction underpriced"), error("insufficient funds")]
        self.rpc.then(method, self.dice.choice(scripts))

    async def restart(self) -> None:
        self.settlement = self.restarted()

    async def die(self) -> None:
        points = CrashPoints(self.dice.randint(1, 80))
        dying = self.restarted(CrashingRpc(self.rpc, points), CrashingPool(self.world.pool, points))
        head = await self.world.mine()
        try:
            await dying.step(head)
        except Crash:
            self.told.append(points.names[-1])
        await self.restart()

    async def live(self) -> int:
        count: int = await self.world.pool.fetchval(
            f"SELECT count(*) FROM node.tx_intent WHERE {LIVE_SQL}"
        )
        return count

    async def calm(self) -> None:
        """Every request has a result, and the endpoint behaves, but for what it never takes."""
        self.rpc.forget_scripts()
        await self.restart()
        await self.world.mine()
        await self.compute(1)
        for _ in range(_PATIENCE_BLOCKS):
            await self.world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
            # What is too late to be posted has to expire, to be refunded.
            await self.world.rpc.request("evm_increaseTime", [2])
            await self.world.tick(self.settlement)
            pending = "pending" in (await self.world.statuses()).values()
            if not pending and not await self.live():
                return


@pytest.mark.parametrize("seed", _SEEDS)
async def test_whatever_happens_each_request_ends_once_and_each_nonce_is_mined(
    world: World, seed: int
) -> None:
    dice = random.Random(seed)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
    roomy = {"max_fee_per_gas_wei": 2000 * GWEI, "max_priority_fee_wei": 500 * GWEI}
    tight = {"max_fee_per_gas_wei": 6 * GWEI, "max_priority_fee_wei": GWEI}
    settings = {
        "confirmations": dice.choice([1, 2, 3]),
        "max_item_failures": 9,
        **dice.choice([roomy, tight]),
    }
    history = History(world, dice, ScriptedRpc(world.rpc), settings)
    weighted = [
        *[history.submit] * 2,
        *[history.blocks] * 3,
        history.step,
        history.reorg,
        history.foreign,
        history.base_fee,
        history.lie,
        history.die,
        history.restart,
        history.leap,
        history.refuse_for_good,
        history.withdraw,
        history.another_key,
        history.evict,
        history.hide,
        history.order,
    ]
    for _ in range(_HAPPENINGS):
        happening = dice.choice(weighted)
        history.told.append(happening.__name__)
        await happening()
    await history.calm()

    intents = [(i["id"], i["state"], i["outcome"]) for i in await world.intents()]
    attempts = [
        (a["intent_id"], a["nonce"], a["state"], a["max_fee_wei"], a["error"])
        for a in await world.attempts()
    ]
    story = f"seed {seed}: {history.told}\n{history.settlement.status}\n{intents}\n{attempts}"
    assert "pending" not in (await world.statuses()).values(), story
    assert not await history.live(), story
    assert not await world.pool.fetchval("SELECT count(*) FROM node.tx_item WHERE live"), story
    poster = world.poster.address
    reserved = await world.pool.fetchval(
        "SELECT next_nonce FROM node.sender WHERE address = $1", poster
    )
    assert (reserved or 0) <= await world.posted(), story
    assert set((await world.fulfilled_events()).values()) <= {1}, story
    # What the outbox says of a closed intent is what the chain says now.
    rows = await world.pool.fetch(
        "SELECT a.hash, a.mined_block_hash, i.state FROM node.tx_attempt a"
        " JOIN node.tx_intent i ON i.id = a.intent_id WHERE a.state = 'mined' AND a.sender = $1",
        poster,
    )
    for row in rows:
        receipt = await world.rpc.receipt(row["hash"])
        assert receipt is not None, story
        assert receipt.block_hash == row["mined_block_hash"], story
        assert receipt.succeeded == (row["state"] != "failed"), story
