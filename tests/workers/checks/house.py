"""Workers on other machines over real HTTP, with dispatch and checks over a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from eth_keys.datatypes import PrivateKey

from indexer.database import Pool
from indexer.types import Address
from inferd.node.views import one_request
from inferd.node.why import why
from inferd.protocol.request import model_id
from inferd.protocol.worker_api import JobDone, JobId
from inferd.settlement.postable import POSTABLE, RELEASED
from inferd.workers import reputation
from inferd.workers.checks import counts, evidence
from inferd.workers.checks.checking import Checker
from inferd.workers.checks.counts import Outcome
from inferd.workers.checks.desk import Desk
from inferd.workers.checks.evidence import Kind, Recorded
from inferd.workers.checks.inspection import Inspection
from inferd.workers.checks.rules import ALL_PPM, CheckRules, ModelRule
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job
from inferd.workers.local import LocalWorker
from inferd.workers.pool import WorkerPool
from inferd.workers.remote.worker import RemoteWorker
from tests.workers.remote.scripted import ScriptedWorker, listening, remote, signed
from tests.workers.support import MODEL, Scripted, a_worker, lease_for

ALWAYS = CheckRules({model_id(MODEL): ModelRule(deterministic=True)}, spot_ppm=ALL_PPM)
OURS = Address(b"\x0f" * 20)
"""The operator's own account."""


def says(key: PrivateKey, output: bytes) -> Callable[[JobId, JobDone], JobDone]:
    """Another answer, as well signed as the right one."""
    return lambda job, done: signed(job, output, key)


