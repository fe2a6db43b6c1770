"""Jobs a second that the dispatcher bears on one core, with a real PostgreSQL behind it.

Leases are granted beforehand, a batch at a time; then all of the batch are dispatched, as many at a
time as there are slots, and their endings written: results, leases, what is learnt, reputation.
What counts is this process's processor time: PostgreSQL's is another core's. The reference is the
same jobs at the same workers by tasks that do nothing else, a batch of it after each of dispatch:
how many times as long dispatch takes means something on any machine, the rate on a quiet one.
"""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg

from indexer.database import Pool, prepare_connection
from indexer.types import Address
from inferd.bench.dispatch.workers import SERVICE_MS, SimulatedWorker
from inferd.bench.index.servers import fresh_database, temporary_server
from inferd.protocol.request import Commitment, ModelId, model_id
from inferd.workers import leases
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job, WorkerBusy
from inferd.workers.leases import Grant, Lease
from inferd.workers.pool import WorkerPool
from inferd.workers.remote.worker import RemoteOffer
from scheduler.model import RequestKey
from scheduler.patience import patience_of

_MODEL = "bench"
_SLOTS = 64
_BUSY_SHARE = 0.01
_REQUESTERS = 100
_OWNER = b"\x22" * 20
_REQUESTS = """
    INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input, max_tokens,
        memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei, deadline_s,
        submitted_deadline_s, created_block, created_block_hash, created_log_index,
        created_tx_hash, created_at_s)
    SELECT n, decode(lpad(to_hex(n), 40, '0'), 'hex'),
           decode(lpad(to_hex(n % $5), 40, '0'), 'hex'), $3, 0, 'a prompt', 64, 0, 0, 1, true, 0,
           1e16, $4::bigint, $4::bigint, 1, '', n, '', 1
    FROM generate_series($1::bigint, $2::bigint) n
"""


@dataclass(frozen=True, slots=True)
class Figures:
    jobs: int
    dispatch_us: float
    """Processor time of one job, the median over batches."""
    reference_us: float
    jobs_per_s: float
    """On one core."""
    ratio: float
    """Dispatch to reference."""
    bytes_per_job: float
    """By which Python's memory grew with each job, from the first quarter to the end: the median of
    all pairs of batches, so that a table that grows once is none of it."""
    objects_per_job: float
    """The same of small objects of any kind: also of bytes and numbers, which the collector does
    not know."""
    max_rss_mb: float

    def as_json(self) -> dict[str, Any]:
        return {name: round(value, 3) for name, value in asdict(self).items()}


async def measure(
    *, jobs: int, workers: int, batch: int, progress: Callable[[str], None]
) -> Figures:
    """Raises what starting the server raises."""
    with tempfile.TemporaryDirectory(prefix="inferd-bench-", ignore_cleanup_errors=True) as at:
        async with (
            temporary_server(Path(at)) as server,
            fresh_database(server) as url,
            asyncpg.create_pool(url, min_size=4, max_size=8, init=prepare_connection) as db,
        ):
            return await Bench(db, workers).run(jobs, batch, progress)


