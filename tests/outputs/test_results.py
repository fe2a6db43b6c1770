"""Large outputs on their way: from a worker into a file and its row, and out by the API."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from indexer.database import Connection, Pool
from inferd.node.api import ApiState, build_api
from inferd.node.health import Health
from inferd.node.server import bind, serve, url_of
from inferd.node.settings import ApiSettings
from inferd.outputs.files import ORPHAN_S, OutputFiles, OutputUnreadable
from inferd.outputs.sweep import sweep_files
from inferd.outputs.unwritten import Unwritten
from inferd.protocol.result import digest_of
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job, WorkerFailed
from inferd.workers.leases import FailureKind, Lease, failure_kind
from inferd.workers.pool import WorkerPool
from inferd.workers.results import ResultLog
from tests.workers.support import Scripted, a_job, a_worker, lease_for, until

LARGE = b"a large output " * 100


@pytest.fixture
def files(tmp_path: Path) -> OutputFiles:
    return OutputFiles(tmp_path / "outputs", above_bytes=1_000)


async def answered(pool: Pool, files: OutputFiles, job: Job, output: bytes) -> ResultLog:
    async def answer(_: Job) -> bytes:
        return output

    worker = a_worker(pool, Scripted(answer))
    changes: list[str] = []
    dispatcher = Dispatcher(
        WorkerPool([worker]), pool, fence=None, on_change=changes.append, files=files
    )
    async with pool.acquire() as connection:
        await known(connection, job)
    dispatcher.start(await lease_for(pool, job, worker.address), job)
    await until(lambda: changes)
    await dispatcher.close()
    return ResultLog(pool, files)


async def known(connection: Connection, job: Job) -> None:
    await connection.execute(
        "INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input,"
        " max_tokens, memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei,"
        " deadline_s, submitted_deadline_s, created_block, created_block_hash, created_log_index,"
        " created_tx_hash, created_at_s) VALUES ($1, $2, $3, $4, 0, '', 0, 0, 0, 1, true, 0, 1,"
        " $5, $5, 1, '', 0, '', 1)",
        job.request_id,
        job.commitment,
        b"\x33" * 20,
        job.model_id,
        job.deadline_s,
    )


def age(folder: Path) -> None:
    long_ago_s = time.time() - 2 * ORPHAN_S
    for file in folder.rglob("*"):
        os.utime(file, (long_ago_s, long_ago_s))


async def test_large_in_a_file_small_in_the_row_both_read_back(
    pool: Pool, files: OutputFiles, tmp_path: Path
) -> None:
    for number, output in ((1, LARGE), (2, b"small")):
        job = a_job(number)
        log = await answered(pool, files, job, output)
        worker = await pool.fetchval("SELECT DISTINCT worker FROM node.result")
        found = await log.recorded(worker, job.key)
        assert found is not None
        assert found.output == output
    rows = await pool.fetch("SELECT output, file_bytes FROM node.result ORDER BY request_id")
    assert [tuple(row) for row in rows] == [(None, len(LARGE)), (b"small", None)]
    assert files.read(digest_of(LARGE)) == LARGE


async def test_a_lost_file_is_never_computed_into_another_answer(
    pool: Pool, files: OutputFiles, tmp_path: Path
) -> None:
    job = a_job()
    log = await answered(pool, files, job, LARGE)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(WorkerFailed, match="not on this machine"):
        await log.recorded(await pool.fetchval("SELECT worker FROM node.result"), job.key)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows beyond 500 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def of_its_size(job: Job) -> bytes:
    return b"." * int(job.input)


HUGE = 900_000


@dataclass
class Serving:
    """A dispatcher over one worker whose answers are as long as it is asked for."""

    pool: Pool
    files: OutputFiles

    def __post_init__(self) -> None:
        self.worker = a_worker(self.pool, Scripted(of_its_size))
        self.changes: list[str] = []
        self.dispatcher = Dispatcher(
            WorkerPool([self.worker]),
            self.pool,
            fence=None,
            on_change=self.changes.append,
            files=self.files,
        )

    async def serve(self, number: int, size: int) -> Lease:
        job = a_job(number, str(size).encode())
        async with self.pool.acquire() as connection:
            await known(connection, job)
        lease = await lease_for(self.pool, job, self.worker.address)
        self.dispatcher.start(lease, job)
        return lease

    async def stored(self) -> list[tuple[int, int | None]]:
        rows = await self.pool.fetch(
            "SELECT request_id, file_bytes FROM node.result ORDER BY request_id"
        )
        return [tuple(row) for row in rows]


async def test_the_disk_is_full_for_a_while__results_are_kept_and_hold_up_no_small_ones(
    pool: Pool, files: OutputFiles
) -> None:
    serving = Serving(pool, files)
    with full_disk():
        await serving.serve(1, HUGE)
        await until(lambda: serving.dispatcher.unwritten.count)
        assert serving.dispatcher.unwritten.reason == "File too large"
        for number in range(2, 6):
            await serving.serve(number, 10)
        await until(lambda: len(serving.changes) == 4)
        assert [request for request, _ in await serving.stored()] == [2, 3, 4, 5]
    await until(lambda: len(serving.changes) == 5)
    assert (await serving.stored())[0] == (1, HUGE)
    assert len(files.read(digest_of(b"." * HUGE))) == HUGE
    assert serving.dispatcher.unwritten.count == 0
    assert set(serving.changes) == {"stored"}
    await serving.dispatcher.close()


async def test_neither_disk_nor_memory_has_room__the_request_is_computed_later_at_no_cost(
    pool: Pool, files: OutputFiles
) -> None:
    serving = Serving(pool, files)
    serving.dispatcher.unwritten = Unwritten(most_bytes=HUGE + 1)
    with full_disk():
        await serving.serve(1, HUGE)
        await until(lambda: serving.dispatcher.unwritten.count)
        lease = await serving.serve(2, HUGE + 1)
        await until(lambda: serving.changes)
        assert serving.changes == ["busy"]
        row = await pool.fetchrow("SELECT state, failure FROM node.lease WHERE id = $1", lease.id)
        assert row["state"] == "failed"
        assert failure_kind(row["failure"]) is FailureKind.BUSY
        assert "File too large" in row["failure"]
        assert await pool.fetchval("SELECT count(*) FROM node.service_stat") == 0
    await until(lambda: len(serving.changes) == 2)
    assert await serving.stored() == [(1, HUGE)]
    await serving.dispatcher.close()


async def test_a_sweep_takes_what_no_row_names(
    pool: Pool, files: OutputFiles, tmp_path: Path
) -> None:
    await answered(pool, files, a_job(), LARGE)
    orphan = b"its transaction was never committed " * 100
    files.put(digest_of(orphan), orphan)
    assert await sweep_files(pool, files) == 0
    age(tmp_path)
    assert await sweep_files(pool, files) == 1
    assert files.read(digest_of(LARGE)) == LARGE
    with pytest.raises(OutputUnreadable):
        files.read(digest_of(orphan))
    await pool.execute("DELETE FROM node.result")
    age(tmp_path)
    assert await sweep_files(pool, files) == 1


@pytest.fixture
async def url(pool: Pool, files: OutputFiles) -> AsyncIterator[str]:
    listener = bind(ApiSettings(port=0))
    listener.listen()
    state = ApiState(Health(), db=pool, outputs=files)
    serving = asyncio.create_task(serve(build_api(state), listener))
    yield url_of(listener)
    serving.cancel()
    await asyncio.wait([serving])
    listener.close()


async def test_the_api_gives_proof_and_bytes(pool: Pool, files: OutputFiles, url: str) -> None:
    await answered(pool, files, a_job(1), LARGE)
    await answered(pool, files, a_job(2), b"small")
    async with aiohttp.ClientSession(url) as session:
        async with session.get("/v1/results/1") as response:
            large = await response.json()
        async with session.get("/v1/results/2") as response:
            small = await response.json()
        assert (large["output_base64"], large["output_bytes"]) == (None, len(LARGE))
        assert (small["output_base64"], small["output_bytes"]) == ("c21hbGw=", 5)
        assert large["digest"] == "0x" + digest_of(LARGE).hex()
        async with session.get("/v1/results/1/output") as response:
            assert await response.read() == LARGE
            assert response.headers["content-type"] == "text/plain"
            assert response.headers["x-content-type-options"] == "nosniff"
            tag = response.headers["etag"]
        assert tag == f'"{large["digest"]}"'
        async with session.get(
            "/v1/results/1/output", headers={"if-none-match": f'W/{tag}, "other"'}
        ) as response:
            assert (response.status, await response.read()) == (304, b"")
        await pool.execute("UPDATE node.result SET media_type = $1", "text/html\r\nx: y")
        async with session.get("/v1/results/2/output") as response:
            assert await response.read() == b"small"
            assert response.headers["content-type"] == "application/octet-stream"
        await pool.execute("UPDATE node.result SET file_bytes = NULL WHERE request_id = 1")
        async with session.get("/v1/results/1/output") as response:
            assert response.status == 410
        async with session.get("/v1/results/3/output") as response:
            assert response.status == 404
