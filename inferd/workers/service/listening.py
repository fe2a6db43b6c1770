"""Where an agent listens: sockets, and the certificate it shows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from typing import ClassVar

from aiohttp import web

from indexer.errors import OperatorError
from inferd.workers.service.app import connections_at_most
from inferd.workers.service.settings import AgentSettings

_CLOSE_S = 1.0
_TLS_HANDSHAKE_S = 10.0


class AgentAddressTaken(OperatorError):
    """The agent cannot listen where it is told to."""

    code: ClassVar[str] = "agent_address_taken"


class BadCertificate(OperatorError):
    """The agent's certificate and key cannot be used."""

    code: ClassVar[str] = "bad_certificate"


@contextlib.asynccontextmanager
async def listening(
    server: web.Server, host: str, port: int, most: int, tls: ssl.SSLContext | None
) -> AsyncIterator[str]:
    """Gives the URL. Raises AgentAddressTaken."""
    runner = web.ServerRunner(server, shutdown_timeout=_CLOSE_S)
    await runner.setup()
    loop = asyncio.get_running_loop()
    try:
        listener = await loop.create_server(
            connections_at_most(server, most),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else _TLS_HANDSHAKE_S,
        )
    except OSError as error:
        await runner.cleanup()
        raise AgentAddressTaken(
            # asyncio puts the address into strerror as well.
            f"the agent cannot listen on {host}:{port}:"
            f" {os.strerror(error.errno) if error.errno else error.strerror}",
            help_text="stop what listens there, or name another `port` or `metrics_port` (0 = a"
            " free one)",
        ) from error
    try:
        yield _url(listener.sockets[0].getsockname()[:2], tls is not None)
    finally:
        listener.close()
        await runner.cleanup()


def tls_of(settings: AgentSettings) -> ssl.SSLContext | None:
    """None for plain HTTP. Raises BadCertificate."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # An encrypted key would make OpenSSL ask the terminal.
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, password=lambda: b"")
    except OSError as error:  # SSLError is one
        raise BadCertificate(
            f"the agent's certificate cannot be used: {error.strerror or 'not PEM'}"
            f" ({settings.tls_certificate}, {settings.tls_key})",
            help_text="they are PEM files that belong together, the key not encrypted",
        ) from None
    return context


def _url(at: tuple[str, int], tls: bool) -> str:
    host = f"[{at[0]}]" if ":" in at[0] else at[0]
    return f"{'https' if tls else 'http'}://{host}:{at[1]}"
