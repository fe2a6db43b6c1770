"""Who may ask: the check of a request's signature, its window, its nonce and the operator's rate.

Pure: the time is given. A request that was heard before a restart of the agent is heard once more
within its window: all requests are idempotent, and a heartbeat names the nonce it answers.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from enum import StrEnum

from indexer.types import Address, Hash32
from inferd.protocol.worker_api_signing import (
    BadCredentials,
    Credentials,
    check_signature,
    parse_authorization,
)


class Doubt(StrEnum):
    """Why a request is not believed. For metrics; whoever asks is told in words."""

    NO_HEADER = "no_header"
    BAD_HEADER = "bad_header"
    UNKNOWN_OPERATOR = "unknown_operator"
    EXPIRED = "expired"
    TOO_FAR_AHEAD = "too_far_ahead"
    BAD_SIGNATURE = "bad_signature"
    BAD_BODY = "bad_body"
    REPLAYED = "replayed"


class Unauthorised(Exception):
    """The request is not one of a trusted operator."""

    def __init__(self, doubt: Doubt, message: str) -> None:
        super().__init__(message)
        self.doubt = doubt
        self.message = message


class TooOften(Exception):
    """The operator asks too often; `retry_after_s` says when a request is taken again."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"asked too often, try again in {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom a worker answers, and for how long one request is good."""

    worker: Address
    domain: Hash32
    """Of the worker API, not of results."""
    operators: frozenset[Address]
    window_s: int
    skew_s: int
    """How far the operator's clock may be off, either way."""


def judge(
    trust: Trust, header: str | None, method: str, target: str, *, now_s: float
) -> Credentials:
    """Who asks, by the request's header alone. Raises Unauthorised.

    What is cheap comes first: a stranger costs no curve operation.
    """
    if header is None:
        raise Unauthorised(Doubt.NO_HEADER, "the request has no Authorization header")
    try:
        credentials = parse_authorization(header)
    except BadCredentials as error:
        raise Unauthorised(Doubt.BAD_HEADER, str(error)) from None
    if credentials.operator not in trust.operators:
        raise Unauthorised(
            Doubt.UNKNOWN_OPERATOR, f"0x{credentials.operator.hex()} is no operator of this worker"
        )
    ahead_s = credentials.expires_at_s - now_s
    if ahead_s < -trust.skew_s:
        raise Unauthorised(Doubt.EXPIRED, f"the request expired {-ahead_s:.0f} s ago by this clock")
    if ahead_s > trust.window_s + trust.skew_s:
        raise Unauthorised(
            Doubt.TOO_FAR_AHEAD, f"the request expires more than {trust.window_s} s ahead"
        )
    try:
        check_signature(credentials, method, target, trust.worker, trust.domain)
    except BadCredentials as error:
        raise Unauthorised(Doubt.BAD_SIGNATURE, str(error)) from None
    return credentials


class Gate:
    """`judge`, with memory: no nonce twice, and no operator beyond its rate.

    It remembers nonces of trusted operators only, each until its request has expired: with the
    rate, that bounds them to `rate_per_s * (window_s + 2 * skew_s) + burst` an operator.
    """

    def __init__(self, trust: Trust, *, rate_per_s: float, burst: int) -> None:
        self._trust = trust
        self._seen: set[tuple[Address, Hash32]] = set()
        self._ends: list[tuple[float, tuple[Address, Hash32]]] = []
        self._buckets = {
            operator: _Bucket(rate_per_s, burst, burst) for operator in trust.operators
        }

    def __len__(self) -> int:
        """Nonces that are remembered."""
        return len(self._seen)

    def enter(self, header: str | None, method: str, target: str, *, now_s: float) -> Credentials:
        """Raises Unauthorised or TooOften."""
        credentials = judge(self._trust, header, method, target, now_s=now_s)
        while self._ends and self._ends[0][0] < now_s:
            self._seen.discard(heapq.heappop(self._ends)[1])
        nonce = credentials.operator, credentials.nonce
        if nonce in self._seen:
            raise Unauthorised(Doubt.REPLAYED, "the request's nonce was used before")
        self._buckets[credentials.operator].take(now_s)
        self._seen.add(nonce)
        heapq.heappush(self._ends, (credentials.expires_at_s + self._trust.skew_s, nonce))
        return credentials


@dataclass(slots=True)
class _Bucket:
    per_s: float
    burst: int
    tokens: float
    at_s: float = field(default=0.0)

    def take(self, now_s: float) -> None:
        """Raises TooOften. A clock that goes back gives nothing, and takes nothing."""
        self.tokens = min(self.burst, self.tokens + max(0.0, now_s - self.at_s) * self.per_s)
        self.at_s = now_s
        if self.tokens < 1:
            raise TooOften((1 - self.tokens) / self.per_s)
        self.tokens -= 1
