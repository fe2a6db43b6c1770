"""The agent's HTTP: who asks is judged by the header alone, then the body is read, then answered.

aiohttp's low-level server and not FastAPI, which the node's API has: a handler must see a request
before its body is read, the raw target as it was signed, and the body's bytes as they came, and
there is no page of documentation to make for five paths.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncIterable, Callable, Mapping
from typing import Protocol

import msgspec
import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from inferd.protocol.worker_api import (
    HEALTH,
    JOBS,
    MAX_WAIT_MS,
    SIGN,
    STATUS,
    BadMessage,
    ErrorBody,
    ErrorCode,
    JobGone,
    JobId,
    JobRequest,
    JobRunning,
    SignAnswer,
    SignRequest,
    as_hex,
    decode,
    encode,
)
from inferd.protocol.worker_api_signing import ANSWER_HEADER, Credentials, body_hash
from inferd.workers.job import RefusedToSign, WorkerFailed
from inferd.workers.service import metrics
from inferd.workers.service.auth import Doubt, Gate, TooOften, Unauthorised
from inferd.workers.service.heartbeat import Pulse
from inferd.workers.service.jobs import Computes, Jobs, Unanswered

_KEEPALIVE_S = 75.0
"""Also within which a request's headers must have come."""
_LINGER_S = 1.0
"""For which a body that nobody reads is taken, so that its sender hears why."""
_HASHED_AT_ONCE_BYTES = 262_144
"""Up to which the event loop hashes a body itself: it takes 3 ms a megabyte."""
_LEAST_BYTES_PER_S = 100_000
"""At which a large answer must be read."""
_MAX_LINE_BYTES = 4_096
_MAX_HEADERS = 64
_WAIT = re.compile(r"wait_ms=(0|[1-9][0-9]{0,5})", re.ASCII)

log = structlog.get_logger("agent")


class Content(Protocol):
    """A request's body, as it comes."""

    def iter_any(self) -> AsyncIterable[bytes]: ...


