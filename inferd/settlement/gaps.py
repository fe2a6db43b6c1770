"""Every reserved nonce ends mined, or no later one ever is.

A nonce between the chain's and our next one that no live intent holds is a gap. It comes from a
reorganisation deeper than the confirmations, which took a transaction whose intent was closed: the
intent is opened again and its bytes are sent again. Where no transaction of ours ever had the
nonce (a foreign transaction had, and was taken by the reorganisation), an empty post fills it.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from indexer.types import ZERO_HASH, Contracts
from inferd.protocol import calls
from inferd.settlement.chain import Sight
from inferd.settlement.fees import first_fees
from inferd.settlement.launch import Call, Launcher, gas_cap, gas_limit
from inferd.settlement.outbox import Outbox
from inferd.settlement.records import Draft, Intent
from inferd.settlement.sending import Sender
from inferd.settlement.settings import SettlementSettings

_log = structlog.get_logger("settlement")
_AT_ONCE = 64


class GapFiller:
    def __init__(
        self,
        outbox: Outbox,
        sender: Sender,
        launcher: Launcher,
        contracts: Contracts,
        settings: SettlementSettings,
    ) -> None:
        self._outbox = outbox
        self._sender = sender
        self._launcher = launcher
        self._contracts = contracts
        self._settings = settings
        self._seen_since: dict[int, int] = {}

    async def fill(self, live: Sequence[Intent], sight: Sight) -> bool:
        """Whether an intent became live by it. Raises RPC_TROUBLE."""
        next_nonce = await self._outbox.next_nonce()
        held = {intent.nonce for intent in live}
        missing = [n for n in range(sight.chain_nonce, next_nonce) if n not in held][:_AT_ONCE]
        if not missing:
            self._seen_since.clear()
            return False
        changed = False
        holders = await self._outbox.holders(missing)
        for intent in holders:
            _log.warning(
                "closed_transaction_left_the_chain",
                intent_id=intent.id,
                nonce=intent.nonce,
                trace_ids=intent.trace_ids,
            )
            if await self._outbox.reopen(intent.id):
                changed = True
            else:
                await self._sender.send(intent, intent.attempts[-1], sight)
        holes = sorted(set(missing) - {intent.nonce for intent in holders})
        if holes and self._has_stayed(holes, sight):
            changed = await self._fill_hole(holes[0], sight) or changed
        return changed

    def _has_stayed(self, holes: Sequence[int], sight: Sight) -> bool:
        """A nonce that the chain took above the head looks like a hole until the head is there."""
        self._seen_since = {
            nonce: self._seen_since.get(nonce, sight.head.number) for nonce in holes
        }
        age = sight.head.number - self._seen_since[holes[0]]
        return age >= self._settings.resend_after_blocks

    async def _fill_hole(self, nonce: int, sight: Sight) -> bool:
        fees = first_fees(sight.next_base_fee_wei, sight.tip_wei, self._settings.fee_caps())
        call = Call("InferenceResults", "post", self._contracts.results, calls.post([], ZERO_HASH))
        estimate = await self._launcher.estimate(call)
        if fees is None or estimate is None:
            return False
        _log.warning("filling_nonce_gap", nonce=nonce)
        draft = Draft(
            kind="post",
            target=call.target,
            calldata=call.calldata,
            gas_limit=gas_limit(estimate, estimate, gas_cap(self._settings.max_gas, sight)),
            items=(),
            reason="fill_nonce_gap",
            inputs={"nonce": nonce},
        )
        return await self._launcher.launch(draft, fees, sight, hole=nonce)
