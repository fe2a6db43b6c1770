"""Who is trusted with work, and how long it is expected to take."""

from __future__ import annotations

import pytest

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import model_id
from inferd.workers.breaker import Circuit, CircuitBreaker
from inferd.workers.service_stats import estimate, read_all, record_failure, record_success

WORKER = Address(b"\x01" * 20)
MODEL = model_id("m")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_breaker_opens_on_half_failures_and_heals_by_one_success() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock, pause_s=10)
    for success in (False, False, False, False):
        breaker.record(success=success)
    assert breaker.circuit is Circuit.CLOSED, "four calls are too few to judge"
    breaker.record(success=True)
    assert breaker.circuit is Circuit.OPEN
    breaker.record(success=True)
    assert breaker.circuit is Circuit.OPEN, "a call from before it opened closes nothing"
    clock.now_s += 10
    assert breaker.circuit is Circuit.HALF_OPEN
    breaker.record(success=False)
    assert breaker.circuit is Circuit.OPEN
    clock.now_s += 10
    breaker.record(success=True)
    assert breaker.circuit is Circuit.CLOSED


def test_old_failures_leave_the_window() -> None:
    breaker = CircuitBreaker(Clock())
    for _ in range(9):
        breaker.record(success=True)
        breaker.record(success=True)
        breaker.record(success=False)
    assert breaker.circuit is Circuit.CLOSED, "a third of failures is tolerated"
    for _ in range(20):
        breaker.record(success=True)
    for _ in range(9):
        breaker.record(success=False)
    assert breaker.circuit is Circuit.CLOSED
    breaker.record(success=False)
    assert breaker.circuit is Circuit.OPEN


async def test_estimates_follow_what_is_measured_and_forget(connection: Connection) -> None:
    assert estimate(None, 50.0).samples == 0
    assert estimate(None, 50.0).base_ms == 50.0
    await record_failure(connection, WORKER, MODEL)
    failed_only = (await read_all(connection))[WORKER, MODEL]
    assert failed_only.failed == 1
    assert estimate(failed_only, 50.0).base_ms == 50.0, "a failure says nothing about speed"
    await record_success(connection, WORKER, MODEL, 1000)
    first = estimate((await read_all(connection))[WORKER, MODEL], 50.0)
    assert 50 < first.base_ms < 1000, "one sample is mixed with the prior"
    assert first.samples == 1
    for _ in range(40):
        await record_success(connection, WORKER, MODEL, 1000)
    steady = estimate((await read_all(connection))[WORKER, MODEL], 50.0)
    assert steady.base_ms == pytest.approx(1000, rel=0.1)
    assert steady.base_ms > first.base_ms
    for _ in range(300):
        await record_success(connection, WORKER, MODEL, 200)
    faster = estimate((await read_all(connection))[WORKER, MODEL], 50.0)
    assert faster.base_ms == pytest.approx(200, rel=0.1), "the past is forgotten"
    stat = (await read_all(connection))[WORKER, MODEL]
    assert (stat.completed, stat.failed) == (341, 1)
