"""Canaries on their way: to workers, and to the operator's own to learn their answers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

import structlog

from indexer.database import Connection, is_unstorable
from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.workers.checks import canaries
from inferd.workers.checks.canaries import Canary
from inferd.workers.checks.counts import Outcome
from inferd.workers.checks.desk import LEAST_WAIT_S, LONGEST_WAIT_S, Desk
from inferd.workers.checks.evidence import Kind
from inferd.workers.checks.peers import free_for, on_probation, trusts
from inferd.workers.job import Job, SignedResult
from inferd.workers.leases import FailureKind
from inferd.workers.pool import UnknownWorker
from scheduler import model as scheduling

log = structlog.get_logger("workers")

Due = tuple[Address, ModelId]
"""A worker that is to be sent a canary of a model."""


class CanaryRuns:
    """One session's."""

    def __init__(self, desk: Desk, *, proved: Callable[[], float]) -> None:
        """`proved` is how surely a worker must succeed to be off probation."""
        self._desk = desk
        self._proved = proved

    async def untried(self, connection: Connection, known: Sequence[Canary]) -> set[Due]:
        """Workers on probation that were never sent one of a model that they serve."""
        models = {canary.model_id for canary in known if canary.digest is not None}
        pool = self._desk.pool
        new = {
            (address, model)
            for address, view in pool.seen.items()
            for model in models
            if scheduling.ModelId(model) in view.service
            and on_probation(pool, address, model, proved=self._proved())
        }
        if new:
            rows = await connection.fetch(
                "SELECT worker, model_id FROM node.check_count WHERE kind = $1", str(Kind.CANARY)
            )
            new -= {(Address(row["worker"]), ModelId(row["model_id"])) for row in rows}
        return new

    async def send(self, worker: Address, model: ModelId, known: Sequence[Canary]) -> None:
        """One of those of that model, if the worker is free now. Its answer is compared and goes
        nowhere else."""
        desk = self._desk
        fitting = [one for one in known if one.model_id == model and one.digest is not None]
        if not fitting or worker not in desk.pool:
            desk.inspection.due.discard((worker, model))
            return
        if not desk.pool.is_free(worker):
            return
        canary = secrets.choice(fitting)
        job = await self._job(canary)
        try:
            async with desk.ask(worker, job, _limit_s(job)) as outcome:
                desk.inspection.due.discard((worker, model))
                async with desk.writing() as connection:
                    if isinstance(outcome, SignedResult):
                        await desk.inspection.judge_canary(
                            connection, canary, job, outcome, on_chain=False
                        )
                    elif outcome.kind is not FailureKind.BUSY:
                        await desk.note(connection, job, worker, outcome)
                        await desk.count(connection, worker, model, Kind.CANARY, Outcome.NOT_DONE)
        except UnknownWorker:
            return
        except Exception as error:
            if not is_unstorable(error):
                raise
            # Its text may quote the output.
            log.warning("answer_not_stored", worker="0x" + worker.hex(), error=type(error).__name__)
            async with desk.writing() as connection:
                await desk.count(connection, worker, model, Kind.CANARY, Outcome.NOT_DONE)
        desk.on_change()

    async def learn(self, canary: Canary) -> None:
        """Its answer, by one of this operator's own workers where one is free."""
        pool = self._desk.pool
        own = [one for one in free_for(pool, canary.model_id) if trusts(pool, one)]
        if not own:
            return
        job = await self._job(canary)
        try:
            async with self._desk.ask(own[0], job, _limit_s(job)) as outcome:
                if isinstance(outcome, SignedResult):
                    async with self._desk.writing() as connection:
                        await canaries.learn(connection, canary, outcome)
        except UnknownWorker:
            return

    async def _job(self, canary: Canary) -> Job:
        async with self._desk.database.acquire() as connection:
            return await canaries.job_of(connection, canary, time.time())


def _limit_s(job: Job) -> float:
    return min(LONGEST_WAIT_S, max(LEAST_WAIT_S, job.deadline_s - time.time()))
