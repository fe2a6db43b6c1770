"""Ends an intent: what became of its items, by the receipt of the transaction that was mined."""

from __future__ import annotations

import structlog

from indexer.rpc import Receipt
from indexer.types import Address, Contracts
from inferd.settlement.chain import ChainRpc, Sight
from inferd.settlement.diagnosis import diagnose
from inferd.settlement.ending import ItemKey
from inferd.settlement.launch import gas_cap
from inferd.settlement.outbox import Outbox
from inferd.settlement.receipts import (
    CANCELLED_BY_OPERATOR,
    MISSING,
    NO_CONTRACT,
    NOT_WANTED,
    OUT_OF_GAS,
    PRICED_OUT,
    REFUSED,
    REVERTED,
    SETTLED,
    is_plain_post,
    item_outcomes,
    posted_signatures,
    ran_out_of_gas,
)
from inferd.settlement.records import Intent
from inferd.settlement.settings import Ended, KeyStatus, SettlementSettings, SettlementStatus
from inferd.settlement.state import IntentState
from inferd.settlement.void import find_void

_log = structlog.get_logger("settlement")


class Closer:
    def __init__(
        self,
        rpc: ChainRpc,
        outbox: Outbox,
        contracts: Contracts,
        settings: SettlementSettings,
        status: SettlementStatus,
        key: KeyStatus,
        address: Address,
    ) -> None:
        self._rpc = rpc
        self._outbox = outbox
        self._contracts = contracts
        self._settings = settings
        self._status = status
        self._key = key
        self._address = address

    async def close_mined(
        self, intent: Intent, receipt: Receipt, sight: Sight, *, wanted: bool
    ) -> None:
        """Its transaction is deep enough. Raises RPC_TROUBLE."""
        mined = intent.attempt(receipt.tx_hash)
        if not intent.has_effect(mined):
            outcome = _why_without_effect(intent, wanted=wanted)
            outcomes = intent.all_items(REFUSED) if outcome == REFUSED else {}
            await self.close(intent, IntentState.CANCELLED, outcome, outcomes, receipt)
            return
        if not receipt.succeeded:
            # With all the gas there may be, more of it is no answer: the items go apart instead.
            higher = mined.gas_limit < gas_cap(self._settings.max_gas, sight)
            gas_was_why = higher and ran_out_of_gas(receipt.gas_used, mined.gas_limit)
            outcome = OUT_OF_GAS if gas_was_why else REVERTED
            why = await diagnose(self._rpc, self._address, intent, mined, receipt)
            await self.close(
                intent,
                IntentState.FAILED,
                outcome,
                intent.all_items(outcome),
                receipt,
                diagnosis=why,
            )
            return
        outcomes = item_outcomes(intent, receipt.logs, self._contracts)
        if outcomes and set(outcomes.values()) == {MISSING}:
            await self._close_without_events(intent, outcomes, receipt)
            return
        groups = None
        plain = intent.kind == "post" and is_plain_post(intent.calldata)
        if plain and outcomes and set(outcomes.values()) == {SETTLED}:
            groups = posted_signatures(intent.calldata)
        await self.close(intent, IntentState.CONFIRMED, "done", outcomes, receipt, groups=groups)

    async def _close_without_events(
        self, intent: Intent, outcomes: dict[ItemKey, str], receipt: Receipt
    ) -> None:
        """It succeeded and did nothing: no item is to blame where there is no contract."""
        void = await find_void(self._rpc, intent.target, self._status)
        outcome = MISSING if void is None else NO_CONTRACT
        await self.close(
            intent,
            IntentState.FAILED,
            outcome,
            outcomes if void is None else intent.all_items(NO_CONTRACT),
            receipt,
            diagnosis=void or "it succeeded, and no event tells of any of its items",
        )

    async def close(
        self,
        intent: Intent,
        state: IntentState,
        outcome: str,
        outcomes: dict[ItemKey, str],
        receipt: Receipt | None = None,
        *,
        groups: int | None = None,
        diagnosis: str | None = None,
    ) -> None:
        """Records the end, and counts it."""
        given_up = await self._outbox.close(
            intent,
            state,
            outcome,
            outcomes,
            max_failures=self._settings.max_item_failures,
            receipt=receipt,
            groups=groups,
            diagnosis=diagnosis,
        )
        gas_wei = 0
        if receipt is not None:
            gas_wei = receipt.gas_used * receipt.effective_gas_price_wei
            gas_wei += intent.attempt(receipt.tx_hash).data_fee_wei
        self._key.count(intent.id, Ended(state, gas_wei, given_up, tuple(outcomes.values())))
        _log.info(
            "closed",
            intent_id=intent.id,
            nonce=intent.nonce,
            state=state.value,
            outcome=outcome,
            diagnosis=diagnosis,
            tx_hash="0x" + receipt.tx_hash.hex() if receipt is not None else None,
            gas_used=receipt.gas_used if receipt is not None else None,
            given_up=given_up,
            trace_ids=intent.trace_ids,
        )


def _why_without_effect(intent: Intent, *, wanted: bool) -> str:
    if intent.cancel_asked:
        return CANCELLED_BY_OPERATOR
    if not wanted:
        return NOT_WANTED
    refusals = [attempt.refusal for attempt in intent.attempts]
    refused = any(one is not None and one.may_never_pass for one in refusals)
    return REFUSED if refused else PRICED_OUT
