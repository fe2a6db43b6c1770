"""HTTP with servers that strangers name.

No redirects, no proxies of the environment, no cookies, no compressed answers; limits on the time
to connect, to begin an answer, and to end it (which a slow drip does not meet), and on its size.
Names are looked up in threads of their own, so that slow name servers of strangers hold up no other
work of this process.
The address is judged where the socket is made: what was judged is what is connected to, whatever
the name means a moment later.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from urllib.parse import SplitResult, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from indexer.rpc.trouble import words_of
from inferd.net.reach import Reach

MAX_URL_BYTES = 2048
_CHUNK_BYTES = 64 * 1024
_LOOKUPS_AT_ONCE = 16
_KEPT_OPEN_S = 30.0
_LOOKED_UP_AGAIN_AFTER_S = 30
_STALE = (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError)
"""What a kept-alive connection raises that the server closed meanwhile."""


class ExchangeError(Exception):
    """A call that gave no answer. `reason` is for the operator and holds nothing of the URL."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unreachable(ExchangeError):
    """No connection, or one that broke."""


class Forbidden(ExchangeError):
    """The URL, or what its name means, is not for strangers to name."""


class TooSlow(ExchangeError):
    """It took longer than a limit allows."""


class TooLarge(ExchangeError):
    """The answer has more bytes than a limit allows."""


class Malformed(ExchangeError):
    """What came is no HTTP, or an encoding that was not asked for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one call. Their sum is the most it can take."""

    max_bytes: int
    """Of the answer's body."""
    connect_s: float = 5.0
    """Looking up the name, connecting, TLS, and waiting for a free connection."""
    head_s: float = 10.0
    """Sending the request, and waiting for the answer's first line and headers."""
    body_s: float = 20.0
    """Reading the answer's body, from its headers to its last byte."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, whatever its status. A redirect is an answer like any other."""

    status: int
    headers: Mapping[str, str]
    """By names in any case."""
    body: bytes


def checked_url(text: str) -> SplitResult:
    """The parts of an http(s) URL that a stranger gave.

    Raises Forbidden for anything else, and for URLs with credentials, white space or control
    characters.
    """
    if len(text.encode(errors="replace")) > MAX_URL_BYTES:
        raise Forbidden(f"the URL has more than {MAX_URL_BYTES} bytes")
    if any(not char.isprintable() or char.isspace() for char in text) or "\\" in text:
        raise Forbidden("the URL has white space, control characters or backslashes")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError:
        raise Forbidden("the URL cannot be read") from None
    if parts.scheme not in {"http", "https"}:
        raise Forbidden("the URL is not http:// or https://")
    if not host or port == 0:
        raise Forbidden("the URL has no host, or port 0")
    if parts.username is not None or parts.password is not None:
        raise Forbidden("the URL has a user name or a password")
    return parts


class GuardedClient:
    """Calls URLs of strangers. One for all of them; `close` it at the end."""

    def __init__(self, reach: Reach, *, connections: int = 100, per_host: int = 16) -> None:
        """At most so many connections are open at a time, to all hosts and to each."""
        self._reach = reach
        self._connections = connections
        self._per_host = per_host
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> GuardedClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(
        self, url: str, limits: Limits, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """As `call`."""
        return await self.call("GET", url, limits, headers=headers)

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
        """One exchange; raises an ExchangeError. The path is sent as it is written.

        A `repeatable` call is sent once more where a connection that was kept open turns out to be
        closed; any other is sent once.
        """
        checked_url(url)
        try:
            try:
                return await self._call(method, url, limits, headers, body, repeatable)
            except _STALE:
                if not repeatable:
                    raise
                return await self._call(method, url, limits, headers, body, repeatable)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _translated(error) from None

    async def _call(
        self,
        method: str,
        url: str,
        limits: Limits,
        headers: Mapping[str, str] | None,
        body: bytes | None,
        repeatable: bool,
    ) -> Answer:
        session = self._opened()
        timeout = aiohttp.ClientTimeout(total=None, connect=limits.connect_s)
        try:
            async with asyncio.timeout(limits.connect_s + limits.head_s) as head:
                response = await session.request(
                    method,
                    URL(url, encoded=True),
                    data=body,
                    headers={**(headers or {}), "accept-encoding": "identity"},
                    timeout=timeout,
                    allow_redirects=False,
                    # aiohttp itself sends GET and DELETE again.
                    middlewares=() if repeatable else (_Once(),),
                )
        except TimeoutError:
            within_s = limits.connect_s + limits.head_s if head.expired() else limits.connect_s
            what = "no answer" if head.expired() else "no connection"
            raise TooSlow(f"{what} within {within_s:g} s") from None
        try:
            async with asyncio.timeout(limits.body_s):
                received = await _bounded(response, limits.max_bytes)
        except TimeoutError:
            raise TooSlow(f"the answer does not end within {limits.body_s:g} s") from None
        finally:
            if not response.content.at_eof():  # Its connection cannot be used again.
                response.close()
            response.release()
        return Answer(response.status, response.headers, received)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections,
                    limit_per_host=self._per_host,
                    resolver=_Resolver(self._reach),
                    socket_factory=self._socket,
                    keepalive_timeout=_KEPT_OPEN_S,
                    ttl_dns_cache=_LOOKED_UP_AGAIN_AFTER_S,
                ),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                read_bufsize=_CHUNK_BYTES,
            )
        return self._session

    def _socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, target = info
        refusal = self._reach.refusal(str(target[0]))
        if refusal is not None:
            raise _ForbiddenAddress(refusal)
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made