class House:
    """Any `rules`; a second house over the same database is a daemon that leads after it."""

    def __init__(
        self, database: Pool, rules: CheckRules = ALWAYS, own: Sequence[LocalWorker] = ()
    ) -> None:
        """`own` are workers of this process."""
        self.database = database
        self.own = own
        self.pool = WorkerPool(own)
        self.outcomes: list[tuple[Kind, Outcome]] = []
        self.changes = 0
        self.proved = 0.0
        """Of whoever succeeds less surely it is taken to be on probation."""
        self.inspection = Inspection(
            self.pool,
            rules,
            proved=lambda: self.proved,
            on_outcome=lambda kind, outcome: self.outcomes.append((kind, outcome)),
        )
        self.dispatcher = Dispatcher(
            self.pool,
            database,
            fence=None,
            on_change=lambda _: None,
            proved=lambda: 0.0,
            inspection=self.inspection,
        )
        desk = Desk(
            self.pool, database, self.inspection, self.dispatcher.asked, None, None, self._changed
        )
        self.checker = Checker(desk, {model_id(MODEL): MODEL}, proved=lambda: self.proved)
        self.stack = AsyncExitStack()

    def _changed(self) -> None:
        self.changes += 1

    async def hire(
        self, number: int, *, owner: int | None = None, slots: int = 4
    ) -> ScriptedWorker:
        """A stranger's, whose owner is its own unless it is said."""
        scripted = ScriptedWorker(PrivateKey(bytes([number]) * 32), slots=slots)
        await self.stack.enter_async_context(listening(scripted))
        await self.register(scripted.address, Address(bytes([owner or 100 + number]) * 20))
        await self.meet(scripted)
        return scripted

    async def meet(self, scripted: ScriptedWorker) -> None:
        """Takes a worker that listens already into the pool."""
        worker: RemoteWorker = await self.stack.enter_async_context(remote(scripted))
        self.pool.join(worker, held=None)
        await self.see()

    async def register(self, signer: Address, owner: Address) -> None:
        await self.database.execute(
            "INSERT INTO chain.worker VALUES ($1, $2, $3, '', 4, 1000, true, true, 1, 0, 1)"
            " ON CONFLICT DO NOTHING",
            signer,
            owner,
            [model_id(MODEL)],
        )

    async def see(self) -> None:
        """As a round does."""
        async with self.database.acquire() as connection:
            await self.pool.views(connection, [OURS])

    async def ask(self, job: Job, quorum: int = 1) -> None:
        """A request on chain."""
        await self.database.execute(
            "INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input,"
            " max_tokens, memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei,"
            " deadline_s, submitted_deadline_s, created_block, created_block_hash,"
            " created_log_index, created_tx_hash, created_at_s)"
            " VALUES ($1, $2, $3, $4, 0, $5, $6, 0, 0, $7, true, 0, 1, $8, $8, 1, '', 0, '', 1)",
            job.request_id,
            job.commitment,
            job.requester,
            job.model_id,
            job.input,
            job.max_tokens,
            quorum,
            job.deadline_s,
        )

    async def serve(self, job: Job, worker: ScriptedWorker, **request: int) -> None:
        """A request whose result by this worker is stored."""
        await self.ask(job, **request)
        await self.give(job, worker)

    async def give(self, job: Job, worker: ScriptedWorker, *, attempt: int = 1) -> None:
        lease = await lease_for(self.database, job, worker.address, attempt=attempt)
        self.dispatcher.start(lease, job)
        await self.settled()

    async def settled(self) -> None:
        """Until no lease is computed or written."""
        async with asyncio.timeout(30):
            while self.dispatcher.running:
                await asyncio.sleep(0.01)

    async def check(self, *, rested: bool = False, everything: bool = True) -> None:
        """Until a look finds nothing to do; `rested` after checks for which nobody was free."""
        if rested:
            self.checker._spot._rests.clear()
        async with asyncio.timeout(60):
            await self.checker.look(everything=everything)
            while self.checker.busy:
                await asyncio.sleep(0.01)
                await self.checker.look(everything=everything)

    async def begun(self) -> None:
        """Until those checks are over that have begun: what is due meanwhile waits for a look."""
        async with asyncio.timeout(60):
            while not all(task.done() for task in self.checker._tasks.values()):
                await asyncio.sleep(0.01)

    async def postable(self) -> list[tuple[int, Address]]:
        """What settlement may post, and by whom."""
        return await self._results(f"{POSTABLE} AND {RELEASED}")

    async def in_hand(self) -> list[tuple[int, Address]]:
        """What rounds take for computed."""
        return await self._results(POSTABLE)

    async def _results(self, condition: str) -> list[tuple[int, Address]]:
        rows = await self.database.fetch(
            f"SELECT request_id, worker FROM node.result n WHERE {condition} ORDER BY 1, 2"
        )
        return [(row["request_id"], row["worker"]) for row in rows]

    async def records(self, worker: Address | None = None) -> list[Recorded]:
        async with self.database.acquire() as connection:
            return await evidence.of_worker(connection, worker)

    async def suspended(self) -> set[Address]:
        async with self.database.acquire() as connection:
            return set(await reputation.suspensions(connection))

    async def counted(self, worker: ScriptedWorker, kind: Kind = Kind.SPOT) -> tuple[int, ...]:
        """Passed, failed, undecided, not done."""
        async with self.database.acquire() as connection:
            for one in await counts.load(connection, worker.address):
                if one.kind is kind:
                    return one.passed, one.failed, one.undecided, one.not_done
        return (0, 0, 0, 0)

    async def lies(self, worker: ScriptedWorker) -> int:
        async with self.database.acquire() as connection:
            return sum(one.lies for one in await reputation.load(connection, worker.address))

    async def why(self, request_id: int) -> str:
        """What `inferd why` says."""
        async with self.database.acquire() as connection:
            await connection.execute(
                "INSERT INTO chain.cursor (block_number, block_hash, timestamp_s, base_fee_wei,"
                " gas_limit, finalized_number) VALUES (1, '', 1, 1, 1, 0) ON CONFLICT DO NOTHING"
            )
            view = await one_request(connection, {}, request_id)
        assert view is not None
        return why(view).sentence

    async def close(self) -> None:
        await self.checker.close()
        await self.dispatcher.close()
        await self.stack.aclose()


@asynccontextmanager
async def living_in(
    database: Pool, rules: CheckRules = ALWAYS, *, own: Scripted | None = None
) -> AsyncIterator[House]:
    """With `own`, a worker of this process computes with it."""
    ours = [] if own is None else [a_worker(database, own, seed=77)]
    house = House(database, rules, ours)
    for worker in ours:
        await house.register(worker.address, OURS)
    await house.see()
    async with database.acquire() as connection, connection.transaction():
        await house.inspection.begin(connection)
    try:
        yield house
    finally:
        await house.close()
