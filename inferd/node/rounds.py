"""One scheduling round a block: what has changed, plan, decisions and leases written, jobs
dispatched, here or by other processes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from indexer.database import Connection, Fence, Pool
from indexer.types import Address
from inferd.node.feed import Feed, Reading
from inferd.node.grounds import Grounds, grounds_of, reopened
from inferd.node.jobs import load_jobs, load_servable
from inferd.node.metrics import (
    DECISIONS,
    PLAN_SECONDS,
    POLICY_FALLBACKS,
    ROUND_PENDING,
    ROUND_SECONDS,
)
from inferd.node.recorded import Recorded, record
from inferd.node.round_rows import RoundRows, round_rows, write_round
from inferd.node.snapshot import RoundInputs
from inferd.node.tenants import store_uses
from inferd.node.wakeup import GRANT_CHANNEL, Wakeup, notify
from inferd.policies.decide import decide
from inferd.policies.journal import Entry, in_force
from inferd.policies.steering import Steering
from inferd.workers import leases
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job
from inferd.workers.leases import Grant, Lease
from inferd.workers.quorum import Company
from scheduler.decision import Plan
from scheduler.model import (
    Moment,
    PendingRequest,
    Reason,
    RequestKey,
    WorkerId,
    WorkerView,
)
from scheduler.patience import Patience, patience_of
from scheduler.planner import Changes, Planner
from scheduler.quota import cost_tokens

_TOLD_AT_ONCE = 50
"""Log lines between which the event loop may do other things."""

log = structlog.get_logger("scheduler")

Inputs = Callable[[Connection], Awaitable[RoundInputs]]


class _Decided(NamedTuple):
    plan: Plan
    rows: RoundRows
    entry: Entry
    """The policy that it went by, unless that failed."""
    fallback: str | None
    """Why another one took its place."""
    recorded: Recorded | None


class _State:
    """What is kept between rounds; thrown away whole when a round fails on the way."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.planner = Planner()
        self.workers: dict[WorkerId, WorkerView] = {}

    def decide(
        self,
        reading: Reading,
        workers: Sequence[WorkerView],
        steering: Steering,
        entry: Entry,
        budget_s: float,
        record_up_to: int,
    ) -> _Decided:
        """The plan, its rows, and what it was made of where that is to be kept; runs in a thread:
        a change of policy starts and ends processes there, too.

        `entry` is the newest of node.policy; `record_up_to` is of the pending requests.
        """
        force = steering.follow(entry)
        present = {view.id: view for view in workers}
        pending = self.feed.take_in(reading)
        self.planner.apply(
            Changes(
                added=pending.added,
                removed=pending.removed,
                workers=[view for view in workers if self.workers.get(view.id) != view],
                workers_gone=[one for one in self.workers if one not in present],
            )
        )
        self.workers = present
        started_s = time.perf_counter()
        plan, fallback = decide(partial(self.planner.plan, reading.moment), force, budget_s)
        PLAN_SECONDS.observe(time.perf_counter() - started_s)
        rows = round_rows(plan, force.entry)
        wanted = len(rows) and self.planner.pending <= record_up_to
        recorded = record(self.planner, reading.moment, plan) if wanted else None
        return _Decided(plan, rows, force.entry, fallback, recorded)


