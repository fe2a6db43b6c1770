"""The lease machine, against a model of it, on real PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.workers import leases
from inferd.workers.leases import AlreadyLeased, FailureKind, Grant, failure_kind, failure_text
from scheduler.model import RequestKey
from tests.workers.support import a_job, lease_for

WORKER = Address(b"\x01" * 20)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grant"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["complete", "fail", "overdue"]), st.integers(0, 8)),
        st.tuples(st.sampled_from(["expire", "abandon"]), st.just(0)),
    ),
    max_size=25,
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
async def test_every_history_follows_the_model(
    connection: Connection, steps: list[tuple[str, int]]
) -> None:
    await connection.execute("TRUNCATE node.lease")
    states: dict[int, str] = {}
    request_of: dict[int, int] = {}
    overdue: set[int] = set()
    for step, number in steps:
        ids = sorted(states)
        if step == "grant":
            active = [i for i in ids if states[i] == "active" and request_of[i] == number]
            if active:
                with pytest.raises(AlreadyLeased):
                    await lease_for(connection, a_job(number), WORKER, lease_ms=3_600_000)
            else:
                lease = await lease_for(connection, a_job(number), WORKER, lease_ms=3_600_000)
                assert not ids or lease.id > ids[-1]
                states[lease.id], request_of[lease.id] = "active", number
        elif step in ("complete", "fail", "overdue") and ids:
            chosen = ids[number % len(ids)]
            if step == "overdue":
                overdue.add(chosen)
                await connection.execute(
                    "UPDATE node.lease SET expires_at = now() - interval '1 s' WHERE id = $1",
                    chosen,
                )
            elif step == "complete":
                ended = await leases.end(connection, [(chosen, None)])
                assert ended == {i for i in [chosen] if states[i] == "active"}
                states[chosen] = "done" if states[chosen] == "active" else states[chosen]
            else:
                failure = failure_text(FailureKind.FAILED, "x")
                moved = await leases.end(connection, [(chosen, failure)])
                assert moved == {i for i in [chosen] if states[i] == "active"}
                states[chosen] = "failed" if moved else states[chosen]
        elif step in ("expire", "abandon"):
            due = [i for i in ids if states[i] == "active" and (step == "abandon" or i in overdue)]
            move = leases.expire_overdue if step == "expire" else leases.abandon_previous
            assert [lease.id for lease in await move(connection)] == due
            states.update(dict.fromkeys(due, "expired"))
        rows = await connection.fetch("SELECT id, state, ended_at FROM node.lease")
        assert {row["id"]: row["state"] for row in rows} == states
        assert all((row["ended_at"] is None) == (row["state"] == "active") for row in rows)
        live = [lease.id for lease in await leases.active(connection)]
        assert live == sorted(i for i, state in states.items() if state == "active")


async def test_a_second_grant_leaves_the_transaction_usable(connection: Connection) -> None:
    async with connection.transaction():
        first = await lease_for(connection, a_job(1), WORKER)
        with pytest.raises(AlreadyLeased):
            await lease_for(connection, a_job(1), WORKER)
        await lease_for(connection, a_job(2), WORKER)
    assert len(await leases.active(connection)) == 2
    assert first.duration_s == pytest.approx(10.0)


async def test_of_concurrent_grants_one_wins(pool: Pool) -> None:
    async def attempt() -> bool:
        async with pool.acquire() as connection, connection.transaction():
            try:
                await lease_for(connection, a_job(7), WORKER)
            except AlreadyLeased:
                return False
            return True

    assert sum(await asyncio.gather(*(attempt() for _ in range(8)))) == 1


async def test_a_moved_request_is_leased_beside_the_old_one(connection: Connection) -> None:
    await lease_for(connection, a_job(1), WORKER)
    moved = Grant(RequestKey(1, a_job(2).commitment), WORKER, 1, 1000)
    await leases.grant_all(connection, [moved])
    assert len(await leases.active(connection)) == 2


def test_failures_tell_whom_they_count_against() -> None:
    assert [kind for kind in FailureKind if not kind.counts] == [
        FailureKind.BUSY,
        FailureKind.ABANDONED,
    ]
    for kind in FailureKind:
        assert failure_kind(failure_text(kind, "reason: with\x00 colon" + "x" * 5000)) is kind
    assert failure_kind(None) is FailureKind.TIMEOUT
    assert "\x00" not in failure_text(FailureKind.FAILED, "a\x00b")
    failure_text(FailureKind.FAILED, "a\ud800b").encode()
