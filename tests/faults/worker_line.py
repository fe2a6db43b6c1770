"""A dispatcher and an agent with a network between them that fails as a test says."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from indexer.database import Pool
from indexer.types import Address
from inferd.net.guarded import GuardedClient
from inferd.net.reach import OWN_MACHINE_AND_NETWORKS
from inferd.protocol.request import model_id
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import CompactSignature, group_digest, recover
from inferd.workers import reputation
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job
from inferd.workers.leases import FailureKind, Lease, failure_kind
from inferd.workers.pool import WorkerPool
from inferd.workers.remote.client import Operator, WorkerClient
from inferd.workers.remote.worker import Announced, RemoteOffer, RemoteWorker
from inferd.workers.retries import RetryBudget
from tests.faults.worker_proxy import Call, WorkerProxy, between
from tests.workers.remote.scripted import OPERATOR
from tests.workers.service import support as agents
from tests.workers.support import MODEL, a_job, lease_for, until

_OWNER = Address(b"\x22" * 20)
_TIMEOUT_S = 2.0
POLL_S = 0.5
"""So that a connection that is silent for ever is given up after 4.5 s."""


@dataclass
class Line:
    """A dispatcher, the network, and the agent at its other end."""

    database: Pool
    pool: WorkerPool
    dispatcher: Dispatcher
    proxy: WorkerProxy
    folder: Path
    outcomes: list[str]
    budget: RetryBudget

    async def serve(self, job: Job, *, attempt: int = 1, lease_ms: int = 100_000) -> Lease:
        lease = await lease_for(
            self.database, job, agents.WORKER, attempt=attempt, lease_ms=lease_ms
        )
        self.dispatcher.start(lease, job)
        return lease

    async def end_of(self, lease: Lease) -> tuple[str, FailureKind | None]:
        row = await self.database.fetchrow(
            "SELECT state, failure FROM node.lease WHERE id = $1", lease.id
        )
        return row["state"], failure_kind(row["failure"]) if row["failure"] else None

    async def until_at_rest(self, ended: int) -> None:
        """So many endings are written, and nothing is under way."""
        await until(lambda: len(self.outcomes) >= ended, 100)
        await until(self._rests, 100)
        assert self.pool.in_flight(agents.WORKER) == 0
        assert self.pool.standing(agents.WORKER).rests_s == 0.0

    def _rests(self) -> bool:
        dispatcher = self.dispatcher
        return not (dispatcher.running or dispatcher.waiting_late or dispatcher._drops)

    async def results(self) -> dict[int, bytes]:
        """Outputs by request, each signed by the worker for that request."""
        rows = await self.database.fetch("SELECT * FROM node.result")
        found: dict[int, bytes] = {}
        for row in rows:
            item = ResultItem(row["request_id"], row["commitment"], row["digest"])
            signed = group_digest(agents.RESULTS_DOMAIN, pack_items([item]))
            assert recover(signed, CompactSignature(row["signature"])) == agents.WORKER
            assert row["digest"] == digest_of(row["output"])
            assert row["request_id"] not in found
            found[row["request_id"]] = row["output"]
        return found

    async def counts(self) -> tuple[int, ...]:
        """Good, late, failed, timeouts, lies."""
        async with self.database.acquire() as connection:
            (one,) = await reputation.load(connection, agents.WORKER)
        return one.good, one.late, one.failed, one.timeouts, one.lies

    def at_the_agent(self, table: str) -> int:
        """Rows of its log."""
        (file,) = self.folder.glob("worker-*/*.db")
        with contextlib.closing(sqlite3.connect(file)) as db:
            return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@asynccontextmanager
async def a_line(
    database: Pool, agent_url: str, folder: Path, budget: RetryBudget
) -> AsyncIterator[Line]:
    await asyncio.sleep(0)  # The agent's own tasks have begun after that.
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(between(agent_url))
        http = await stack.enter_async_context(GuardedClient(OWN_MACHINE_AND_NETWORKS))
        operator = Operator(
            OPERATOR.address, OPERATOR.signer, agents.API_DOMAIN, agents.RESULTS_DOMAIN
        )
        client = WorkerClient(http, proxy.url, agents.WORKER, operator, timeout_s=_TIMEOUT_S)
        worker = RemoteWorker(client, budget, max_output_bytes=10_000)
        offer = RemoteOffer(MODEL, 50.0, loaded=True, load_ms=0.0)
        worker.announced = Announced({model_id(MODEL): offer}, 4, 1000)
        await database.execute(
            "INSERT INTO chain.worker VALUES ($1, $2, $3, '', 4, 1000, true, true, 1, 0, 1)",
            agents.WORKER,
            _OWNER,
            [model_id(MODEL)],
        )
        workers, outcomes = WorkerPool([]), list[str]()
        workers.join(worker, held=None)
        dispatcher = Dispatcher(
            workers, database, fence=None, on_change=outcomes.append, budget=budget
        )
        yield Line(database, workers, dispatcher, proxy, folder, outcomes, budget)
        await dispatcher.close()
    await until(lambda: not asyncio.all_tasks() - {*before, asyncio.current_task()})


def job(number: int) -> Job:
    return a_job(number, b"%d" % number)


async def cut_before(call: Call) -> None:
    call.reset()


async def cut_after(call: Call) -> None:
    await call.ask()
    call.reset()


async def closed_after(call: Call) -> None:
    await call.ask()
    call.close()


async def cut_in_the_answer(call: Call) -> None:
    answer = await call.ask()
    await call.say(answer[: len(answer) - 20])
    call.reset()


async def closed_in_the_answer(call: Call) -> None:
    answer = await call.ask()
    await call.say(answer[: len(answer) - 20])
    call.close()


async def cut_in_the_head(call: Call) -> None:
    answer = await call.ask()
    await call.say(answer[:30])
    call.close()


async def cut_in_the_question(call: Call) -> None:
    await call.half_ask(len(call.sent) - 20)
    call.reset()


async def half_open(call: Call) -> None:
    await call.ask()
    await call.silence()


async def half_open_unheard(call: Call) -> None:
    await call.silence()
