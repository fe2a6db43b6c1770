"""Follows live intents: gathers what the chain shows of each, and does what `next_action` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from indexer.database import Pool
from indexer.rpc import Receipt
from indexer.types import Contracts
from inferd.settlement.chain import ChainRpc, Sight, canonical_hash
from inferd.settlement.fees import Fees, first_fees, replacement_fees
from inferd.settlement.keys import SignerTrouble
from inferd.settlement.launch import Launcher, gas_cap
from inferd.settlement.outbox import ItemKey, Outbox
from inferd.settlement.receipts import (
    NOT_WANTED,
    OUT_OF_GAS,
    REFUSED,
    REVERTED,
    SETTLED,
    item_outcomes,
    posted_groups,
    ran_out_of_gas,
)
from inferd.settlement.records import Attempt, Intent, Payload
from inferd.settlement.rollups import Rollup
from inferd.settlement.sending import Sender
from inferd.settlement.settings import PausedReason, SettlementSettings, SettlementStatus
from inferd.settlement.state import (
    LIVE,
    Act,
    Action,
    IntentState,
    Observation,
    ReceiptView,
    next_action,
)

_log = structlog.get_logger("settlement")
_MAX_ACTIONS = 9


@dataclass(slots=True)
class _Evidence:
    """What the endpoint says about the hashes of one intent."""

    receipts: dict[bytes, Receipt]
    """In canonical blocks at or below the head."""
    known: set[bytes]
    wanted: bool
    """Its items are worth a transaction: all of them before it is signed, any of them later."""
    hopeless: bytes | None
    """The newest attempt's hash, where it was refused for too many blocks."""
    reachable: bool
    noop: Payload | None
    """What can be signed for the nonce instead; only looked for where it may be needed."""
    signer_away: bool = False
    """Nothing can be signed at this step: what is signed already has to do."""


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
        rollup: Rollup,
    ) -> None:
        self._rpc = rpc
        self._pool = pool
        self._outbox = outbox
        self._sender = sender
        self._launcher = launcher
        self._contracts = contracts
        self._settings = settings
        self._status = status
        self._rollup = rollup
        self._last_nonce = 0

    async def follow(self, intents: Sequence[Intent], sight: Sight) -> list[Intent]:
        """The intents that are live afterwards. They are sent in the order of their nonces.

        Takes what they can still cost from the sight's free balance. Raises RPC_TROUBLE.
        """
        live = []
        reach = sight.chain_nonce
        self._last_nonce = max((i.nonce for i in intents if i.nonce is not None), default=0)
        for intent in intents:
            reachable = intent.nonce is None or intent.nonce <= reach
            followed = await self._follow(intent, sight, reachable=reachable)
            if followed.state in LIVE:
                live.append(followed)
                sight.free_wei -= followed.reserved_wei
                if followed.nonce == reach:
                    reach += 1
            else:
                self._sender.forget(followed)
        return live

    async def _follow(self, intent: Intent, sight: Sight, *, reachable: bool) -> Intent:
        evidence = await self._evidence(intent, sight, reachable=reachable)
        for _ in range(_MAX_ACTIONS):
            fees = self._fees(intent, sight)
            seen = self._observation(intent, evidence, fees, sight)
            action = next_action(intent.state, [a.view() for a in intent.attempts], seen)
            if not await self._act(intent, action, evidence, fees, sight):
                if intent.state is IntentState.SIGNED and not seen.can_pay:
                    self._status.noticed = PausedReason.INSUFFICIENT_FUNDS
                return intent
            intent = await self._outbox.load(intent.id)
        return intent

    async def _act(
        self,
        intent: Intent,
        action: Action,
        evidence: _Evidence,
        fees: Fees | None,
        sight: Sight,
    ) -> bool:
        """Whether the intent changed, and should be looked at again."""
        log = _log.bind(intent_id=intent.id, nonce=intent.nonce, trace_ids=intent.trace_ids)
        match action.act, action.hash:
            case ((Act.SEND | Act.REBROADCAST), bytes(tx_hash)):
                attempt = _attempt(intent, tx_hash)
                if await self._sender.send(intent, attempt, sight):
                    evidence.known.add(tx_hash)
            case Act.MARK_MINED, bytes(tx_hash):
                receipt = evidence.receipts[tx_hash]
                data_fee_wei = await self._rollup.paid_beside_gas(receipt)
                await self._outbox.mark_mined(intent.id, receipt, data_fee_wei)
                log.info("mined", tx_hash="0x" + tx_hash.hex(), block=receipt.block_number)
            case ((Act.CONFIRM | Act.FAIL), bytes(tx_hash)):
                receipt = evidence.receipts[tx_hash]
                await self._close_mined(intent, receipt, sight, wanted=evidence.wanted)
            case Act.MARK_UNMINED, _:
                await self._outbox.mark_unmined(intent.id)
                self._sender.doubt(intent)
                log.warning("unmined_by_reorg")
            case ((Act.SIGN | Act.BUMP | Act.CANCEL), _):
                try:
                    return await self._sign(intent, action.act, evidence, fees, sight)
                except SignerTrouble as error:
                    self._status.noticed = PausedReason.SIGNER_UNAVAILABLE
                    self._status.last_error = error.message
                    log.warning("signer_unavailable", act=action.act.value, error=error.message)
                    evidence.signer_away = True
                    return bool(intent.attempts)
            case ((Act.REPLAN | Act.ABANDON), _):
                outcome = "nonce_taken" if intent.attempts else "not_sent"
                if action.act is Act.ABANDON:
                    outcome = "former_key"
                await self._close(intent, IntentState.CANCELLED, outcome, {})
                log.warning("cancelled", outcome=outcome)
            case _:
                return False
        return True

    async def _sign(
        self, intent: Intent, act: Act, evidence: _Evidence, fees: Fees | None, sight: Sight
    ) -> bool:
        """Whether there is a new transaction of the intent, signed and stored."""
        if self._launcher is None:
            return False
        signing = self._launcher.signing
        if act is Act.SIGN and fees is not None:
            await signing.first(intent, fees, sight.data)
            return True
        newest = intent.attempts[-1]
        raised = act is Act.BUMP
        payload = intent.payload if raised and intent.has_effect(newest) else evidence.noop
        offered = fees if raised else _cancelling_fees(fees, newest)
        if payload is None or offered is None:
            return False
        _log.info(
            "replacing",
            intent_id=intent.id,
            nonce=intent.nonce,
            act=act.value,
            max_fee_wei=offered.max_fee_wei,
            trace_ids=intent.trace_ids,
        )
        await signing.replacement(intent, payload, offered, sight.data)
        return True

    async def _evidence(self, intent: Intent, sight: Sight, *, reachable: bool) -> _Evidence:
        receipts: dict[bytes, Receipt] = {}
        known: set[bytes] = set()
        for attempt in intent.attempts:
            receipt = await self._rpc.receipt(attempt.hash)
            if receipt is not None:
                known.add(attempt.hash)
                canonical = await canonical_hash(
                    self._rpc, self._pool, sight.head, receipt.block_number
                )
                if receipt.block_hash == canonical:
                    receipts[attempt.hash] = receipt
            elif await self._rpc.transaction_exists(attempt.hash):
                known.add(attempt.hash)
        wanted = await self._is_wanted(intent, sight)
        hopeless = None
        if intent.attempts:
            newest = intent.attempts[-1]
            if self._sender.refused_blocks(newest) >= self._settings.max_refused_blocks:
                hopeless = newest.hash
        noop = None
        if self._launcher is not None and intent.attempts and not receipts:
            never_taken = intent.state is IntentState.SIGNED
            cancelled = not intent.has_effect(intent.attempts[-1])
            if hopeless is not None or cancelled or (never_taken and not wanted):
                noop = await self._launcher.noop(sight)
        return _Evidence(receipts, known, wanted, hopeless, reachable, noop)

    async def _is_wanted(self, intent: Intent, sight: Sight) -> bool:
        """Whether its items still wait for this.

        An empty one was to fill a gap, and is made anew where the gap is still there.
        """
        async with self._pool.acquire() as connection:
            fit: int = await connection.fetchval(
                "SELECT count(*) FROM node.tx_item i JOIN chain.request r ON r.id = i.request_id"
                " AND r.commitment = i.commitment WHERE i.intent_id = $1 AND CASE $3::text"
                " WHEN 'post' THEN r.status = 'pending' AND r.deadline_s >= $2"
                " WHEN 'refund' THEN r.status = 'pending' AND r.deadline_s < $2"
                " WHEN 'deliver' THEN r.status = 'fulfilled'"
                "     AND r.callback_delivered_block IS NULL END",
                intent.id,
                sight.head.timestamp_s,
                intent.kind,
            )
        return fit > 0 if intent.attempts else fit == len(intent.items) > 0

    def _fees(self, intent: Intent, sight: Sight) -> Fees | None:
        """Of the next transaction of this intent, should it need one; None where it cannot be."""
        settings = self._settings
        if self._launcher is None:
            return None
        if intent.attempts:
            # Refunds too, under the general cap: a stuck one blocks every later nonce. A post that
            # blocks none waits for a price at which it still earns its gas.
            caps = settings.fee_caps()
            newest = intent.attempts[-1]
            most_wei = intent.break_even_wei
            blocks_none = intent.nonce == self._last_nonce
            if most_wei is not None and blocks_none and intent.has_effect(newest):
                caps = replace(caps, max_fee_wei=min(caps.max_fee_wei, most_wei))
            return replacement_fees(newest.fees, sight.market, caps)
        caps = settings.refund_fee_caps() if intent.kind == "refund" else settings.fee_caps()
        return first_fees(sight.market, caps)

    def _observation(
        self, intent: Intent, evidence: _Evidence, fees: Fees | None, sight: Sight
    ) -> Observation:
        free_wei = sight.free_wei
        newest = intent.attempts[-1] if intent.attempts else None
        next_gas = newest.gas_limit if newest is not None else intent.gas_limit
        if evidence.signer_away:
            fees = None
        next_data_wei = sight.data.reserve(len(intent.calldata), next_gas)
        next_pays = fees is not None and fees.max_fee_wei * next_gas + next_data_wei <= free_wei
        priced_out = newest is not None and newest.fees.max_fee_wei < sight.next_base_fee_wei
        not_taken = newest is not None and newest.error is not None
        can_cancel = False
        if newest is not None and evidence.noop is not None and not evidence.signer_away:
            offered = _cancelling_fees(fees, newest)
            noop = evidence.noop
            noop_data_wei = sight.data.reserve(len(noop.calldata), noop.gas_limit)
            can_cancel = (
                noop.calldata not in newest.raw
                and offered.max_fee_wei * noop.gas_limit + noop_data_wei <= free_wei
            )
        overdue = {
            attempt.hash
            for attempt in intent.attempts
            if self._sender.blocks_since_sent(attempt, sight) >= self._settings.resend_after_blocks
        }
        return Observation(
            head_number=sight.head.number,
            confirmations=self._settings.confirmations,
            chain_nonce=sight.chain_nonce,
            settled_nonce=sight.settled_nonce,
            receipts={
                tx_hash: ReceiptView(receipt.block_number, receipt.block_hash, receipt.succeeded)
                for tx_hash, receipt in evidence.receipts.items()
            },
            known=frozenset(evidence.known),
            taken=frozenset()
            if self._settings.pool_visible
            else frozenset(a.hash for a in intent.attempts if self._sender.was_taken(a)),
            overdue=frozenset(overdue),
            refused=frozenset(
                attempt.hash
                for attempt in intent.attempts
                if self._sender.was_refused_at(attempt, sight)
            ),
            hopeless=newest is not None and newest.hash == evidence.hopeless,
            wanted=evidence.wanted,
            reachable=evidence.reachable,
            priced_out=priced_out,
            can_sign=evidence.wanted and next_pays,
            can_bump=next_pays and (sight.replaces or priced_out or not_taken),
            can_pay=newest is not None and newest.max_cost_wei <= free_wei,
            can_cancel=can_cancel,
            has_key=self._launcher is not None,
        )

    async def _close_mined(
        self, intent: Intent, receipt: Receipt, sight: Sight, *, wanted: bool
    ) -> None:
        mined = _attempt(intent, receipt.tx_hash)
        gas_wei = receipt.gas_used * receipt.effective_gas_price_wei
        self._status.gas_spent_wei += gas_wei + mined.data_fee_wei
        if not intent.has_effect(mined):
            refusals = [attempt.refusal for attempt in intent.attempts]
            refused = wanted and any(one is not None and one.may_never_pass for one in refusals)
            outcome = REFUSED if refused else NOT_WANTED
            outcomes = _all(intent, REFUSED) if refused else {}
            await self._close(intent, IntentState.CANCELLED, outcome, outcomes, receipt)
            return
        if not receipt.succeeded:
            self._status.failed_transactions += 1
            # With all the gas there may be, more of it is no answer: the items go apart instead.
            higher = mined.gas_limit < gas_cap(self._settings.max_gas, sight)
            gas_was_why = higher and ran_out_of_gas(receipt.gas_used, mined.gas_limit)
            outcome = OUT_OF_GAS if gas_was_why else REVERTED
            await self._close(intent, IntentState.FAILED, outcome, _all(intent, outcome), receipt)
            return
        self._status.confirmed_transactions += 1
        outcomes = item_outcomes(intent, receipt.logs, self._contracts)
        groups = None
        if intent.kind == "post" and outcomes and set(outcomes.values()) == {SETTLED}:
            groups = len(posted_groups(intent.calldata))
        await self._close(intent, IntentState.CONFIRMED, "done", outcomes, receipt, groups)

    async def _close(
        self,
        intent: Intent,
        state: IntentState,
        outcome: str,
        outcomes: dict[ItemKey, str],
        receipt: Receipt | None = None,
        groups: int | None = None,
    ) -> None:
        given_up = await self._outbox.close(
            intent,
            state,
            outcome,
            outcomes,
            max_failures=self._settings.max_item_failures,
            receipt=receipt,
            groups=groups,
        )
        self._status.abandoned += given_up
        for item_outcome in outcomes.values():
            self._status.count(item_outcome)
        _log.info(
            "closed",
            intent_id=intent.id,
            nonce=intent.nonce,
            state=state.value,
            outcome=outcome,
            tx_hash="0x" + receipt.tx_hash.hex() if receipt is not None else None,
            gas_used=receipt.gas_used if receipt is not None else None,
            given_up=given_up,
            trace_ids=intent.trace_ids,
        )


def _cancelling_fees(raised: Fees | None, newest: Attempt) -> Fees:
    """Where the cap leaves no room, what the newest offers is the most its successor can."""
    return raised or newest.fees


def _all(intent: Intent, outcome: str) -> dict[ItemKey, str]:
    return {(item.request_id, item.commitment): outcome for item in intent.items}


def _attempt(intent: Intent, tx_hash: bytes) -> Attempt:
    return next(attempt for attempt in intent.attempts if attempt.hash == tx_hash)