class Asked(Protocol):
    """What is looked at of a request: aiohttp's own, or one that did not come over HTTP."""

    @property
    def method(self) -> str: ...
    @property
    def raw_path(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def content_length(self) -> int | None: ...
    @property
    def content(self) -> Content: ...
    @property
    def remote(self) -> str | None: ...


class Api:
    """Handles one request after the other, of any connection."""

    def __init__(
        self,
        worker: Computes,
        jobs: Jobs,
        pulse: Pulse,
        gate: Gate,
        *,
        max_body_bytes: int,
        body_timeout_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since the epoch, to be compared with operators'."""
        self._worker = worker
        self._jobs = jobs
        self._pulse = pulse
        self._gate = gate
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s
        self._clock = clock

    async def handle(self, request: web.BaseRequest) -> web.Response:
        response = await self.respond(request)
        size_bytes = len(response.body) if isinstance(response.body, bytes) else 0
        within_s = self._body_timeout_s + size_bytes / _LEAST_BYTES_PER_S
        try:
            async with asyncio.timeout(within_s):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            # Whoever does not read would hold the answer in memory for as long as it likes.
            if request.transport is not None:
                request.transport.abort()
        return response

    async def respond(self, request: Asked) -> web.Response:
        """The answer, whatever it is; nothing of it is sent."""
        kind = _kind(request.raw_path)
        try:
            response = await self._answer(request, kind)
        except Unauthorised as doubt:
            metrics.DOUBTS.labels(str(doubt.doubt)).inc()
            log.debug("request_refused", doubt=str(doubt.doubt), peer=request.remote)
            response = _error(ErrorCode.UNAUTHORISED, doubt.message)
        except TooOften as error:
            response = _error(ErrorCode.RATE, str(error), error.retry_after_s)
        except BadMessage as error:
            response = _error(ErrorCode.BAD_REQUEST, str(error))
        except Unanswered as error:
            response = _error(error.code, error.message, error.retry_after_s)
        except WorkerFailed as error:
            response = _error(ErrorCode.FAILED, error.reason)
        except RefusedToSign as error:
            response = _error(ErrorCode.REFUSED_TO_SIGN, str(error))
        metrics.REQUESTS.labels(kind, str(response.status)).inc()
        return response

    async def _answer(self, request: Asked, kind: str) -> web.Response:
        target = request.raw_path
        header = request.headers.get("Authorization")
        credentials = self._gate.enter(header, request.method, target, now_s=self._clock())
        metrics.NONCES.set(len(self._gate))
        body = await self._body(request, credentials)
        path, _, query = target.partition("?")
        operator = credentials.operator
        match request.method, kind:
            case "POST", "jobs" if path == JOBS and not query:
                return await self._submit(credentials, decode(body, JobRequest))
            case "GET", "job":
                return await self._ask(credentials, _job_id(path), _wait_s(query))
            case "DELETE", "job" if not query:
                await self._jobs.drop(operator, _job_id(path))
                return _json(JobGone())
            case "POST", "sign" if not query:
                signature = await self._worker.sign_group(decode(body, SignRequest).items)
                return _json(SignAnswer(as_hex(signature)))
            case "GET", "health" if not query:
                return _json(self._pulse.beat(credentials.nonce))
        raise BadMessage("there is nothing at this path with this method")

    async def _submit(self, asker: Credentials, asked: JobRequest) -> web.Response:
        await self._jobs.submit(asker.operator, asked)
        return await self._ask(asker, asked.id, asked.wait_ms / 1000)

    async def _ask(self, asker: Credentials, job: JobId, wait_s: float) -> web.Response:
        answer = await self._jobs.answer(asker.operator, job, wait_s)
        if isinstance(answer, JobRunning):
            return _json(answer, status=202)
        body = encode(answer)
        response = _whole(body)
        response.headers[ANSWER_HEADER] = (
            self._pulse.vouch(asker.nonce, body)
            if len(body) <= _HASHED_AT_ONCE_BYTES
            else await asyncio.to_thread(self._pulse.vouch, asker.nonce, body)
        )
        return response

    async def _body(self, request: Asked, credentials: Credentials) -> bytes:
        """The body that was signed. Raises Unanswered and Unauthorised."""
        length = request.content_length
        if length is not None and length > self._max_body_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self._body_timeout_s):
                async for chunk in request.content.iter_any():
                    body += chunk
                    if len(body) > self._max_body_bytes:
                        raise self._too_large()
        except TimeoutError:
            raise BadMessage(f"the body did not come within {self._body_timeout_s:.0f} s") from None
        except web.RequestPayloadError:
            raise BadMessage("the body's encoding is broken") from None
        whole = bytes(body)
        hashed = (
            body_hash(whole)
            if len(whole) <= _HASHED_AT_ONCE_BYTES
            else await asyncio.to_thread(body_hash, whole)
        )
        if hashed != credentials.body_hash:
            raise Unauthorised(Doubt.BAD_BODY, "the body is another one than was signed")
        return whole

    def _too_large(self) -> Unanswered:
        return Unanswered(
            ErrorCode.TOO_LARGE, f"a body has at most {self._max_body_bytes} bytes here"
        )


def api_server(api: Api) -> web.Server:
    """Its protocol, with limits on what a client may send and for how long it may be silent."""
    return web.Server(
        api.handle,
        # Whoever hangs up does not wait any more; what is computed goes on.
        handler_cancellation=True,
        keepalive_timeout=_KEEPALIVE_S,
        lingering_time=_LINGER_S,
        max_line_size=_MAX_LINE_BYTES,
        max_field_size=_MAX_LINE_BYTES,
        max_headers=_MAX_HEADERS,
        # A small body must not become a large one.
        auto_decompress=False,
        access_log=None,
    )


def connections_at_most(server: web.Server, most: int) -> Callable[[], asyncio.Protocol]:
    """Makes the protocol of each new connection; of one too many, one that hangs up."""

    def made() -> asyncio.Protocol:
        open_now = len(server.connections)
        metrics.CONNECTIONS.set(open_now)
        if open_now >= most:
            return _HangsUp()
        handler: RequestHandler = server()
        return handler

    return made


class _HangsUp(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


async def metrics_page(request: web.BaseRequest) -> web.Response:
    """What a Prometheus server reads."""
    if request.method != "GET" or request.path != "/metrics":
        return web.Response(status=404)
    return web.Response(
        body=generate_latest(metrics.REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )


def _kind(target: str) -> str:
    """Of a path, for the dispatch and for metrics: a stranger cannot add to it."""
    path = target.partition("?")[0]
    if path == JOBS:
        return "jobs"
    if path.startswith(JOBS + "/"):
        return "job"
    return {SIGN: "sign", HEALTH: "health"}.get(path, "other")


def _job_id(path: str) -> JobId:
    return JobId.parse(path.removeprefix(JOBS + "/"))


def _wait_s(query: str) -> float:
    """Raises BadMessage."""
    if not query:
        return 0.0
    found = _WAIT.fullmatch(query)
    if found is None or int(found[1]) > MAX_WAIT_MS:
        raise BadMessage(f"the query is wait_ms with at most {MAX_WAIT_MS}")
    return int(found[1]) / 1000


def _json(message: msgspec.Struct, *, status: int = 200) -> web.Response:
    return _whole(encode(message), status=status)


def _whole(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _error(code: ErrorCode, message: str, retry_after_s: float | None = None) -> web.Response:
    response = _json(ErrorBody(str(code), message), status=STATUS[code])
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))
    return response
