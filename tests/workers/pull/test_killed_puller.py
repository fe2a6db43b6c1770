"""A puller that is killed in mid-job: its work comes again when it does, and counts once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from inferd.workers.pull import names
from tests.workers.pull import pulling_process
from tests.workers.pull.redis_server import RedisServer
from tests.workers.pull.support import an_asker
from tests.workers.service.support import WORKER
from tests.workers.support import a_job


@contextlib.contextmanager
def puller(redis: RedisServer, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, str(Path(pulling_process.__file__)), str(folder)],
        env={**os.environ, "BROKER": redis.admit(WORKER)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def until_computing(folder: Path, times: int) -> None:
    noted = folder / "computed"
    while not noted.exists() or noted.read_text().count("\n") < times:
        await asyncio.sleep(0.02)


def signed(folder: Path) -> list[tuple[object, ...]]:
    """What the log of signatures has."""
    (place,) = folder.glob("worker-*/signatures-*.db")
    with contextlib.closing(sqlite3.connect(place)) as log:
        return log.execute("SELECT hex(digest) FROM result").fetchall()


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    place = tmp_path / "agent"
    place.mkdir()
    yield place


async def test_killed_before_its_answer_it_computes_once_more(
    redis: RedisServer, folder: Path
) -> None:
    async with an_asker(redis, timeout_s=60.0) as asker:
        with puller(redis, folder):
            asked = asyncio.create_task(asker.worker.compute(a_job(1)))
            await until_computing(folder, 1)
        with redis.client() as client:
            assert client.hlen(names.prefix(WORKER) + "unacked") == 1, "it had taken the task"
            assert client.llen(names.queue(WORKER)) == 0
        (folder / "go").touch()
        with puller(redis, folder):
            result = await asked
            assert asker.next_number() == 1, "the very message that was taken is answered"
            with redis.client() as client:
                while client.hlen(names.prefix(WORKER) + "unacked"):
                    await asyncio.sleep(0.02)
    assert (folder / "computed").read_text() == "1\n1\n"
    assert signed(folder) == [(result.digest.hex().upper(),)]


async def test_killed_after_it_signed_the_signed_answer_is_given(
    redis: RedisServer, folder: Path
) -> None:
    (folder / "go").touch()
    async with an_asker(redis, timeout_s=60.0) as asker:
        with puller(redis, folder):
            first = await asker.worker.compute(a_job(1))
        with puller(redis, folder):
            second = await asker.worker.compute(a_job(1))
    # It answers otherwise each time, so this is no second computation's.
    assert second.output == first.output
    assert second.signature == first.signature
    assert (folder / "computed").read_text() == "1\n"
    assert len(signed(folder)) == 1
