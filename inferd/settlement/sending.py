"""The only place where signed bytes leave for the chain."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from indexer.errors import RpcUnreachable
from indexer.rpc import RpcError
from indexer.rpc.refusals import SendError, classify
from inferd.settlement.chain import ChainRpc, Sight
from inferd.settlement.outbox import Outbox
from inferd.settlement.records import Attempt, Intent
from inferd.settlement.settings import KeyStatus, PausedReason
from inferd.settlement.state import TOO_CHEAP

_log = structlog.get_logger("settlement")

_PAUSES = {
    SendError.INSUFFICIENT_FUNDS: PausedReason.INSUFFICIENT_FUNDS,
    SendError.TRY_LATER: PausedReason.TRANSACTION_REFUSED,
    SendError.INVALID: PausedReason.TRANSACTION_REFUSED,
    SendError.UNKNOWN: PausedReason.TRANSACTION_REFUSED,
    SendError.NONCE_TOO_HIGH: PausedReason.TRANSACTION_REFUSED,
}


def pause_of(attempt: Attempt) -> PausedReason:
    """Why signed bytes that no endpoint has yet hold up everything behind them."""
    if attempt.refusal is None:
        return PausedReason.INSUFFICIENT_FUNDS
    if attempt.refusal in TOO_CHEAP:
        return PausedReason.GAS_PRICE_OVER_CAP
    return _PAUSES.get(attempt.refusal, PausedReason.TRANSACTION_REFUSED)


@dataclass(slots=True)
class _Refusals:
    """Of one hash, since it was last taken."""

    newest_block: int = 0
    unknown_blocks: set[int] = field(default_factory=set)
    """In which it was refused for a reason that may be one for ever."""


class Sender:
    """Remembers when each hash was last sent and refused; after a restart, it begins anew."""

    def __init__(
        self,
        rpc: ChainRpc,
        outbox: Outbox,
        status: KeyStatus,
    ) -> None:
        self._rpc = rpc
        self._outbox = outbox
        self._status = status
        self._sent_at: dict[bytes, int] = {}
        self._refusals: dict[bytes, _Refusals] = {}
        self._taken: set[bytes] = set()

    async def send(self, intent: Intent, attempt: Attempt, sight: Sight) -> bool:
        """Sends stored bytes, once more or for the first time. True where the endpoint has them.

        Raises RpcUnreachable, with the outcome unknown: the next step finds out.
        """
        log = _log.bind(
            intent_id=intent.id,
            tx_hash="0x" + attempt.hash.hex(),
            nonce=attempt.nonce,
            trace_ids=intent.trace_ids,
        )
        self._taken.discard(attempt.hash)
        try:
            await self._rpc.send_raw_transaction(attempt.raw)
        except RpcUnreachable as error:
            await self._outbox.mark_unanswered(
                intent.id, attempt.hash, f"no answer: {error.message}"
            )
            log.warning("send_unanswered", error=error.message)
            raise
        except RpcError as error:
            meaning = classify(error.message)
            if meaning is not SendError.ALREADY_KNOWN:
                if meaning is SendError.UNKNOWN:
                    await self._outbox.mark_unanswered(intent.id, attempt.hash, error.message)
                else:
                    await self._outbox.mark_refused(attempt.hash, error.message)
                self._remember_refusal(attempt, meaning, sight)
                self._status.last_error = error.message
                self._status.noticed = _PAUSES.get(meaning, self._status.noticed)
                log.warning("send_refused", meaning=meaning.value, error=error.message)
                return False
        await self._outbox.mark_sent(intent.id, attempt.hash)
        self._remember_taken(attempt, sight)
        log.info("sent", max_fee_wei=attempt.fees.max_fee_wei, kind=intent.kind)
        return True

    async def found(self, intent: Intent, attempt: Attempt, sight: Sight) -> None:
        """A pool has it, so it was taken, whatever was answered."""
        await self._outbox.mark_found(intent.id, attempt.hash)
        self._remember_taken(attempt, sight)

    def blocks_since_sent(self, attempt: Attempt, sight: Sight) -> int:
        return sight.head.number - self._sent_at.setdefault(attempt.hash, sight.head.number)

    def was_taken(self, attempt: Attempt) -> bool:
        """Whether an endpoint took it when it was last sent, and nothing spoke against it since."""
        return attempt.hash in self._taken

    def doubt(self, intent: Intent) -> None:
        """It was mined and is no longer: no pool need have it any more."""
        self._taken.difference_update(attempt.hash for attempt in intent.attempts)

    def was_refused_at(self, attempt: Attempt, sight: Sight) -> bool:
        """Whether the endpoint said no to it at this very head."""
        refusals = self._refusals.get(attempt.hash)
        return refusals is not None and refusals.newest_block == sight.head.number

    def refused_blocks(self, attempt: Attempt) -> int:
        """In how many blocks it was refused for no known reason, since it was last taken."""
        refusals = self._refusals.get(attempt.hash)
        return len(refusals.unknown_blocks) if refusals is not None else 0

    def forget(self, intent: Intent) -> None:
        """The intent is closed."""
        self.doubt(intent)
        for attempt in intent.attempts:
            self._sent_at.pop(attempt.hash, None)
            self._refusals.pop(attempt.hash, None)

    def _remember_taken(self, attempt: Attempt, sight: Sight) -> None:
        self._sent_at[attempt.hash] = sight.head.number
        self._taken.add(attempt.hash)
        self._refusals.pop(attempt.hash, None)

    def _remember_refusal(self, attempt: Attempt, meaning: SendError, sight: Sight) -> None:
        refusals = self._refusals.setdefault(attempt.hash, _Refusals())
        refusals.newest_block = sight.head.number
        if meaning.may_never_pass:
            refusals.unknown_blocks.add(sight.head.number)
