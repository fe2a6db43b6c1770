"""SIGKILL before and after every wait between a request and its acknowledged answer.

The back end never gives the same bytes twice, so a second computation that got out would be a
second digest. Each point costs one process, which also answers what the one before it died of.
The agent has two models that make room for each other, and one log for both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.worker_api import (
    JOBS,
    SIGN,
    JobDone,
    JobId,
    JobRequest,
    SignRequest,
    encode,
    signed_item,
)
from tests.workers.service.doomed_agent import MODELS, Order, processes, run
from tests.workers.service.support import RESULTS_DOMAIN, WORKER, Operator, a_request, read
from tests.workers.support import until

_MUST_PASS = (
    "before the back end#1",
    "after the back end#1",
    "before the signature#1",
    "after the signature#1",
    "before log.record#1",
    "before BEGIN IMMEDIATE#1",
    "before COMMIT#1",
    "after log.record#1",
    "before the response leaves#1",
    "after the response left#1",
    "before log.acknowledge#1",
    "after log.acknowledge#1",
)


def a_job(number: int) -> JobRequest:
    """Of one model and the other by turns."""
    return a_request(number, model=MODELS[number % 2])


@contextlib.asynccontextmanager
async def process(folder: Path, victim: int, die_at: str | None) -> AsyncIterator[Any]:
    place = folder / f"worker-0x{WORKER.hex()}" / "agent.json"
    place.unlink(missing_ok=True)
    running = processes().Process(target=run, args=(Order(folder, victim, die_at),))
    running.start()
    try:
        await until(lambda: place.exists() or not running.is_alive(), 60)
        async with aiohttp.ClientSession() as session:
            yield Operator(json.loads(place.read_text())["url"], session=session)
        if die_at is None:
            os.kill(running.pid, signal.SIGTERM)
        await asyncio.to_thread(running.join, 60)
        assert running.exitcode == (0 if die_at is None else -signal.SIGKILL), die_at
    finally:
        running.kill()
        running.join()


async def ask_as_victim(operator: Operator, job: JobRequest) -> dict[JobId, JobDone]:
    """What the operator holds in its hands, whatever became of the worker."""
    held: dict[JobId, JobDone] = {}
    assert operator.session is not None
    body = encode(job)
    header = {"Authorization": operator.header("POST", JOBS, body), "Victim": "yes"}
    with contextlib.suppress(aiohttp.ClientError):
        async with operator.session.post(operator.url + JOBS, data=body, headers=header) as got:
            answer = read((got.status, await got.read(), got.headers))
            assert isinstance(answer, JobDone)
            held[job.id] = answer
        await operator.drop(job.id)
    return held


@pytest.mark.timeout(900)
async def test_one_digest_whatever_kills_it(tmp_path: Path) -> None:
    async with process(tmp_path, 1, None) as operator:
        held = await ask_as_victim(operator, a_job(1))
    points = json.loads((tmp_path / "points.json").read_text())
    assert set(_MUST_PASS) <= set(points), points

    for number, point in enumerate(points, 2):
        async with process(tmp_path, number, point) as operator:
            await _stands_by(operator, number - 1, held)
            held |= await ask_as_victim(operator, a_job(number))
    async with process(tmp_path, 0, None) as operator:
        await _stands_by(operator, len(points) + 1, held)
        items = [signed_item(done, job, WORKER, RESULTS_DOMAIN)[0] for job, done in held.items()]
        assert len(items) > 2
        status, _, _ = await operator.send("POST", SIGN, encode(SignRequest(pack_items(items))))
        assert status == 200
    (file,) = (tmp_path / f"worker-0x{WORKER.hex()}").glob("*.db")
    with contextlib.closing(sqlite3.connect(file)) as db:
        rows = dict(db.execute("SELECT request_id, digest FROM result").fetchall())
    for job, done in held.items():
        assert "0x" + rows[job.request_id].hex() == done.digest


async def _stands_by(operator: Operator, number: int, held: dict[JobId, JobDone]) -> None:
    """The new process says what the dead one said, or has said nothing."""
    job = a_job(number)
    before = held.get(job.id)
    answer = await operator.ask(job)
    if isinstance(answer, JobDone):
        assert before is None or answer == before
        item = signed_item(answer, job.id, WORKER, RESULTS_DOMAIN)[0]
    else:
        # It was acknowledged: the output is gone, and this back end cannot make it again.
        assert before is not None
        item = signed_item(before, job.id, WORKER, RESULTS_DOMAIN)[0]
    held.setdefault(job.id, answer if isinstance(answer, JobDone) else before)  # type: ignore[arg-type]
    await _signs(operator, item)


async def _signs(operator: Operator, item: ResultItem) -> None:
    status, _, _ = await operator.send("POST", SIGN, encode(SignRequest(pack_items([item]))))
    assert status == 200
