"""Follows live intents: asks what is seen of each, and does what `next_action` says."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from indexer.database import Pool
from indexer.types import Address, Contracts, Hash32
from inferd.chain.signers import SignerTrouble
from inferd.settlement.bidding import Bid
from inferd.settlement.chain import ChainRpc, Sight
from inferd.settlement.closing import Closer
from inferd.settlement.intervals import load_block_interval_s
from inferd.settlement.launch import Launcher
from inferd.settlement.observing import UNTAKEN, Evidence, Observer, Place
from inferd.settlement.outbox import Outbox
from inferd.settlement.purse import Purse
from inferd.settlement.receipts import CANCELLED_BY_OPERATOR
from inferd.settlement.records import Intent
from inferd.settlement.rollups import Rollup
from inferd.settlement.sending import Sender
from inferd.settlement.settings import (
    KeyStatus,
    PausedReason,
    SettlementSettings,
    SettlementStatus,
)
from inferd.settlement.state import LIVE, Act, Action, IntentState, next_action

_log = structlog.get_logger("settlement")
_MAX_ACTIONS = 9


class Follower:
    """Without `launcher`, as for a key that is no longer here, stored bytes are sent and followed,
    and nothing is signed."""

    def __init__(
        self,
        rpc: ChainRpc,
        pool: Pool,
        outbox: Outbox,
        sender: Sender,
        launcher: Launcher | None,
        contracts: Contracts,
        settings: SettlementSettings,
        status: SettlementStatus,
        key: KeyStatus,
        purse: Purse,
        rollup: Rollup,
        address: Address,
        *,
        alone: bool,
    ) -> None:
        """`alone`: no other key is there to take over what this one cannot sign."""
        self._pool = pool
        self._outbox = outbox
        self._sender = sender
        self._launcher = launcher
        self._settings = settings
        self._status = status
        self._key = key
        self._alone = alone
        self._purse = purse
        self._rollup = rollup
        self._observer = Observer(rpc, pool, outbox, sender, launcher, settings, purse)
        self._closer = Closer(rpc, outbox, contracts, settings, status, key, address)

    async def follow(self, intents: Sequence[Intent], sight: Sight) -> list[Intent]:
        """The intents that are live afterwards. They are sent in the order of their nonces.

        Takes what they can still cost from the sight's free balance. Raises RPC_TROUBLE.
        """
        live = []
        reach = sight.chain_nonce
        nonces = [intent.nonce for intent in intents if intent.nonce is not None]
        last_nonce = max(nonces, default=0)
        full = sum(nonce >= reach for nonce in nonces) >= self._settings.max_in_flight
        async with self._pool.acquire() as connection:
            interval_s = await load_block_interval_s(connection)
        for intent in intents:
            holds_a_slot = full or intent.state in UNTAKEN
            place = Place(
                reachable=intent.nonce is None or intent.nonce <= reach,
                in_the_way=(intent.nonce is not None and intent.nonce < last_nonce)
                or (holds_a_slot and self._status.waiting_for_slot > 0),
                interval_s=interval_s,
            )
            followed = await self._follow(intent, sight, place)
            if followed.state in LIVE:
                live.append(followed)
                sight.free_wei -= followed.reserved_wei
                if followed.nonce == reach:
                    reach += 1
            else:
                self._sender.forget(followed)
        return live

    async def _follow(self, intent: Intent, sight: Sight, place: Place) -> Intent:
        observer = self._observer
        evidence = await observer.evidence(intent, sight, place)
        for _ in range(_MAX_ACTIONS):
            offered = observer.bid(intent, evidence, sight, place)
            seen = observer.observation(intent, evidence, offered, sight, place)
            action = next_action(intent.state, [a.view() for a in intent.attempts], seen)
            if not await self._act(intent, action, evidence, offered, sight):
                if intent.state in UNTAKEN and not seen.can_pay:
                    self._key.noticed = PausedReason.INSUFFICIENT_FUNDS
                return intent
            intent = await self._outbox.load(intent.id)
        return intent

    async def _act(
        self, intent: Intent, action: Action, evidence: Evidence, offered: Bid, sight: Sight
    ) -> bool:
        """Whether the intent changed, and should be looked at again."""
        match action.act, action.hash:
            case ((Act.SEND | Act.REBROADCAST), bytes(tx_hash)):
                if await self._sender.send(intent, intent.attempt(tx_hash), sight):
                    evidence.known.add(tx_hash)
            case ((Act.CONFIRM | Act.FAIL), bytes(tx_hash)):
                receipt = evidence.receipts[tx_hash]
                await self._closer.close_mined(intent, receipt, sight, wanted=evidence.wanted)
            case ((Act.SIGN | Act.BUMP | Act.CANCEL), _):
                return await self._sign(intent, action.act, evidence, offered, sight)
            case ((Act.REPLAN | Act.ABANDON), _):
                await self._give_back(intent, action.act)
            case Act.WAIT, _:
                return False
            case _:
                await self._mark(intent, action, evidence, sight)
        return True

    async def _mark(self, intent: Intent, action: Action, evidence: Evidence, sight: Sight) -> None:
        """Records what was seen."""
        log = _log.bind(intent_id=intent.id, nonce=intent.nonce, trace_ids=intent.trace_ids)
        match action.act, action.hash:
            case Act.MARK_SENT, bytes(tx_hash):
                await self._sender.found(intent, intent.attempt(tx_hash), sight)
            case Act.MARK_DROPPED, bytes(tx_hash):
                await self._outbox.mark_dropped(Hash32(tx_hash))
                log.info("dropped_from_pool", tx_hash="0x" + tx_hash.hex())
            case Act.MARK_UNKNOWN, _:
                await self._outbox.mark_unknown(intent.id)
                log.warning("nonce_spent_by_what_is_not_shown")
            case Act.MARK_MINED, bytes(tx_hash):
                receipt = evidence.receipts[tx_hash]
                data_fee_wei = await self._rollup.paid_beside_gas(receipt)
                await self._outbox.mark_mined(intent.id, receipt, data_fee_wei)
                log.info("mined", tx_hash="0x" + tx_hash.hex(), block=receipt.block_number)
            case Act.MARK_UNMINED, _:
                await self._outbox.mark_unmined(intent.id)
                self._sender.doubt(intent)
                log.warning("unmined_by_reorg")

    async def _give_back(self, intent: Intent, act: Act) -> None:
        """Its nonce is lost, or nothing was signed: its items are free for another intent."""
        if act is Act.ABANDON:
            outcome = "former_key"
        elif intent.attempts:
            outcome = "nonce_taken"
        else:
            outcome = CANCELLED_BY_OPERATOR if intent.cancel_asked else "not_sent"
        await self._closer.close(intent, IntentState.CANCELLED, outcome, {})
        _log.warning(
            "cancelled",
            intent_id=intent.id,
            nonce=intent.nonce,
            outcome=outcome,
            trace_ids=intent.trace_ids,
        )

    async def _sign(
        self, intent: Intent, act: Act, evidence: Evidence, offered: Bid, sight: Sight
    ) -> bool:
        """Whether there is a new transaction of the intent, or none can be had at this step."""
        try:
            return await self._signed(intent, act, evidence, offered, sight)
        except SignerTrouble as error:
            self._key.noticed = PausedReason.SIGNER_UNAVAILABLE
            self._key.last_error = error.message
            _log.warning("signer_unavailable", act=act.value, error=error.message)
            evidence.signer_away = True
            # Without a nonce it waits for nothing that another key has not.
            return bool(intent.attempts) or not self._alone

    async def _signed(
        self, intent: Intent, act: Act, evidence: Evidence, offered: Bid, sight: Sight
    ) -> bool:
        if self._launcher is None:
            return False
        signing = self._launcher.signing
        if act is Act.SIGN and offered.raised is not None:
            signed = await signing.first(intent, offered.raised, sight)
            self._purse.take(intent.kind, signed.reserved_gas_wei)
            return True
        if not intent.attempts:
            return False
        raised = act is Act.BUMP
        of_work = raised and intent.has_effect(intent.attempts[-1])
        payload = intent.payload if of_work else evidence.noop
        if payload is None:
            return False
        fees = offered.raised if raised else self._observer.noop_fees(offered, intent, payload)
        if fees is None:
            return False
        _log.info(
            "replacing",
            intent_id=intent.id,
            nonce=intent.nonce,
            act=act.value,
            max_fee_wei=fees.max_fee_wei,
            trace_ids=intent.trace_ids,
        )
        await signing.replacement(intent, payload, fees, sight)
        data_wei = sight.data.reserve(len(payload.calldata), payload.gas_limit)
        dearer_wei = fees.max_fee_wei * payload.gas_limit + data_wei - intent.reserved_gas_wei
        self._purse.take(intent.kind, max(dearer_wei, 0))
        return True