class _Once:
    """Lets one request through: its signature is good for one."""

    def __init__(self) -> None:
        self._sent = False

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if self._sent:
            raise aiohttp.ServerDisconnectedError
        self._sent = True
        return await handler(request)


class _ForbiddenAddress(OSError):
    """Passes through aiohttp as any failure to connect does."""

    def __init__(self, refusal: str) -> None:
        super().__init__(refusal)
        self.refusal = refusal


class _Resolver(AbstractResolver):
    """Names to addresses, without those that may not be reached."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._free = asyncio.Semaphore(_LOOKUPS_AT_ONCE)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        await self._free.acquire()
        found = await _beside(partial(_look_up, host, port, family), self._free.release)
        refusals = {one["host"]: self._reach.refusal(one["host"]) for one in found}
        allowed = [one for one in found if refusals[one["host"]] is None]
        if not allowed and found:
            raise _ForbiddenAddress(refusals[found[0]["host"]] or "")
        return allowed

    async def close(self) -> None:
        """Lookups that hang end by themselves."""


def _beside(
    call: Callable[[], list[ResolveResult]], ended: Callable[[], None]
) -> asyncio.Future[list[ResolveResult]]:
    """The call's outcome, from a thread that does not hold up the end of the process, as those of
    an executor do. `ended` is called in the event loop when the thread is free, also where nobody
    waits for it any more."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[ResolveResult]] = loop.create_future()

    def tell(found: list[ResolveResult] | None, error: Exception | None) -> None:
        ended()
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found or [])

    def work() -> None:
        found, trouble = None, None
        try:
            found = call()
        except Exception as error:
            trouble = error
        with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
            loop.call_soon_threadsafe(tell, found, trouble)

    threading.Thread(target=work, name="lookup", daemon=True).start()
    return future


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    return [
        ResolveResult(
            hostname=host,
            host=str(target[0]),
            port=int(target[1]),
            family=found,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for found, _, protocol, _, target in infos
        if found in {socket.AF_INET, socket.AF_INET6}
    ]


async def _bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise Malformed("the answer is compressed, which was not asked for")
    if (response.content_length or 0) > max_bytes:
        raise TooLarge(f"the answer has more than {max_bytes} bytes")
    whole = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        whole += chunk
        if len(whole) > max_bytes:
            raise TooLarge(f"the answer has more than {max_bytes} bytes")
    return bytes(whole)


def _translated(error: Exception) -> ExchangeError:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, _ForbiddenAddress):
        return Forbidden(f"it leads to {cause.refusal}")
    if isinstance(error, TimeoutError):
        return TooSlow("no connection in time")
    if isinstance(error, aiohttp.InvalidURL):
        return Forbidden("the URL cannot be read")
    if isinstance(error, aiohttp.ClientPayloadError):  # nothing is decoded that could be wrong
        return Unreachable("the connection broke within the answer")
    if isinstance(error, aiohttp.ClientResponseError | ValueError):
        return Malformed(f"what it answers is no HTTP ({type(error).__name__})")
    return Unreachable(words_of(error))
