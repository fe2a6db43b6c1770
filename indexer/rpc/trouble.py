"""What went wrong on the way to an endpoint, in words that hold nothing of its URL."""

from __future__ import annotations

import os
from collections.abc import Sequence

import aiohttp

from indexer.errors import OperatorError, RpcUnreachable


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


def none_answered(
    others: Sequence[OperatorError], failures: Sequence[RpcUnreachable]
) -> RpcUnreachable:
    """The error of a question that nobody answered. `failures` are not empty; `others` are of
    endpoints that were not asked.

    Its kind is that of the last failure; what to do about it depends on all of them.
    """
    last = failures[-1]
    last.message = "; ".join(error.message for error in (*others, *failures))
    last.args = (last.message,)
    return last
