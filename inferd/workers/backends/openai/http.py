"""Questions over HTTP: bounded, without redirects, and hung up as soon as nobody waits."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from indexer.errors import OperatorError
from inferd.workers.backends.choice import OpenAIOptions
from inferd.workers.backends.openai.answer import DONE, Answer
from inferd.workers.backends.openai.errors import ApiKeyMissing, ServerNotTrusted
from inferd.workers.backends.openai.refusal import Refused, refusal_of, retry_after_s
from inferd.workers.backends.openai.sse import BadStream, SseReader

FAILED = (aiohttp.ClientError, OSError, TimeoutError)
"""What an exchange may raise beside Refused and BadStream."""

_MAX_ERROR_BYTES = 16_384
_MAX_EVENT_BYTES = 262_144
_BYTES_PER_TOKEN = 4_096
"""Of the stream: a piece of an answer with all that servers write around it."""
_STREAM_BYTES = 1_048_576
_USAGE_WITHIN_S = 2.0
"""How long the count of tokens, and the end of the stream, may come after the answer's end."""


class Http:
    """The connection to one server. Each question has a connection of its own: one that was kept
    can be closed by the server in the moment it is used, and what costs seconds to compute does
    not notice."""

    def __init__(self, options: OpenAIOptions) -> None:
        """Reads the key. Raises ApiKeyMissing, ServerNotTrusted."""
        self._options = options
        key = _api_key(options)
        headers = {"Accept-Encoding": "identity"}  # nothing here can be unpacked into gigabytes
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=_tls(options) or True),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=options.connect_timeout_s,
                sock_read=options.idle_timeout_s,
            ),
        )

    async def get(self, url: str, max_bytes: int) -> bytes:
        """Raises FAILED, Refused, BadStream."""
        async with self._asked("GET", url, None) as response:
            return await _whole(response, max_bytes)

    async def post(self, url: str, body: dict[str, Any], max_bytes: int) -> bytes:
        """The same for a question with a body."""
        async with self._asked("POST", url, body) as response:
            return await _whole(response, max_bytes)

    async def stream(
        self, url: str, body: dict[str, Any], *, max_tokens: int, max_output_bytes: int
    ) -> Answer:
        """One answer, read as it is written. Raises FAILED, Refused, BadStream.

        Whatever ends it, the connection is closed, which makes servers stop computing.
        """
        answer = Answer(max_output_bytes)
        async with self._asked("POST", url, body) as response:
            if response.content_type != "text/event-stream":
                raise BadStream("it does not stream its answer")
            most = _STREAM_BYTES + _BYTES_PER_TOKEN * max_tokens + 8 * max_output_bytes
            async with aclosing(self._events(response, answer, most)) as events:
                async for event in events:
                    if event.strip() == DONE:
                        break
                    if event.strip():
                        answer.take(event)
        if answer.finish_reason is None:
            raise BadStream("it ended in mid-answer")
        return answer

    async def close(self) -> None:
        await self._session.close()

    async def _events(
        self, response: aiohttp.ClientResponse, answer: Answer, most_bytes: int
    ) -> AsyncGenerator[bytes, None]:
        reader = SseReader(max_event_bytes=_MAX_EVENT_BYTES)
        taken = 0
        while True:
            complete = answer.finish_reason is not None
            try:
                async with asyncio.timeout(_USAGE_WITHIN_S if complete else None):
                    chunk = await response.content.readany()
            except FAILED:
                if complete:
                    return  # the answer is here; only its count of tokens is not
                raise
            if not chunk:
                break
            taken += len(chunk)
            if taken > most_bytes:
                raise BadStream(f"a stream of more than {most_bytes} bytes")
            for event in reader.feed(chunk):
                yield event
        for event in reader.end():
            yield event

    @asynccontextmanager
    async def _asked(
        self, method: str, url: str, body: dict[str, Any] | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": "application/json"}
        response = await self._session.request(
            method, url, data=data, headers=headers, allow_redirects=False
        )
        try:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise BadStream("it packs its answer, which it was asked not to")
            if response.status != 200:
                raise await _refused(response)
            yield response
        finally:
            response.close()


async def _refused(response: aiohttp.ClientResponse) -> Refused:
    try:
        body = await _whole(response, _MAX_ERROR_BYTES)
    except (BadStream, *FAILED):
        body = b""
    wait_s = retry_after_s(response.headers.get("Retry-After"))
    return Refused(refusal_of(response.status, body), wait_s)


async def _whole(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    parts = bytearray()
    async for chunk in response.content.iter_any():
        parts += chunk
        if len(parts) > max_bytes:
            raise BadStream(f"an answer of more than {max_bytes} bytes")
    return bytes(parts)


def _api_key(options: OpenAIOptions) -> str:
    if options.api_key_env:
        key = os.environ.get(options.api_key_env, "")
        where = f"the variable {options.api_key_env}"
    elif options.api_key_file is not None:
        where = f"the file {options.api_key_file}"
        try:
            key = options.api_key_file.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError):
            key = ""
    else:
        return ""
    if not key or not key.isascii() or not key.isprintable():
        raise ApiKeyMissing(
            f"{where} holds no API key of one line",
            help_text="correct api_key_file or api_key_env, or leave it out where none is wanted",
        )
    return key


def _tls(options: OpenAIOptions) -> ssl.SSLContext | None:
    if options.ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:  # SSLError is one
        wrong: OperatorError = ServerNotTrusted(
            f"{options.ca_file} cannot be used: {error.strerror or 'not PEM'}",
            help_text="name a readable PEM file as `ca_file`",
        )
        raise wrong from None
