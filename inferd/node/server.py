"""Serves the API inside the daemon's own event loop, with the daemon's own signal handling."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import uvicorn
from fastapi import FastAPI

from indexer.errors import OperatorError
from inferd.node.settings import ApiSettings


class PortTaken(OperatorError):
    """The API's port is in use."""

    code: ClassVar[str] = "port_taken"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(settings: ApiSettings) -> socket.socket:
    """Takes the port before anything else is started. Raises PortTaken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise PortTaken(
            f"the API cannot listen on {settings.host}:{settings.port}: {error.strerror}",
            help_text="stop what listens there, or set `api.port` (0 = a free one)",
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def announced(listener: socket.socket, data_dir: Path) -> Iterator[None]:
    """Keeps in `data_dir`/api.json where the API is, for whoever asked for a free port."""
    data_dir.mkdir(parents=True, exist_ok=True)
    place = data_dir / "api.json"
    whole = place.with_suffix(".new")
    text = json.dumps({"url": url_of(listener)}) + "\n"
    whole.write_text(text)
    whole.replace(place)
    try:
        yield
    finally:
        # Another daemon on this folder may have written its own meanwhile.
        with contextlib.suppress(OSError):
            if place.read_text() == text:
                place.unlink()


async def serve(app: FastAPI, listener: socket.socket) -> None:
    """Until cancelled. Open event streams do not delay the end by more than a second."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, timeout_graceful_shutdown=1, lifespan="off"
    )
    await _Server(config).serve(sockets=[listener])
