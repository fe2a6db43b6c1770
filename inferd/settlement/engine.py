"""Settlement as one object: a step per block moves everything that can move."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

import structlog

from indexer.database import Fence, Pool
from indexer.types import Address, BlockRef, Contracts
from inferd.chain.signers import TransactionSigner
from inferd.settlement.batch import SignGroup, load_gas_model
from inferd.settlement.chain import RPC_TROUBLE, ChainRpc, Sight
from inferd.settlement.data_fee import NO_DATA_PRICE, as_gas
from inferd.settlement.delivering import Deliverer
from inferd.settlement.disputing import Disputer
from inferd.settlement.funds import Funds
from inferd.settlement.hung_signers import PatientSigning
from inferd.settlement.intents import final_among, senders_ever, senders_under_way
from inferd.settlement.key_queue import Claim, KeyQueue, Shared
from inferd.settlement.lanes import Lanes
from inferd.settlement.orders import Orders
from inferd.settlement.posting import Poster
from inferd.settlement.purse import Purse
from inferd.settlement.refunding import Refunder
from inferd.settlement.releasing import Releaser
from inferd.settlement.rollups import Rollup
from inferd.settlement.runway import FundsState
from inferd.settlement.settings import PausedReason, SettlementSettings, SettlementStatus
from inferd.settlement.sharing import Sharing
from inferd.settlement.turns import DELIVERIES, REFUNDS, RELEASES, ResultTurns, Turns
from inferd.settlement.watching import Watcher
from scheduler.model import GasModel

_log = structlog.get_logger("settlement")


class Settlement:
    """One per operator and database: a queue for each signing key, and one plan for all. All that
    matters is in the database: a new object on the same one goes on where the last stopped, at
    whatever point that was."""

    def __init__(
        self,
        *,
        rpc: ChainRpc,
        db: Pool,
        contracts: Contracts,
        signers: Sequence[TransactionSigner],
        sign_group: SignGroup,
        settings: SettlementSettings,
        fence: Fence | None = None,
        claim: Claim | None = None,
        sharing: Sharing | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`fence` begins what is written for all keys together, and with `claim` each key has one
        of its own: where another process has claimed a key, nothing is sent with it here.
        `sharing` is how other processes settle on the same tables beside this one."""
        self.status = status = SettlementStatus()
        self._pool = db
        self._settings = settings
        self._stepping = asyncio.Lock()
        self._sharing = sharing
        self.knows_prices = False
        """Whether a step has seen what the chain asks for gas and bytes."""
        self._data, self._price_wei = NO_DATA_PRICE, 0
        self._purse = Purse(settings)
        self._shared = Shared(
            rpc=rpc,
            pool=db,
            contracts=contracts,
            settings=settings,
            status=status,
            purse=self._purse,
            rollup=Rollup(rpc, contracts.chain_id),
            claim=claim,
            fence=fence,
            alone=len(signers) == 1,
        )
        self._queues = [KeyQueue(self._shared, signer.address, signer) for signer in signers]
        self._former: dict[Address, KeyQueue] = {}
        status.keys = tuple(queue.status for queue in self._queues)
        addresses = [queue.address for queue in self._queues]
        self._orders = Orders(db, addresses, fence, sharing)
        self._watcher = Watcher(rpc, db, self._queues[0].outbox, status)
        turns = ResultTurns(db, addresses[0], settings)
        signing = PatientSigning(sign_group)
        self._poster = Poster(db, contracts, signing, settings, status, now, turns)
        turns_to_deliver = Turns(db, addresses[0], DELIVERIES)
        self._deliverer = Deliverer(db, contracts, settings, status, turns_to_deliver)
        turns_to_refund = Turns(db, addresses[0], REFUNDS)
        self._refunder = Refunder(db, contracts, settings, status, turns_to_refund)
        turns_to_release = Turns(db, addresses[0], RELEASES)
        self._releaser = Releaser(db, contracts, settings, status, turns_to_release)
        self._disputer = Disputer(db, contracts, settings, status, fence)
        self._funds = Funds(db, settings, status)

    async def step(self, head: BlockRef) -> float | None:
        """Once per block, when its rows are committed, and again when results become ready, or at
        the time that it returns, in seconds since the epoch, where it returns one.

        Trouble with the endpoint or a signer is recorded in `status` and met again by the next
        step.
        Database errors, and what a fence raises, propagate.
        """
        async with self._stepping, self._turn():
            self.status.noticed = self.status.error = None
            for queue in self._queues:
                queue.status.begin()
            self._poster.again_at_s = None
            try:
                await self._step(head)
            except RPC_TROUBLE as error:
                self.status.error = str(error)
                self.status.conclude()
                self.status.noticed = self.status.paused_reason or PausedReason.RPC_TROUBLE
                _log.warning("endpoint_trouble", block=head.number, error=str(error))
            self.status.conclude()
            # What was put off before the trouble came is due all the same.
            return self._poster.again_at_s

    def _turn(self) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._sharing is None else self._sharing.turn()

    async def gas_model(self) -> GasModel:
        """What a post costs, by the newest of ours, with what it costs beside gas as gas of the
        price that the last step saw. Database errors propagate."""
        model = await load_gas_model(self._pool, self._settings)
        return as_gas(model, self._data, self._price_wei)

    async def _step(self, head: BlockRef) -> None:
        settings, status = self._settings, self.status
        claimed = [queue for queue in self._queues if await queue.claim()]
        sights: dict[Address, Sight] = {}
        sight: Sight | None = None
        for queue in self._queues:
            sights[queue.address] = seen = await queue.look(head, sight)
            sight = sight or seen
        if sight is None:
            return
        status.tip_wei = sight.market.tip_wei
        self.knows_prices = True
        self._data = sight.data
        self._price_wei = sight.head.base_fee_wei + sight.market.tip_wei
        await self._orders.obey()
        await self._purse.refresh(self._pool)
        await self._watcher.watch(sight)
        if self._sharing is not None:
            await self._let_go()
        await self._follow_former_keys(sight)
        for queue in claimed:
            await queue.follow(sights[queue.address])
        lanes = await self._lanes(claimed, sights)
        under_way = {
            kind for queue in claimed for kind in queue.kinds_under_way(sights[queue.address])
        }
        own = await self._own()
        await self._disputer.look(own)
        # Also while another is under way: windows end.
        await self._disputer.dispute(lanes, own)
        await self._poster.post(sight, lanes)
        if "deliver" not in under_way:
            await self._deliverer.deliver(lanes)
        if "release" not in under_way:
            await self._releaser.release(lanes, own)
        if "close" not in under_way:
            await self._releaser.close(lanes, own)
        if settings.refunds and "refund" not in under_way:
            await self._refunder.refund(lanes)

    async def _own(self) -> frozenset[Address]:
        """The accounts whose money is this operator's: also those of keys that were here before, or
        are in another process, to which payments and bonds still come."""
        ever = await senders_ever(self._pool, self._shared.contracts.chain_id)
        here = (queue.address for queue in self._queues)
        return self._settings.own_accounts.union(ever, here)

    async def _let_go(self) -> None:
        """Of what others have seen to be final."""
        if ended := self.status.ended:
            self.status.keep(await final_among(self._pool, ended))

    async def _lanes(self, claimed: Sequence[KeyQueue], sights: dict[Address, Sight]) -> Lanes:
        """Of the keys that have the ether for something new."""
        under_way = any(queue.waiting for queue in claimed)
        behind_others = under_way and self._settings.pool_visible
        sharers = sum(queue.status.funds is not FundsState.SPENT for queue in claimed)
        lanes = []
        for queue in claimed:
            sight = sights[queue.address]
            funded = await self._funds.allows_new(queue.status, sight, max(sharers, 1))
            lane = queue.lane(sight, behind_others=behind_others)
            if lane is not None and funded:
                lanes.append(lane)
        if claimed and all(queue.status.funds is FundsState.SPENT for queue in claimed):
            self._funds.tell_spent()
        return Lanes(lanes)

    async def _follow_former_keys(self, sight: Sight) -> None:
        """What an earlier key of this operator signed is still on its way, and holds its items."""
        known = {queue.address for queue in self._queues}
        for address in await senders_under_way(self._pool):
            if address in known:
                continue
            former = self._former.get(address)
            if former is None:
                former = self._former[address] = KeyQueue(self._shared, address)
                self.status.former[address] = former.status
            former.status.begin()
            if not await former.claim():
                former.status.in_flight = 0
                continue
            try:
                await former.follow(await former.look(sight.head, sight))
            finally:
                if self._sharing is not None:
                    # Whoever has the key may only be away.
                    former.unclaim()
                    await self._sharing.leave(address)
