"""One scheduling round a block: snapshot, plan, decisions and leases written, jobs dispatched."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from indexer.database import Connection, Fence, Pool
from indexer.types import Address
from inferd.node.metrics import DECISIONS, ROUND_SECONDS
from inferd.node.snapshot import RoundInputs, load_snapshot
from inferd.node.wakeup import Wakeup
from inferd.protocol.request import Commitment, ModelId
from inferd.workers import leases
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job
from inferd.workers.leases import Lease
from scheduler import audit
from scheduler.decision import Decision, Plan
from scheduler.model import Reason, RequestKey, Snapshot, WorkerView
from scheduler.plan import plan
from scheduler.policies import policy_named

# What more or other workers could still serve.
_RECONSIDERED = (Reason.MODEL_UNKNOWN, Reason.MEMORY_TOO_LARGE, Reason.DEADLINE_INFEASIBLE)

log = structlog.get_logger("scheduler")

Inputs = Callable[[Connection], Awaitable[RoundInputs]]


@dataclass
class Rounds:
    """The scheduling loop of one session."""

    db: Pool
    inputs: Inputs
    """Workers, gas and rules as they are now."""
    policy: str
    dispatcher: Dispatcher
    names: Mapping[bytes, str]
    """Model names by id."""
    fence: Fence
    bell: Wakeup
    may_decide: Callable[[], bool]
    """False while the tables are behind the chain."""
    _kept: dict[RequestKey, Reason] = field(default_factory=dict)
    _offers: frozenset[tuple[bytes, bytes, int]] | None = None

    async def run(self) -> None:
        """For ever; a round that takes longer than a block makes the next one see the newest."""
        while True:
            await self.bell.wait()
            if self.may_decide():
                await self.round()

    async def round(self) -> Plan | None:
        """One round; None before the first indexed block."""
        started = time.perf_counter()
        snapshot = await self._snapshot()
        if snapshot is None:
            return None
        if self._offers != (offers := _offers(snapshot.workers)):
            await self._reconsider(snapshot)
            self._offers = offers
            snapshot = await self._snapshot() or snapshot
        decided = await asyncio.to_thread(plan, snapshot, policy_named(self.policy))
        granted = await self._write(snapshot, decided, started)
        for lease, job in granted:
            self.dispatcher.start(lease, job)
        ROUND_SECONDS.observe(time.perf_counter() - started)
        return decided

    async def _snapshot(self) -> Snapshot | None:
        async with self.db.acquire() as connection:
            inputs = await self.inputs(connection)
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await load_snapshot(connection, inputs)

    async def _reconsider(self, snapshot: Snapshot) -> None:
        async with self.db.acquire() as connection, connection.transaction():
            await self.fence(connection)
            await connection.execute(
                """
                DELETE FROM node.refusal f USING chain.request r
                WHERE r.id = f.request_id AND r.commitment = f.commitment
                  AND r.status = 'pending' AND r.deadline_s > $1 AND f.reason = ANY($2)
                """,
                snapshot.block.timestamp_s,
                [str(reason) for reason in _RECONSIDERED],
            )

    async def _write(
        self, snapshot: Snapshot, decided: Plan, started: float
    ) -> list[tuple[Lease, Job]]:
        news = [kept for kept in decided.kept if self._kept.get(kept.key) is not kept.reason]
        self._kept = {kept.key: kept.reason for kept in decided.kept}
        if not (decided.assigned or decided.refused or news):
            return []
        attempts = {request.key: request.attempts for request in snapshot.requests}
        async with self.db.acquire() as connection, connection.transaction():
            await self.fence(connection)
            round_id: int = await connection.fetchval(
                """
                INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, pending,
                                        assigned, kept, refused, duration_us)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id
                """,
                decided.block.number,
                decided.block.hash,
                decided.block.base_fee_wei,
                decided.policy,
                len(snapshot.requests),
                len(decided.assigned),
                len(decided.kept),
                len(decided.refused),
                int((time.perf_counter() - started) * 1e6),
            )
            await _insert_decisions(connection, round_id, decided, news)
            await _insert_refusals(connection, decided, snapshot)
            jobs = await self._load_jobs(connection, decided.assigned)
            granted = []
            for decision in decided.assigned:
                job = jobs.get(decision.key)
                if job is None:  # a reorganisation took it away since the snapshot
                    continue
                lease = await leases.grant(
                    connection,
                    request_id=decision.key.id,
                    commitment=Commitment(decision.key.commitment),
                    worker=_worker(decision),
                    attempt=attempts[decision.key] + 1,
                    lease_ms=decision.lease_ms or 0,
                )
                granted.append((lease, job))
        for reason, count in Counter(str(kept.reason) for kept in news).items():
            DECISIONS.labels(reason).inc(count)
            log.info("kept", block_number=decided.block.number, reason=reason, requests=count)
        for decision in (*decided.assigned, *decided.refused):
            DECISIONS.labels(str(decision.reason)).inc()
            log.info(
                "decided",
                trace_id=decision.key.commitment.hex()[:16],
                request_id=decision.key.id,
                block_number=decided.block.number,
                reason=str(decision.reason),
                worker=decision.worker,
            )
        return granted

    async def _load_jobs(
        self, connection: Connection, assigned: Sequence[Decision]
    ) -> dict[RequestKey, Job]:
        rows = await connection.fetch(
            """
            SELECT id, commitment, model_id, input, max_tokens, deadline_s
            FROM chain.request WHERE id = ANY($1) AND status = 'pending'
            """,
            [decision.key.id for decision in assigned],
        )
        return {
            RequestKey(row["id"], row["commitment"]): Job(
                request_id=row["id"],
                commitment=Commitment(row["commitment"]),
                model_id=ModelId(row["model_id"]),
                model=self.names[row["model_id"]],
                input=row["input"],
                max_tokens=row["max_tokens"],
                deadline_s=row["deadline_s"],
            )
            for row in rows
        }


def _offers(workers: Sequence[WorkerView]) -> frozenset[tuple[bytes, bytes, int]]:
    return frozenset(
        (worker.id, model, worker.memory_mb) for worker in workers for model in worker.service
    )


def _worker(decision: Decision) -> Address:
    if decision.worker is None:
        raise ValueError(f"request {decision.key.id} is assigned to nobody")
    return Address(decision.worker)


async def _insert_decisions(
    connection: Connection, round_id: int, decided: Plan, news: Sequence[Decision]
) -> None:
    kinds = (("assign", decided.assigned), ("keep", news), ("refuse", decided.refused))
    await connection.executemany(
        """
        INSERT INTO node.decision (round_id, request_id, commitment, kind, reason, sentence,
                                   worker, score, inputs, leaf)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        """,
        [
            (
                round_id,
                decision.key.id,
                decision.key.commitment,
                kind,
                str(decision.reason),
                decision.sentence,
                decision.worker,
                decision.score,
                decision.inputs,
                audit.leaf(decision, decided.block, decided.policy),
            )
            for kind, decisions in kinds
            for decision in decisions
        ],
    )


async def _insert_refusals(connection: Connection, decided: Plan, snapshot: Snapshot) -> None:
    deadlines_s = {request.key: request.deadline_s for request in snapshot.requests}
    await connection.executemany(
        """
        INSERT INTO node.refusal
            (request_id, commitment, deadline_s, reason, sentence, block_number)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (request_id, commitment) DO UPDATE
            SET deadline_s = $3, reason = $4, sentence = $5, block_number = $6, decided_at = now()
        """,
        [
            (
                decision.key.id,
                decision.key.commitment,
                deadlines_s[decision.key],
                str(decision.reason),
                decision.sentence,
                decided.block.number,
            )
            for decision in decided.refused
        ],
    )
