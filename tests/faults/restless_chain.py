"""A chain on which something happens all the time, and is taken back half of the time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from indexer.types import Address
from inferd.protocol import calls
from inferd.protocol.request import RequestParams
from tests.faults.stored_chain import StoredChain
from tests.indexer.world import FEE_WEI, World

_ASKERS = (1, 4)
_POSTER = 3
KEEP_STATES = ("--prune-history", "10000")
"""For Anvil: by itself it keeps too few states, and on a block whose state it has lost it builds on
nothing: the contracts are gone."""


@dataclass
class RestlessChain:
    """Random transactions and reorganisations on Anvil, the same for the same seed."""

    world: World
    seed: int
    deepest: int = 12
    """Blocks that a reorganisation takes back at most."""
    done: Counter[str] = field(default_factory=Counter)
    fork: StoredChain | None = None
    """The branch that was given up last."""

    def __post_init__(self) -> None:
        self._die = random.Random(self.seed)
        self._first = 0

    async def begin(self) -> None:
        """What happened before is never taken back."""
        await self.world.register()
        self._first = (await self.world.head()).number

    async def step(self) -> None:
        """One thing happens."""
        actions = {
            self._submit: 5,
            self._submit_many: 1,
            self._raise_fee: 2,
            self._post: 3,
            self._mine: 3,
            self._reorg: 4,
        }
        (action,) = self._die.choices(list(actions), list(actions.values()))
        await action()
        self.done[action.__name__.removeprefix("_")] += 1

    async def far_ahead(self) -> None:
        """So many blocks at once that they are read in ranges."""
        await self.world.mine(self._die.randrange(80, 160))

    async def _params(self) -> RequestParams:
        return await self.world.some_params(self._die.randbytes(self._die.randrange(1, 80)))

    async def _send(self, sender: int, to: Address, data: bytes, value_wei: int = 0) -> None:
        """Waits until it is mined: Anvil breaks its own chain when it mines and reorganises at the
        same time."""
        tx_hash = await self.world.post_transaction(sender, to, data, value_wei)
        while await self.world.rpc.receipt(tx_hash) is None:
            await asyncio.sleep(0.001)

    async def _submit(self) -> None:
        params = await self._params()
        request_id = await self.world.next_id()
        asker = self._die.choice(_ASKERS)
        requests = self.world.contracts.requests
        await self._send(asker, requests, calls.submit(params), FEE_WEI)
        self.world.params.pop(request_id, None)
        if asker == 1:
            self.world.params[request_id] = params

    async def _submit_many(self) -> None:
        count = self._die.randrange(2, 20)
        data = calls.submit_many([await self._params()] * count, [FEE_WEI] * count)
        await self._send(1, self.world.contracts.requests, data, FEE_WEI * count)

    async def _raise_fee(self) -> None:
        latest = await self.world.next_id() - 1
        if latest < 1:
            return
        chosen = self._die.randrange(max(1, latest - 10), latest + 1)
        # What the contract refuses is mined all the same, without a log.
        requests = self.world.contracts.requests
        await self._send(4, requests, calls.raise_fee(chosen), FEE_WEI)

    async def _post(self) -> None:
        """Known requests of late; of those that were taken back the contract skips the results."""
        chosen = list(self.world.params)[-8:]
        if chosen:
            some = self._die.sample(chosen, self._die.randrange(1, len(chosen) + 1))
            digests = {request_id: self._die.randbytes(32) for request_id in some}
            data = self.world.post_data(digests)
            await self._send(_POSTER, self.world.contracts.results, data)

    async def _mine(self) -> None:
        await self.world.mine(self._die.randrange(1, 4))

    async def _reorg(self) -> None:
        """Some of the transactions come again, in other blocks or the same; the rest is gone."""
        head = (await self.world.head()).number
        depth = min(self._die.randrange(1, self.deepest + 1), head - self._first)
        if depth < 1:
            return
        request = self.world.rpc.request
        self.fork = await StoredChain.record(request, head - depth + 1, head)
        gone = [tx for block in self.fork.blocks for tx in block["transactions"]]
        # Blocks without a transaction would come out the same.
        await request("anvil_setCoinbase", ["0x" + self._die.randbytes(20).hex()])
        await request("anvil_reorg", [depth, await self._again(gone, depth)])
        if self._die.random() < 0.5:
            await self.world.mine(self._die.randrange(1, 3))

    async def _again(self, gone: list[str], depth: int) -> list[list[Any]]:
        share = self._die.choice([0.0, 0.5, 1.0])
        kept = gone[: round(len(gone) * share)]
        places = sorted(self._die.randrange(depth) for _ in kept)
        raw = [
            await self.world.rpc.request("eth_getRawTransactionByHash", [tx_hash])
            for tx_hash in kept
        ]
        if not kept and self._die.random() < 0.5:
            data = calls.submit(await self._params())
            other = await self.world.transaction(2, self.world.contracts.requests, data, FEE_WEI)
            return [[other, self._die.randrange(depth)]]
        return [[one, place] for one, place in zip(raw, places, strict=True) if one]
