"""What went wrong on the way to an endpoint, in words that hold nothing of its URL."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence

import aiohttp

from indexer.errors import OperatorError, RpcUnreachable


def words_of(error: Exception) -> str:
    """Texts of aiohttp may hold the URL: only the system's own words and kinds of errors pass."""
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"HTTP {error.status} instead of a websocket"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause: Exception = error.certificate_error
    else:
        cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):  # OpenSSL's numbers are none of the system's.
        return f"TLS: {(cause.reason or type(cause).__name__).lower().replace('_', ' ')}"
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
