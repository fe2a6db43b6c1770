"""One JSON-RPC endpoint over HTTP."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp

from indexer.errors import RpcUnreachable
from indexer.rpc.trouble import words_of
from indexer.rpc.types import (
    RpcAnswerTooLarge,
    RpcMalformed,
    RpcRateLimited,
    RpcServerFault,
    RpcTimeout,
)
from indexer.rpc.url import EndpointUrl

MAX_ANSWER_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_MAX_RETRY_AFTER_S = 300.0
_STALE = (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError)
"""What a kept-alive connection raises that the server closed meanwhile: worth one more try."""


class Endpoint:
    """Posts bodies to one URL. Only `shown` (scheme://host:port) may appear in any text."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        setting: str = "rpc_urls",
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`setting` is what names it, for errors; `tls` whom to believe and who we are, where that
        is not the system's to say. Raises BadRpcUrl."""
        self._url = EndpointUrl(url, schemes=("http", "https"), setting=setting)
        self.setting = setting
        self.shown = self._url.shown
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self.connections = 0
        """Opened so far. Behind a new one there may be another node."""

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, body: bytes) -> bytes:
        """The answer's body, of a successful HTTP exchange or of an error that carries JSON.

        Raises RpcUnreachable or one of its kinds in indexer.rpc.types.
        """
        try:
            try:
                return await self._post(body)
            except _STALE:
                return await self._post(body)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._translated(error) from None

    async def _post(self, body: bytes) -> bytes:
        session = self._open_session()
        async with session.post(self._url.secret, data=body, allow_redirects=False) as response:
            answer = await self._bounded(response)
            retry_after = response.headers.get("retry-after")
        status = response.status
        if status == 200:
            return answer
        if status == 429 or (status == 503 and retry_after is not None):
            raise self.rate_limited(f"HTTP {status}", retry_after_s=seconds_of(retry_after))
        if status == 413:
            raise RpcAnswerTooLarge(
                f"{self.shown} refuses the size of the call or its answer (HTTP 413)",
                help_text="smaller ranges are tried by themselves; a lone block that is refused"
                " needs another endpoint",
            )
        if 400 <= status < 500 and answer.lstrip()[:1] in {b"{", b"["}:
            return answer  # Some nodes send their error objects under an HTTP error.
        kind = RpcServerFault if status >= 500 else RpcUnreachable
        raise kind(f"{self.shown} answers with HTTP {status}", help_text=self._help)

    async def _bounded(self, response: aiohttp.ClientResponse) -> bytes:
        if (response.content_length or 0) > self._max_answer_bytes:
            raise self._too_large()
        whole = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            whole += chunk
            if len(whole) > self._max_answer_bytes:
                raise self._too_large()
        return bytes(whole)

    def malformed(self, what: str) -> RpcMalformed:
        """The error for an answer of this endpoint that cannot be used."""
        return RpcMalformed(
            f"{self.shown} gave an answer that cannot be used: {self.without_secrets(what)}",
            help_text="it is retried; if it stays so, use another endpoint",
        )

    def rate_limited(self, what: str, *, retry_after_s: float = 0.0) -> RpcRateLimited:
        """The error for an endpoint that wants fewer calls, in its own words."""
        return RpcRateLimited(
            f"{self.shown} asks for fewer calls ({self.without_secrets(what)})",
            help_text=f"add endpoints to `{self.setting}`, or use one with a higher limit",
            retry_after_s=retry_after_s,
        )

    def without_secrets(self, text: str) -> str:
        """The node's own text, short, and without what our URL keeps secret."""
        return self._url.without_secrets(text)

    @property
    def _help(self) -> str:
        return (
            f"start the node, or correct `{self.setting}`; inferd goes on by itself once an"
            " endpoint answers"
        )

    def _too_large(self) -> RpcAnswerTooLarge:
        return RpcAnswerTooLarge(
            f"{self.shown} answered with more than {self._max_answer_bytes} bytes",
            help_text="smaller ranges are tried by themselves",
        )

    def _translated(self, error: Exception) -> RpcUnreachable:
        if isinstance(error, TimeoutError):
            return RpcTimeout(
                f"{self.shown} does not answer within {self._timeout_s:g} s", help_text=self._help
            )
        return RpcUnreachable(
            f"{self.shown} does not answer: {self.without_secrets(words_of(error))}",
            help_text=self._help,
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_connection_create_end.append(self._connected)
            self._session = aiohttp.ClientSession(
                trace_configs=[trace],
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                headers={"content-type": "application/json"},
                connector=aiohttp.TCPConnector(limit=32, ssl=self._tls or True),
                read_bufsize=1 << 20,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def _connected(self, *_: object) -> None:
        self.connections += 1


def seconds_of(retry_after: str | None) -> float:
    """A Retry-After header, in seconds or as a date; 0 where there is none, 300 at most."""
    if retry_after is None:
        return 0.0
    try:
        wait_s = float(retry_after)
    except ValueError:
        try:
            then = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):
            return 0.0
        if then.tzinfo is None:
            then = then.replace(tzinfo=UTC)
        wait_s = (then - datetime.now(UTC)).total_seconds()
    return min(_MAX_RETRY_AFTER_S, wait_s) if wait_s > 0 else 0.0
