"""What wakes the loops of a session."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from indexer.database import Pool
from inferd.node import wakeup
from inferd.node.session import Session
from inferd.node.wakeup import Wakeup


@pytest.fixture(autouse=True)
def nothing_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is tested wakes anything."""
    monkeypatch.setattr(wakeup, "_QUIET_S", 3_600.0)


async def test_a_time_that_has_come_wakes_like_a_bell() -> None:
    async with asyncio.timeout(60):
        await Wakeup().wait(until_s=time.time() - 5.0)
        await Wakeup().wait(until_s=time.time() + 0.05)


async def test_a_bell_wakes_before_the_time() -> None:
    bell = Wakeup()
    waiting = asyncio.create_task(bell.wait(until_s=time.time() + 3_000))
    await asyncio.sleep(0)
    bell.ring()
    async with asyncio.timeout(60):
        await waiting


async def test_settlement_steps_again_when_it_asked_for_it(pool: Pool) -> None:
    """With no block, no result and no other bell."""
    await pool.execute(
        "INSERT INTO chain.cursor (block_number, block_hash, timestamp_s, base_fee_wei, gas_limit,"
        " finalized_number) VALUES (1, $1, 1, 1, 30000000, 1)",
        bytes(32),
    )
    steps: list[float] = []
    enough = asyncio.Event()

    async def step(head: Any) -> float | None:
        steps.append(time.time())
        if len(steps) == 3:
            enough.set()
        return time.time() + 0.01 if len(steps) < 3 else None

    bell = Wakeup()
    settlement: Any = SimpleNamespace(step=step, knows_prices=True)
    session: Any = SimpleNamespace(_settle_bell=bell, caught_up=True, _db=pool)
    bell.ring()
    settling = asyncio.create_task(Session._settle(session, settlement))
    async with asyncio.timeout(60):
        await enough.wait()
    await asyncio.sleep(0.2)
    settling.cancel()
    assert len(steps) == 3, "and then it waits"


async def test_a_session_that_is_behind_does_not_spin(pool: Pool) -> None:
    looks = 0

    class Behind:
        _settle_bell, _db = Wakeup(), pool

        @property
        def caught_up(self) -> bool:
            nonlocal looks
            looks += 1
            return False

    session: Any = Behind()
    never: Any = None
    session._settle_bell.ring()
    settling = asyncio.create_task(Session._settle(session, never))
    await asyncio.sleep(0.1)
    settling.cancel()
    assert looks == 1
