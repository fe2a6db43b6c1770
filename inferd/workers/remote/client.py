"""Calls of one worker's API, each signed by the operator."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Protocol

from indexer.rpc.endpoint import seconds_of
from indexer.types import Address, Hash32
from inferd.net.guarded import Answer, Forbidden, Limits, checked_url
from inferd.protocol.typed_data import DigestSigner
from inferd.protocol.worker_api import (
    HEALTH,
    PULL,
    BadMessage,
    ErrorBody,
    Heartbeat,
    SignedHeartbeat,
    decode,
)
from inferd.protocol.worker_api_signing import (
    ANSWER_HEADER,
    BadHeartbeat,
    OperatorRequest,
    authorization,
    body_hash,
    checked_heartbeat,
    is_vouched_for,
)

_VALID_S = 30.0
"""How long a signed request may be on its way."""
_MAX_SMALL_ANSWER_BYTES = 256 * 1024
_CODE = re.compile(r"[a-z_]{1,32}\Z")


@dataclass(frozen=True, slots=True)
class Operator:
    """Who asks, and of which deployment."""

    address: Address
    signer: DigestSigner
    api_domain: Hash32
    """EIP-712 domain of the worker API."""
    results_domain: Hash32
    """EIP-712 domain of the deployment's InferenceResults."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A verified heartbeat, and when it came by this machine's clocks."""

    heartbeat: Heartbeat
    sent_ms: float
    """Milliseconds since the epoch."""
    received_ms: float
    at_s: float
    """Monotonic seconds."""


class NoBeat(Exception):
    """The worker gave no heartbeat that can be believed. `reason` is in words of ours."""

    def __init__(self, reason: str, *, clock_s: float | None = None) -> None:
        """`clock_s` is what its clock may be, in seconds since the epoch, where it refused us."""
        super().__init__(reason)
        self.reason = reason
        self.clock_s = clock_s


class Carrier(Protocol):
    """Brings requests to workers and their answers back, as a GuardedClient does over HTTP."""

    async def call(
        self,
        method: str,
        url: str,
        limits: Limits,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        repeatable: bool = True,
    ) -> Answer:
        """Raises an ExchangeError."""
        ...


class WorkerClient:
    """Raises an ExchangeError from every method."""

    def __init__(
        self,
        carrier: Carrier,
        endpoint: str,
        worker: Address,
        operator: Operator,
        *,
        skew_s: Callable[[], float] = lambda: 0.0,
        timeout_s: float = 10.0,
    ) -> None:
        """`skew_s` is how far the worker's clock is ahead; `timeout_s` is for each of connecting,
        beginning an answer and ending it. Raises Forbidden for a URL that cannot be used."""
        if endpoint != PULL:
            _check_endpoint(endpoint)
        self.endpoint = endpoint
        self.operator = operator
        self.worker = worker
        self._base = endpoint.rstrip("/")
        self._carrier = carrier
        self._skew_s = skew_s
        self._timeout_s = timeout_s

    async def call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        wait_s: float = 0.0,
        max_bytes: int = _MAX_SMALL_ANSWER_BYTES,
        nonce: Hash32 | None = None,
    ) -> Answer:
        """`target` is path and query from /v1/ on; `wait_s` is how long the worker may take beyond
        the usual. The worker refuses a nonce it has seen, so each call is sent once."""
        request = OperatorRequest(
            method=method,
            target=target,
            body_hash=body_hash(body),
            worker=self.worker,
            nonce=nonce or Hash32(secrets.token_bytes(32)),
            expires_at_s=int(time.time() + self._skew_s() + _VALID_S),
        )
        operator = self.operator
        signature = operator.signer.sign(request.digest(operator.api_domain))
        limits = Limits(
            max_bytes,
            connect_s=self._timeout_s,
            head_s=self._timeout_s + wait_s,
            body_s=self._timeout_s,
        )
        return await self._carrier.call(
            method,
            self._base + target,
            limits,
            headers={
                "authorization": authorization(request, operator.address, signature),
                "content-type": "application/json",
            },
            body=body or None,
            repeatable=False,
        )

    def vouched_for(self, answer: Answer, nonce: Hash32) -> bool:
        """Whether the worker itself said all of this, in answer to the call with that nonce."""
        return is_vouched_for(
            answer.headers.get(ANSWER_HEADER, ""),
            answer.body,
            nonce=nonce,
            worker=self.worker,
            domain=self.operator.api_domain,
        )

    async def beat(self) -> Beat:
        """Raises NoBeat too."""
        nonce = Hash32(secrets.token_bytes(32))
        sent_ms = time.time() * 1000.0
        answer = await self.call("GET", HEALTH, nonce=nonce)
        received_ms, at_s = time.time() * 1000.0, time.monotonic()
        if answer.status != 200:
            raise NoBeat(refusal_words(answer), clock_s=_date_s(answer))
        try:
            signed = decode(answer.body, SignedHeartbeat)
            heartbeat = checked_heartbeat(
                signed, nonce=nonce, worker=self.worker, domain=self.operator.api_domain
            )
        except BadMessage:
            raise NoBeat("its heartbeat cannot be read") from None
        except BadHeartbeat:
            raise NoBeat("its heartbeat is not signed by its key, or answers another one") from None
        return Beat(heartbeat, sent_ms, received_ms, at_s)


def _check_endpoint(url: str) -> None:
    parts = checked_url(url)
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise Forbidden("the URL has a query or a fragment")


def error_code(answer: Answer) -> str:
    """The code of an answer that is none; empty where there is none that can be shown."""
    try:
        code = decode(answer.body, ErrorBody).code
    except BadMessage:
        return ""
    return code if _CODE.match(code) else ""


def refusal_words(answer: Answer) -> str:
    """What it said instead of an answer, without its own words: these may quote an input."""
    code = error_code(answer)
    if code == "unauthorised":
        return "it does not take this operator's requests (HTTP 401)"
    return f"it answers with HTTP {answer.status}" + (f" ({code})" if code else "")


def retry_after_s(answer: Answer) -> float:
    """When it wants to be asked again; 0 where it does not say."""
    return seconds_of(answer.headers.get("Retry-After"))


def _date_s(answer: Answer) -> float | None:
    try:
        then = parsedate_to_datetime(answer.headers.get("Date", ""))
    except (ValueError, OverflowError):
        return None
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
