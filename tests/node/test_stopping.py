"""A stop that comes in a bad moment is not forgotten: the daemon does not lead again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from inferd.node import daemon
from inferd.node.api import ApiState
from inferd.node.daemon import Node
from inferd.node.health import Health
from inferd.node.supervise import SessionEnded


class ClosingPool:
    """Is closed in the very moment in which the daemon is told to stop."""

    def __init__(self) -> None:
        self.daemon: asyncio.Task[Any] | None = None

    async def close(self) -> None:
        if self.daemon is not None:
            self.daemon.cancel()

    def terminate(self) -> None:
        """Nothing is left open."""


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ClosingPool:
    closing = ClosingPool()

    async def opened(_: str) -> ClosingPool:
        return closing

    # Forced: no real pool closes in a moment that a test can name.
    monkeypatch.setattr(daemon, "open_pool", opened)
    return closing


async def test_session_ended__the_daemon_leads_again__told_to_stop_it_does_not(
    pool: ClosingPool,
) -> None:
    led = 0

    async def ensure_running() -> None:
        """It runs."""

    async def lead(_: Any) -> None:
        nonlocal led
        led += 1
        if led == 3:
            pool.daemon = task
        raise SessionEnded("the database is away")

    api = ApiState(Health())
    node: Any = SimpleNamespace(
        database=SimpleNamespace(ensure_running=ensure_running, url="postgresql://nowhere"),
        api=api,
        status=api,
        health=api.health,
        _lead=lead,
        _session_ended=lambda error: None,
        _become=lambda role: None,
        _tell_why=lambda error: None,
    )
    task = asyncio.create_task(Node.lead_again_and_again(node))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert led == 3
