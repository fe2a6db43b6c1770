"""New heads over a websocket: a trigger to look at the chain, never a source of what is there."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count

import aiohttp
import msgspec
import structlog

from indexer.backoff import Backoff
from indexer.rpc import wire
from indexer.rpc.exchange import call_object
from indexer.rpc.member import ChainIdentity
from indexer.rpc.trouble import words_of
from indexer.rpc.url import EndpointUrl
from indexer.together import end

_CONNECT_S = 10.0
_FIRST_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 30.0
_QUIET_INTERVALS = 5
_MIN_QUIET_S = 15.0
_FIRST_QUIET_S = 60.0
"""Before a block interval is known."""
_INTERVAL_WEIGHT = 0.2
_MAX_MESSAGE_BYTES = 1 << 20

log = structlog.get_logger("indexer")


class _Message(msgspec.Struct):
    """An answer, or a notification."""

    id: int | str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    method: str | None = None
    error: wire.ErrorObject | None = None


_decoder = msgspec.json.Decoder(_Message)


class _Broken(Exception):
    """The socket is of no use any more; the text says why and holds no secret."""


@dataclass(frozen=True, slots=True)
class HeadsStatus:
    """How the trigger is."""

    endpoint: str
    """scheme://host:port of the socket in use or tried last."""
    live: bool
    """Subscribed, and heads come."""
    reason: str | None
    """Why it is not live, or was not before it was connected again."""
    reconnects: int
    """How often a socket was lost, or could not be opened."""


def quiet_limit_s(interval_s: float | None) -> float:
    """How long a socket may say nothing before it counts as dead: five block intervals, at least
    15 s; a minute while the interval is not known."""
    if interval_s is None:
        return _FIRST_QUIET_S
    return max(_MIN_QUIET_S, _QUIET_INTERVALS * interval_s)


class HeadTrigger:
    """Subscribes to `newHeads` at the first of its endpoints that works.

    Losing all of them loses nothing but time: whoever waits here also wakes by its own poll
    interval. So trouble is shown in `status` and retried, and never raised.
    """

    def __init__(
        self,
        urls: Sequence[str],
        identity: ChainIdentity,
        *,
        quiet_limit: Callable[[float | None], float] = quiet_limit_s,
    ) -> None:
        """Raises BadRpcUrl."""
        self._urls = [
            EndpointUrl(url, schemes=("ws", "wss"), setting="rpc_ws_urls") for url in urls
        ]
        self._identity = identity
        self._quiet_limit = quiet_limit
        self._rung = asyncio.Event()
        self._status = HeadsStatus(self._urls[0].shown, live=False, reason=None, reconnects=0)
        self._interval_s: float | None = None

    @property
    def status(self) -> HeadsStatus:
        return self._status

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Callable[[float], Awaitable[None]]]:
        """While it is entered, the socket is kept open. Gives a wait for the next head, which ends
        after the given seconds in any case; a head that came since the last wait ends it at once.
        """
        task = asyncio.create_task(self._listen_for_ever(), name="new-heads")
        try:
            yield self._wait
        finally:
            await end(task)

    async def _wait(self, timeout_s: float) -> None:
        # Not wait_for, which forgets a cancellation that comes together with a head.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        self._rung.clear()

    async def _listen_for_ever(self) -> None:
        backoff = Backoff(_FIRST_BACKOFF_S, _MAX_BACKOFF_S)
        told: dict[str, str] = {}
        for attempt in count():
            url = self._urls[attempt % len(self._urls)]
            try:
                await self._listen(url, backoff)
            except (_Broken, aiohttp.ClientError, OSError) as error:
                reason = str(error) if isinstance(error, _Broken) else words_of(error)
                # Once for each trouble of each: they are tried for ever.
                if self._status.live or told.get(url.secret) != reason:
                    log.warning("heads_lost", endpoint=url.shown, because=reason)
                    told[url.secret] = reason
                self._status = HeadsStatus(url.shown, False, reason, attempt + 1)
            await asyncio.sleep(backoff.next_s())

    async def _listen(self, url: EndpointUrl, backoff: Backoff) -> None:
        """Until the socket breaks. Raises _Broken and what aiohttp raises."""
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            async with _soon():
                socket = await session.ws_connect(
                    url.secret, max_msg_size=_MAX_MESSAGE_BYTES, heartbeat=_MIN_QUIET_S
                )
            async with socket:
                async with _soon():
                    await self._check_chain(socket, url)
                    await _ask(socket, url, "eth_subscribe", "newHeads")
                log.info("heads_live", endpoint=url.shown)
                self._status = HeadsStatus(url.shown, True, None, self._status.reconnects)
                self._rung.set()
                await self._take_heads(socket, backoff)

    async def _check_chain(self, socket: aiohttp.ClientWebSocketResponse, url: EndpointUrl) -> None:
        chain_id = await _ask(socket, url, "eth_chainId")
        genesis = await _ask(socket, url, "eth_getBlockByNumber", "0x0", False)
        try:
            first = wire.parse_header(genesis)
            same = wire.parse_quantity(chain_id) == self._identity.chain_id and (
                first is None or first.hash == self._identity.genesis_hash
            )
        except (ValueError, msgspec.DecodeError) as error:
            raise _Broken(f"it cannot be understood: {url.without_secrets(str(error))}") from None
        if not same:
            raise _Broken("it serves another chain")

    async def _take_heads(self, socket: aiohttp.ClientWebSocketResponse, backoff: Backoff) -> None:
        last_s: float | None = None
        while True:
            limit_s = self._quiet_limit(self._interval_s)
            try:
                async with asyncio.timeout(limit_s):
                    message = await _receive(socket)
            except TimeoutError:
                raise _Broken(f"it has told of no block for {limit_s:g} s") from None
            if message.method != "eth_subscription":
                continue
            backoff.reset()
            self._rung.set()
            now_s = time.monotonic()
            if last_s is not None:
                before_s = now_s - last_s if self._interval_s is None else self._interval_s
                self._interval_s = before_s + _INTERVAL_WEIGHT * (now_s - last_s - before_s)
            last_s = now_s


@contextlib.asynccontextmanager
async def _soon() -> AsyncIterator[None]:
    """Raises _Broken where what is inside takes too long."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            yield
    except TimeoutError:
        raise _Broken(f"it does not answer within {_CONNECT_S:g} s") from None


async def _ask(
    socket: aiohttp.ClientWebSocketResponse, url: EndpointUrl, method: str, *params: object
) -> msgspec.Raw:
    """One call's result; what comes before its answer is passed over. Raises _Broken."""
    await socket.send_str(msgspec.json.encode(call_object(1, method, params)).decode())
    while True:
        message = await _receive(socket)
        if message.method is not None:
            continue
        if message.error is not None:
            text = url.without_secrets(message.error.message)
            raise _Broken(f"it refuses {method}: {text} (code {message.error.code})")
        return message.result


async def _receive(socket: aiohttp.ClientWebSocketResponse) -> _Message:
    """Raises _Broken."""
    received = await socket.receive()
    if received.type not in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
        raise _Broken("it closed the socket")
    try:
        return _decoder.decode(received.data)
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise _Broken("it sent what is no JSON-RPC") from None
