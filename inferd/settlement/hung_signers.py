"""Workers that hang when they are asked to sign their results together.

A batch waits for its group signatures, so one worker that never answers would cost each batch its
whole time limit. It is left alone for a while instead, and its results go singly meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from indexer.types import Address
from inferd.protocol.typed_data import CompactSignature
from inferd.settlement.batch import SignGroup

_SLOW_S = 1.0
"""A failure that took so long is no better than a hang."""
_FIRST_REST_S = 15.0
_LONGEST_REST_S = 600.0

_log = structlog.get_logger("settlement")


class SignerRests(Exception):
    """The worker hung of late, and is not asked now."""


@dataclass
class _Hung:
    times: int = 0
    rests_until_s: float = 0.0
    asked: bool = False
    """Whether a question is under way that tells if it hangs still."""


class Hangs:
    """Who hung, and when each is asked again: after 15 s, then twice as long after each further
    hang, at most 10 min. One question at a time. Pure: times are monotonic seconds."""

    def __init__(self) -> None:
        self._hung: dict[Address, _Hung] = {}

    def may_ask(self, worker: Address, now_s: float) -> bool:
        """Where it may, the asker tells `hung` or `ended` what came of it."""
        hung = self._hung.get(worker)
        if hung is None:
            return True
        if hung.asked or now_s < hung.rests_until_s:
            return False
        hung.asked = True
        return True

    def hung(self, worker: Address, now_s: float) -> float:
        """It did not answer; gives for how long it is left alone, in seconds. Questions that hung
        together, as for several groups of one batch, are one hang."""
        hung = self._hung.setdefault(worker, _Hung())
        if now_s < hung.rests_until_s:
            return hung.rests_until_s - now_s
        rest_s = min(_LONGEST_REST_S, _FIRST_REST_S * 2.0 ** min(hung.times, 16))
        hung.times += 1
        hung.rests_until_s, hung.asked = now_s + rest_s, False
        return rest_s

    def ended(self, worker: Address) -> None:
        """It signed, or refused quickly: it hangs no more."""
        self._hung.pop(worker, None)


class PatientSigning:
    """Asks workers for group signatures, but not those that hang. A `SignGroup`."""

    def __init__(
        self, sign_group: SignGroup, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sign_group = sign_group
        self._clock = clock
        self._hangs = Hangs()

    async def __call__(self, worker: Address, items: bytes, /) -> CompactSignature:
        """Raises SignerRests, and what the question raises."""
        begun_s = self._clock()
        if not self._hangs.may_ask(worker, begun_s):
            raise SignerRests("it hung when it was asked last")
        try:
            signature = await self._sign_group(worker, items)
        except asyncio.CancelledError:  # Its time is over.
            self._rest(worker)
            raise
        except Exception:
            if self._clock() - begun_s >= _SLOW_S:
                self._rest(worker)
            else:
                self._hangs.ended(worker)
            raise
        self._hangs.ended(worker)
        return signature

    def _rest(self, worker: Address) -> None:
        rest_s = self._hangs.hung(worker, self._clock())
        _log.warning("signer_hangs", worker="0x" + worker.hex(), asked_again_in_s=rest_s)
