"""One JSON-RPC endpoint over HTTP."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

import aiohttp

from indexer.errors import BadRpcUrl, RpcUnreachable
from indexer.rpc.types import RpcAnswerTooLarge, RpcMalformed, RpcRateLimited, RpcTimeout

MAX_ANSWER_BYTES = 64 * 1024 * 1024
_HELP = "start the node, or correct `rpc_urls`; inferd goes on by itself once an endpoint answers"
_CHUNK_BYTES = 256 * 1024
_SECRET_MIN_LENGTH = 6
_STALE = (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError)
"""What a kept-alive connection raises that the server closed meanwhile: worth one more try."""


class Endpoint:
    """Posts bodies to one URL. Only `shown` (scheme://host:port) may appear in any text."""

    def __init__(
        self, url: str, *, timeout_s: float, max_answer_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        """Raises BadRpcUrl."""
        self._url = url
        self.shown, self._secrets = _shown_and_secrets(url)
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._session: aiohttp.ClientSession | None = None

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
        async with session.post(self._url, data=body, allow_redirects=False) as response:
            answer = await self._bounded(response)
        status = response.status
        if status == 200:
            return answer
        if status == 429:
            raise RpcRateLimited(
                f"{self.shown} asks for fewer calls (HTTP 429)",
                help_text="add endpoints to `rpc_urls`, or use one with a higher limit",
            )
        if status == 413:
            raise RpcAnswerTooLarge(
                f"{self.shown} refuses the size of the call or its answer (HTTP 413)",
                help_text="smaller ranges are tried by themselves; a lone block that is refused"
                " needs another endpoint",
            )
        if 400 <= status < 500 and answer.lstrip()[:1] in {b"{", b"["}:
            return answer  # Some nodes send their error objects under an HTTP error.
        raise RpcUnreachable(f"{self.shown} answers with HTTP {status}", help_text=_HELP)

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

    def without_secrets(self, text: str) -> str:
        """The node's own text, short, and without what our URL keeps secret."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text[:300]

    def _too_large(self) -> RpcAnswerTooLarge:
        return RpcAnswerTooLarge(
            f"{self.shown} answered with more than {self._max_answer_bytes} bytes",
            help_text="smaller ranges are tried by themselves",
        )

    def _translated(self, error: Exception) -> RpcUnreachable:
        # Texts of aiohttp may hold the URL: only the kind of error and the system's own text pass.
        if isinstance(error, TimeoutError):
            return RpcTimeout(
                f"{self.shown} does not answer within {self._timeout_s:g} s", help_text=_HELP
            )
        cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
        text = cause.strerror if isinstance(cause, OSError) else None
        return RpcUnreachable(
            f"{self.shown} does not answer: {self.without_secrets(text or type(error).__name__)}",
            help_text=_HELP,
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                headers={"content-type": "application/json"},
                connector=aiohttp.TCPConnector(limit=32),
                read_bufsize=1 << 20,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _shown_and_secrets(url: str) -> tuple[str, tuple[str, ...]]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        raise BadRpcUrl(
            "an RPC endpoint is not an http:// or https:// URL with a host",
            help_text="correct `rpc_urls`, for example http://127.0.0.1:8545",
        )
    shown_host = f"[{host}]" if ":" in host else host
    shown = f"{parts.scheme}://{shown_host}" + (f":{port}" if port else "")
    candidates = [parts.username, parts.password, *parts.path.split("/")]
    candidates += [value for _, value in parse_qsl(parts.query)]
    secrets = {text for text in candidates if text and len(text) >= _SECRET_MIN_LENGTH}
    secrets |= {unquote(text) for text in secrets}
    return shown, tuple(sorted(secrets, key=len, reverse=True))
