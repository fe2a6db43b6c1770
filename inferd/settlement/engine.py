"""Settlement as one object: a step per block moves everything that can move."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from indexer.database import Fence, Pool
from indexer.types import Address, BlockRef, Contracts
from inferd.settlement.batch import SignGroup, load_gas_model
from inferd.settlement.chain import RPC_TROUBLE, ChainRpc, Sight, look
from inferd.settlement.data_fee import NO_DATA_PRICE, as_gas
from inferd.settlement.delivering import Deliverer
from inferd.settlement.follow import Follower
from inferd.settlement.funds import Funds
from inferd.settlement.gaps import GapFiller
from inferd.settlement.keys import SignerTrouble, TransactionSigner
from inferd.settlement.launch import Launcher
from inferd.settlement.observing import UNTAKEN
from inferd.settlement.orders import Orders
from inferd.settlement.outbox import Outbox
from inferd.settlement.posting import Poster
from inferd.settlement.purse import Purse
from inferd.settlement.records import Attempt, Intent
from inferd.settlement.refunding import Refunder
from inferd.settlement.rollups import Rollup
from inferd.settlement.sending import Sender, pause_of
from inferd.settlement.settings import PausedReason, SettlementSettings, SettlementStatus
from inferd.settlement.signing import Signing
from inferd.settlement.state import IntentState
from inferd.settlement.turns import ResultTurns
from inferd.settlement.watching import Watcher
from scheduler.model import GasModel

_log = structlog.get_logger("settlement")


class Settlement:
    """One per signing key and database. All that matters is in the database: a new object on the
    same one goes on where the last stopped, at whatever point that was."""

    def __init__(
        self,
        *,
        rpc: ChainRpc,
        db: Pool,
        contracts: Contracts,
        signer: TransactionSigner,
        sign_group: SignGroup,
        settings: SettlementSettings,
        fence: Fence | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.status = SettlementStatus()
        self._rpc = rpc
        self._pool = db
        self._address = signer.address
        self._settings = settings
        self._stepping = asyncio.Lock()
        self._contracts = contracts
        self._fence = fence
        self._outbox = self._outbox_of(signer.address)
        self._rollup = Rollup(rpc, contracts.chain_id)
        self.knows_prices = False
        """Whether a step has seen what the chain asks for gas and bytes."""
        self._data, self._price_wei = NO_DATA_PRICE, 0
        sender = Sender(rpc, self._outbox, self.status)
        signing = Signing(rpc, self._outbox, signer, contracts.chain_id)
        self._purse = Purse(settings)
        self._launcher = launcher = Launcher(
            rpc,
            self._outbox,
            signing,
            sender,
            signer.address,
            contracts,
            self.status,
            settings.max_gas,
            self._purse,
            self._rollup,
        )
        self._orders = Orders(db, signer.address, fence)
        self._watcher = Watcher(rpc, db, self._outbox, self.status)
        self._gaps = GapFiller(self._outbox, sender, launcher, settings)
        self._follower = Follower(
            rpc,
            db,
            self._outbox,
            sender,
            launcher,
            contracts,
            settings,
            self.status,
            self._purse,
            self._rollup,
            signer.address,
        )
        self._former: dict[Address, tuple[Outbox, Follower]] = {}
        turns = ResultTurns(db, signer.address, settings)
        self._poster = Poster(
            db, launcher, contracts, sign_group, settings, self.status, now, turns
        )
        self._deliverer = Deliverer(db, launcher, contracts, settings, self.status)
        self._refunder = Refunder(db, launcher, contracts, settings, self.status)
        self._funds = Funds(db, settings, self.status)

    async def step(self, head: BlockRef) -> float | None:
        """Once per block, when its rows are committed, and again when results become ready, or at
        the time that it returns, in seconds since the epoch, where it returns one.

        Trouble with the endpoint or the signer is recorded in `status` and met again by the next
        step.
        Database errors, and what the fence raises, propagate.
        """
        async with self._stepping:
            self.status.noticed = None
            self.status.last_error = None
            self._poster.again_at_s = None
            try:
                await self._step(head)
            except RPC_TROUBLE as error:
                self.status.last_error = str(error)
                self.status.noticed = self.status.noticed or PausedReason.RPC_TROUBLE
                _log.warning("endpoint_trouble", block=head.number, error=str(error))
            except SignerTrouble as error:
                self.status.last_error = error.message
                self.status.noticed = PausedReason.SIGNER_UNAVAILABLE
                _log.warning("signer_unavailable", block=head.number, error=error.message)
            self.status.paused_reason = self.status.noticed
            # What was put off before the trouble came is due all the same.
            return self._poster.again_at_s

    async def gas_model(self) -> GasModel:
        """What a post costs, by the newest of ours, with what it costs beside gas as gas of the
        price that the last step saw. Database errors propagate."""
        model = await load_gas_model(self._pool, self._settings)
        return as_gas(model, self._data.of_posts(), self._price_wei)

    async def _step(self, head: BlockRef) -> None:
        settings = self._settings
        sight = await self._look(self._address, head)
        self.status.balance_wei = sight.balance_wei
        self.status.tip_wei = sight.market.tip_wei
        self.knows_prices = True
        self._data = sight.data
        self._price_wei = sight.head.base_fee_wei + sight.market.tip_wei
        await self._orders.obey()
        await self._purse.refresh(self._pool)
        await self._watcher.watch(sight)
        await self._follow_former_keys(head)
        live = await self._outbox.live()
        if await self._gaps.fill(live, sight):
            live = await self._outbox.live()
        live = await self._follower.follow(live, sight)
        waiting = [intent for intent in live if _is_under_way(intent, sight)]
        self.status.in_flight = len(waiting)
        slots = settings.max_in_flight - len(waiting)
        if not await self._funds.allows_new(sight):
            slots = 0
        if self.status.noticed is PausedReason.SIGNER_UNAVAILABLE:
            slots = 0  # What would be planned now could not be signed.
        stalled = [intent for intent in waiting if intent.state in UNTAKEN]
        if stalled:
            # What comes later cannot be mined before it: no new nonces behind it.
            slots = 0
            self._say_why(stalled[0].attempts[-1])
        self._launcher.behind_others = bool(waiting) and settings.pool_visible
        planned = await self._poster.post(sight, slots)
        # One whose receipt nobody shows holds up no later one of its kind.
        under_way = {
            intent.kind
            for intent in live
            if intent.state is IntentState.MINED or _is_under_way(intent, sight)
        }
        if "deliver" not in under_way and slots > planned:
            planned += await self._deliverer.deliver(sight)
        if settings.refunds and "refund" not in under_way and slots > planned:
            planned += await self._refunder.refund(sight)
        self.status.in_flight = len(waiting) + planned

    async def _follow_former_keys(self, head: BlockRef) -> None:
        """What an earlier key of this operator signed is still on its way, and holds its items.

        Its troubles hold up nothing of the present key: they are no reason to say it paused.
        """
        for address in await self._outbox.other_senders():
            if address not in self._former:
                outbox = self._outbox_of(address)
                sender = Sender(self._rpc, outbox, self.status)
                follower = Follower(
                    self._rpc,
                    self._pool,
                    outbox,
                    sender,
                    None,
                    self._contracts,
                    self._settings,
                    self.status,
                    self._purse,
                    self._rollup,
                    address,
                )
                self._former[address] = outbox, follower
            outbox, follower = self._former[address]
            sight = await self._look(address, head)
            await follower.follow(await outbox.live(), sight)
        self.status.noticed = None
        self.status.last_error = None

    async def _look(self, sender: Address, head: BlockRef) -> Sight:
        settings = self._settings
        return await look(
            self._rpc,
            self._pool,
            sender,
            head,
            settings.confirmations,
            self._rollup,
            settings.max_priority_fee_wei,
        )

    def _say_why(self, attempt: Attempt) -> None:
        """Nothing passes these bytes: the operator must see what is in their way."""
        self.status.noticed = self.status.noticed or pause_of(attempt)
        self.status.last_error = self.status.last_error or attempt.error

    def _outbox_of(self, address: Address) -> Outbox:
        return Outbox(
            self._pool, chain_id=self._contracts.chain_id, sender=address, fence=self._fence
        )


def _is_under_way(intent: Intent, sight: Sight) -> bool:
    """Whether it takes a slot: what is mined, or has lost its nonce, holds up nothing."""
    if intent.state is IntentState.MINED:
        return False
    return intent.nonce is None or intent.nonce >= sight.chain_nonce
