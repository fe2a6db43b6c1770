"""What went wrong on the way to an endpoint, in words that hold nothing of its URL."""

from __future__ import annotations

import os

import aiohttp


def words_of(error: Exception) -> str:
    """Texts of aiohttp may hold the URL: only the system's own words and kinds of errors pass."""
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"HTTP {error.status} instead of a websocket"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError):
        # asyncio puts the address into the text of a refused connection.
        known = cause.errno is not None and cause.errno > 0
        text = os.strerror(cause.errno) if known and cause.errno else cause.strerror
        if text:
            return text
    return type(error).__name__
