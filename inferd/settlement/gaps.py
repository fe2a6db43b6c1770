"""Every reserved nonce ends mined, or no later one ever is.

A nonce between the chain's and our next one that no live intent holds is a gap. It comes from a
reorganisation deeper than the confirmations, which took a transaction whose intent was closed: the
intent is opened again and its bytes are sent again. Where no transaction of ours ever had the
nonce (a foreign transaction had, and was taken by the reorganisation), or nobody takes the bytes of
an intent that cannot be opened again, an empty post fills it.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from inferd.settlement.chain import Sight
from inferd.settlement.fees import first_fees
from inferd.settlement.launch import Launched, Launcher
from inferd.settlement.outbox import Outbox
from inferd.settlement.records import Draft, Intent
from inferd.settlement.sending import Sender
from inferd.settlement.settings import SettlementSettings
from inferd.settlement.state import CLOSED

_log = structlog.get_logger("settlement")
_AT_ONCE = 64


class GapFiller:
    def __init__(
        self,
        outbox: Outbox,
        sender: Sender,
        launcher: Launcher,
        settings: SettlementSettings,
    ) -> None:
        self._outbox = outbox
        self._sender = sender
        self._launcher = launcher
        self._settings = settings
        self._seen_since: dict[int, int] = {}

    async def fill(self, live: Sequence[Intent], sight: Sight) -> bool:
        """Whether an intent became live by it. Raises RPC_TROUBLE."""
        changed = False
        next_nonce = await self._outbox.next_nonce()
        held = {intent.nonce for intent in live}
        missing = [n for n in range(sight.chain_nonce, next_nonce) if n not in held][:_AT_ONCE]
        if not missing:
            self._seen_since.clear()
            return changed
        holders = await self._outbox.holders(missing)
        unfilled = set(missing) - {intent.nonce for intent in holders}
        for intent in holders:
            _log.warning(
                "closed_transaction_left_the_chain",
                intent_id=intent.id,
                nonce=intent.nonce,
                trace_ids=intent.trace_ids,
            )
            # What is final is not opened again. Should a chain break that promise, its requests
            # are pending once more and its bytes fill the gap.
            if intent.state in CLOSED and await self._outbox.reopen(intent.id):
                changed = True
                continue
            newest = intent.attempts[-1]
            if not await self._sender.send(intent, newest, sight):
                unfilled.add(newest.nonce)
        holes = sorted(unfilled)
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
        if self._launcher.signing.rests(sight.head) is not None:
            return False  # Nobody would sign it: nothing is planned for that.
        fees = first_fees(sight.market, self._settings.fee_caps())
        noop = await self._launcher.noop(sight)
        if fees is None or noop is None:
            return False
        _log.warning("filling_nonce_gap", nonce=nonce)
        draft = Draft(
            kind="post",
            target=noop.target,
            calldata=noop.calldata,
            gas_limit=noop.gas_limit,
            items=(),
            reason="fill_nonce_gap",
            inputs={"nonce": nonce},
        )
        # Where nobody signs, what is live is followed all the same: the next step meets the hole.
        done = await self._launcher.launch(draft, fees, sight, hole=nonce)
        return done is not Launched.BY_NOBODY