@dataclass
class Rounds:
    """The scheduling loop of one session."""

    db: Pool
    inputs: Inputs
    """Workers, gas and rules as they are now."""
    steering: Steering
    policy_budget_s: Callable[[], float]
    """What a policy of another package may take of one round."""
    dispatcher: Dispatcher | None
    """Has computed what is granted; None where other processes take it."""
    names: Mapping[bytes, str]
    """Model names by id."""
    fence: Fence
    bell: Wakeup
    may_decide: Callable[[], bool]
    """False while the tables are behind the chain."""
    record_up_to: int = 0
    """What a round with at most so many pending requests saw is stored; 0 = of no round."""
    on_decided: Callable[[], None] = lambda: None
    """Called when decisions are committed."""
    _state: _State = field(default_factory=_State)
    _grounds: Grounds | None = None

    async def run(self) -> None:
        """For ever; a round that takes longer than a block makes the next one see the newest."""
        while True:
            await self.bell.wait()
            if self.may_decide():
                await self.round()
            else:
                async with self.db.acquire() as connection:
                    await self._state.feed.skip(connection, self.fence)

    async def round(self) -> Plan | None:
        """One round; None before the first indexed block."""
        state = self._state
        try:
            return await self._round(state)
        except BaseException:
            # A thread may still be at work on the old one.
            self._state = _State()
            raise

    async def _round(self, state: _State) -> Plan | None:
        started_s = time.perf_counter()
        async with self.db.acquire() as connection:
            inputs = await self.inputs(connection)
            head = await connection.fetchrow("SELECT timestamp_s, gas_limit FROM chain.cursor")
            if head is None:
                return None
            grounds = grounds_of(inputs, head["gas_limit"])
            if reasons := reopened(self._grounds, grounds):
                await self._reconsider(connection, head["timestamp_s"], reasons)
            self._grounds = grounds
            entry = await in_force(connection)
            reading = await state.feed.read(connection, inputs, self.fence)
        if reading is None:
            return None
        if entry is None:
            raise RuntimeError("no policy is in force")
        decided = await asyncio.to_thread(
            state.decide,
            reading,
            inputs.workers,
            self.steering,
            entry,
            self.policy_budget_s(),
            self.record_up_to,
        )
        if decided.fallback is not None:
            choice = str(decided.entry.choice)
            POLICY_FALLBACKS.labels(choice).inc()
            log.warning("policy_failed", policy=choice, reason=decided.fallback)
        pending = state.planner.pending
        ROUND_PENDING.set(pending)
        if len(decided.rows):
            expected = expectations(decided.plan, state.workers, reading.moment.rules.inclusion_s)
            granted = await self._write(decided, reading.moment, pending, started_s, expected)
            if self.dispatcher is not None:
                companies = companies_of(decided.plan)
                for lease, job in granted:
                    key = lease.key
                    self.dispatcher.start(lease, job, expected.get(key), companies.get(key))
            self.on_decided()
            await _tell(decided.plan, decided.rows)
        ROUND_SECONDS.observe(time.perf_counter() - started_s)
        return decided.plan

    async def _reconsider(
        self, connection: Connection, head_s: int, reasons: Collection[Reason]
    ) -> None:
        async with connection.transaction():
            await self.fence(connection)
            await connection.execute(
                """
                DELETE FROM node.refusal f USING chain.request r
                WHERE r.id = f.request_id AND r.commitment = f.commitment
                  AND r.status = 'pending' AND r.deadline_s > $1 AND f.reason = ANY($2)
                """,
                head_s,
                [str(reason) for reason in reasons],
            )

    async def _write(
        self,
        decided: _Decided,
        moment: Moment,
        pending: int,
        started_s: float,
        expected: Mapping[RequestKey, Patience],
    ) -> list[tuple[Lease, Job]]:
        """The leases that it grants, with the jobs of those that are computed in this process."""
        plan, rows = decided.plan, decided.rows
        async with self.db.acquire() as connection, connection.transaction():
            await self.fence(connection)
            duration_us = int((time.perf_counter() - started_s) * 1e6)
            await write_round(
                connection,
                plan,
                rows,
                policy_id=decided.entry.id,
                fallback=decided.fallback,
                recorded=decided.recorded,
                pending=pending,
                duration_us=duration_us,
            )
            ids = [request.key.id for request in plan.assigned.requests.tolist()]
            if self.dispatcher is None:
                jobs: dict[RequestKey, Job] = {}
                granted = await _grant(connection, plan, await load_servable(connection, ids))
                await _hand_over(connection, granted, expected, companies_of(plan))
            else:
                jobs = await load_jobs(connection, ids, self.names)
                granted = await _grant(connection, plan, jobs)
            leased = {lease.key for lease in granted}
            await store_uses(
                connection,
                moment.rules.limits,
                moment.taken.uses,
                charges=[
                    (one.tenant, cost_tokens(one.input_bytes, one.tokens_mean))
                    for one in plan.assigned.requests.tolist()
                    if one.key in leased and not one.charged
                ],
                deficits=plan.deficits,
                now_s=moment.now_s,
            )
        return [(lease, jobs[lease.key]) for lease in granted if lease.key in jobs]


async def _grant(
    connection: Connection, decided: Plan, servable: Collection[RequestKey]
) -> list[Lease]:
    # Not servable is what a reorganisation took away since the reading.
    grants = [
        Grant(request.key, worker, request.attempts + 1, lease_ms)
        for request, worker, lease_ms in zip(
            decided.assigned.requests.tolist(),
            decided.assigned.column("worker"),
            decided.assigned.column("lease_ms"),
            strict=True,
        )
        if request.key in servable
    ]
    return await leases.grant_all(connection, grants)


async def _hand_over(
    connection: Connection,
    granted: Sequence[Lease],
    expected: Mapping[RequestKey, Patience],
    companies: Mapping[RequestKey, Company],
) -> None:
    """To the processes that dispatch."""
    if granted:
        told = [(lease.id, expected.get(lease.key), companies.get(lease.key)) for lease in granted]
        await leases.expect(connection, [one for one in told if one[1] or one[2]])
        await notify(connection, GRANT_CHANNEL)


def expectations(
    plan: Plan, workers: Mapping[WorkerId, WorkerView], inclusion_s: float
) -> dict[RequestKey, Patience]:
    """What the plan reckons with for each request that it gives away. Pure."""
    return {
        request.key: patience_of(
            p90_ms, workers[worker].service[request.model].sigma, request.tokens_sigma, inclusion_s
        )
        for request, worker, p90_ms in zip(
            plan.assigned.requests.tolist(),
            plan.assigned.column("worker"),
            plan.assigned.column("p90_ms"),
            strict=True,
        )
    }


def companies_of(plan: Plan) -> dict[RequestKey, Company]:
    """Who is to be asked beside, for each request that it gives away and that lacks more than one
    answer. Pure."""
    requests: list[PendingRequest] = plan.assigned.requests.tolist()
    return {
        one.key: Company(one.quorum - one.agreeing - 1, frozenset(map(Address, one.excluded)))
        for one in requests
        if one.quorum - one.agreeing > 1
    }


async def _tell(decided: Plan, rows: RoundRows) -> None:
    """Counts all decisions that are news; names those that give a request away or turn it down."""
    block_number = decided.block.number
    for kind, decisions in rows.parts:
        for reason, count in Counter(map(str, decisions.column("reason"))).items():
            DECISIONS.labels(reason).inc(count)
            if kind == "keep":
                log.info("kept", block_number=block_number, reason=reason, requests=count)
        if kind == "keep":
            continue
        for number, (request, reason, worker) in enumerate(
            zip(
                decisions.requests.tolist(),
                decisions.column("reason"),
                decisions.column("worker"),
                strict=True,
            )
        ):
            if number % _TOLD_AT_ONCE == _TOLD_AT_ONCE - 1:
                await asyncio.sleep(0)
            log.info(
                "decided",
                trace_id=request.key.commitment.hex()[:16],
                request_id=request.key.id,
                block_number=block_number,
                reason=str(reason),
                worker=worker,
            )