class Bench:
    """Jobs of simulated workers on a database that nobody else uses."""

    def __init__(self, db: Pool, workers: int) -> None:
        self._db = db
        self._dice = random.Random(1)  # noqa: S311 - draws times of service
        offer = RemoteOffer(_MODEL, SERVICE_MS, loaded=True, load_ms=0.0)
        self._model = ModelId(model_id(_MODEL))
        self._pool = WorkerPool([])
        self.workers = [
            SimulatedWorker(
                Address(number.to_bytes(20, "big")),
                {self._model: offer},
                random.Random(number),  # noqa: S311
                _SLOTS,
                _BUSY_SHARE,
            )
            for number in range(1, workers + 1)
        ]
        for worker in self.workers:
            self._pool.join(worker, held=None)
        self._dispatcher = Dispatcher(self._pool, db, fence=None, on_change=self._on_change)
        self._changed = asyncio.Event()
        self._expected = patience_of(3 * SERVICE_MS, 0.8, 0.2, 3.0)
        self._deadline_s = int(time.time()) + 3_600

    def _on_change(self, outcome: str) -> None:
        # A lease counts as running until its task has ended, a moment later.
        asyncio.get_running_loop().call_soon(self._changed.set)

    async def run(self, jobs: int, batch: int, progress: Callable[[str], None]) -> Figures:
        """Whole batches of them."""
        ours, others = [], []
        grown: list[tuple[int, int, int]] = []
        await self._db.executemany(
            "INSERT INTO chain.worker VALUES ($1, $2, $3, '', $4, 8000, true, true, 1, 0, 1)",
            [(one.address, _OWNER, [self._model], _SLOTS) for one in self.workers],
        )
        counted_from = max(1, jobs // batch // 4)
        for number in range(jobs // batch):
            granted = await self._grant(1 + number * batch, batch)
            if number % 10 == 0:
                async with self._db.acquire() as connection:
                    await self._pool.views(connection)
            ours.append(await _cpu_s(self._dispatch(granted)) / batch)
            others.append(await _cpu_s(self._reference(granted)) / batch)
            if number + 1 >= counted_from:
                kept = _python_bytes()
                grown.append(((number + 1) * batch, kept, sys.getallocatedblocks()))
            await self._db.execute("DELETE FROM chain.request")
            progress(f"{(number + 1) * batch} of {jobs} jobs")
        await self._dispatcher.close()
        ours_s, others_s = median(ours), median(others)
        return Figures(
            jobs=jobs // batch * batch,
            dispatch_us=ours_s * 1e6,
            reference_us=others_s * 1e6,
            jobs_per_s=1 / ours_s,
            ratio=ours_s / others_s,
            bytes_per_job=slope([(jobs, kept) for jobs, kept, _ in grown]),
            objects_per_job=slope([(jobs, blocks) for jobs, _, blocks in grown]),
            max_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        )

    async def _grant(self, first: int, count: int) -> list[tuple[Lease, Job]]:
        await self._db.execute(
            _REQUESTS, first, first + count - 1, self._model, self._deadline_s, _REQUESTERS
        )
        grants = [
            Grant(
                RequestKey(number, number.to_bytes(20, "big")),
                self.workers[number % len(self.workers)].address,
                1,
                30_000,
            )
            for number in range(first, first + count)
        ]
        async with self._db.acquire() as connection, connection.transaction():
            granted = await leases.grant_all(connection, grants)
        return [(lease, self._job(lease.key.id)) for lease in granted]

    def _job(self, number: int) -> Job:
        return Job(
            number,
            Commitment(number.to_bytes(20, "big")),
            self._model,
            _MODEL,
            b"a prompt",
            64,
            self._deadline_s,
        )

    async def _dispatch(self, granted: Sequence[tuple[Lease, Job]]) -> None:
        slots = len(self.workers) * _SLOTS
        for lease, job in granted:
            await self._until_running_below(slots)
            self._dispatcher.start(lease, job, self._expected)
        await self._until_running_below(1)

    async def _until_running_below(self, many: int) -> None:
        while self._dispatcher.running >= many:
            self._changed.clear()
            await self._changed.wait()

    async def _reference(self, granted: Sequence[tuple[Lease, Job]]) -> None:
        slots = asyncio.Semaphore(len(self.workers) * _SLOTS)
        by_address = {one.address: one for one in self.workers}

        async def one(lease: Lease, job: Job) -> None:
            async with slots:
                try:
                    await by_address[lease.worker].compute(job)
                except WorkerBusy:
                    return

        async with asyncio.TaskGroup() as tasks:
            for lease, job in granted:
                tasks.create_task(one(lease, job))


async def _cpu_s(work: Any) -> float:
    """Of this process."""
    gc.collect()
    before_s = time.process_time()
    await work
    return time.process_time() - before_s


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The Theil-Sen estimate: the median of the slopes of all pairs; 0 for less than two points."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2)]
    return median(slopes) if slopes else 0.0


def _python_bytes() -> int:
    """Bytes of all objects that the garbage collector knows."""
    gc.collect()
    return sum(sys.getsizeof(thing, 0) for thing in gc.get_objects())
