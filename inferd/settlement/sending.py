"""The only place where signed bytes leave for the chain."""

from __future__ import annotations

import structlog

from indexer.errors import RpcUnreachable
from indexer.rpc import RpcError
from inferd.settlement.chain import ChainRpc, Sight
from inferd.settlement.errors import SendError, classify
from inferd.settlement.outbox import Outbox
from inferd.settlement.records import Attempt, Intent
from inferd.settlement.settings import PausedReason, SettlementStatus

_log = structlog.get_logger("settlement")

_PAUSES = {
    SendError.INSUFFICIENT_FUNDS: PausedReason.INSUFFICIENT_FUNDS,
    SendError.UNKNOWN: PausedReason.TRANSACTION_REFUSED,
    SendError.NONCE_TOO_HIGH: PausedReason.TRANSACTION_REFUSED,
}


class Sender:
    """Remembers at which block each hash was last sent; after a restart, the first it sees."""

    def __init__(
        self,
        rpc: ChainRpc,
        outbox: Outbox,
        status: SettlementStatus,
    ) -> None:
        self._rpc = rpc
        self._outbox = outbox
        self._status = status
        self._sent_at: dict[bytes, int] = {}

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
        try:
            await self._rpc.send_raw_transaction(attempt.raw)
        except RpcUnreachable as error:
            await self._outbox.mark_refused(attempt.hash, f"no answer: {error.message}")
            log.warning("send_unanswered", error=error.message)
            raise
        except RpcError as error:
            meaning = classify(error.message)
            if meaning is not SendError.ALREADY_KNOWN:
                await self._outbox.mark_refused(attempt.hash, error.message)
                self._status.last_error = error.message
                self._status.noticed = _PAUSES.get(meaning, self._status.noticed)
                log.warning("send_refused", meaning=meaning.value, error=error.message)
                return False
        await self._outbox.mark_sent(intent.id, attempt.hash)
        self._sent_at[attempt.hash] = sight.head.number
        log.info("sent", max_fee_wei=attempt.fees.max_fee_wei, kind=intent.kind)
        return True

    def blocks_since_sent(self, attempt: Attempt, sight: Sight) -> int:
        return sight.head.number - self._sent_at.setdefault(attempt.hash, sight.head.number)

    def forget(self, intent: Intent) -> None:
        """The intent is closed."""
        for attempt in intent.attempts:
            self._sent_at.pop(attempt.hash, None)
