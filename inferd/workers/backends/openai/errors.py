"""What can be wrong with a server when a worker starts, for operators."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import ClassVar

import aiohttp

from indexer.errors import OperatorError, TemporaryError
from inferd.workers.backends.openai.refusal import BUSY, Refusal


class ServerUnreachable(TemporaryError):
    """The inference server cannot be reached: its name, its port, or it hung up."""

    code: ClassVar[str] = "server_unreachable"


class ServerBusy(TemporaryError):
    """The inference server answers that it has no capacity, or still loads its model."""

    code: ClassVar[str] = "server_busy"


class ServerNotTrusted(OperatorError):
    """There is no TLS connection to the inference server that could be trusted."""

    code: ClassVar[str] = "server_not_trusted"


class ApiKeyRefused(OperatorError):
    """The inference server does not take the API key, or wants one."""

    code: ClassVar[str] = "api_key_refused"


class ApiKeyMissing(OperatorError):
    """The API key of the settings cannot be read. The text never holds it."""

    code: ClassVar[str] = "api_key_missing"


class ModelMissing(OperatorError):
    """The inference server has no model of this name."""

    code: ClassVar[str] = "model_missing"


class ServerUnusable(OperatorError):
    """What listens there does not answer as OpenAI's API does."""

    code: ClassVar[str] = "server_unusable"


CUT_OFF = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientPayloadError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ServerDisconnectedError,
    ConnectionError,
)
"""After which it may be another server, or one with another model."""


def trouble(error: Exception) -> str:
    """A failed exchange in a few words, without anything that the server said."""
    match error:
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return "its name is not known"
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not trusted"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return "no TLS connection"
        case aiohttp.ClientConnectorError():
            return "nothing listens there" if _refused(error) else "no connection"
        case TimeoutError():
            return "no answer in time"
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | OSError():
            return "it hung up"
    return "no HTTP that can be read"


def start_error(error: Exception, url: str) -> OperatorError:
    """The same for whoever starts the worker."""
    match error:
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return ServerNotTrusted(
                f"there is no trusted TLS connection to {url}: {trouble(error)}",
                help_text="name its authority as `ca_file`, or correct base_url",
            )
        case asyncio.TimeoutError() | OSError() | aiohttp.ClientPayloadError():
            return _unreachable(url, trouble(error))
        case aiohttp.ServerDisconnectedError():
            return _unreachable(url, trouble(error))
    return unusable(url, trouble(error))


def unusable(url: str, why: str) -> ServerUnusable:
    return ServerUnusable(
        f"{url} does not answer as OpenAI's API does: {why}",
        help_text="correct base_url: it ends in /v1 with most servers; and see `api`",
    )


def refusal_error(refusal: Refusal, url: str, model: str) -> OperatorError:
    """A refused question at the start."""
    if refusal.status in (401, 403):
        return ApiKeyRefused(
            f"{url} does not let us in: {refusal.words}",
            help_text="correct what api_key_file or api_key_env names",
        )
    if refusal.status in BUSY and refusal.code != "insufficient_quota":
        return ServerBusy(
            f"{url} has no capacity now: {refusal.words}",
            help_text="it may still load its model: try again, or give it more slots",
        )
    if refusal.status == 404 and "model" in refusal.text:
        return model_missing(url, model, f"it answers {refusal.words}")
    return unusable(url, refusal.words)


def model_missing(url: str, model: str, told: str) -> ModelMissing:
    return ModelMissing(
        f"{url} has no model {model!r}: {told}",
        help_text="load it there, or name another as `model` of the section `openai`",
    )


def _unreachable(url: str, why: str) -> ServerUnreachable:
    return ServerUnreachable(
        f"{url} cannot be reached: {why}",
        help_text="start the server, or correct base_url",
    )


def _refused(error: aiohttp.ClientConnectorError) -> bool:
    return isinstance(error.os_error, ConnectionRefusedError)
