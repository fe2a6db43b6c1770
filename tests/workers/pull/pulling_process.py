"""An agent that pulls, in a process of its own: `python pulling_process.py FOLDER`.

It notes each computation and never computes the same twice; the answer to the first one takes
until there is a file `go`. The broker's URL is in the variable BROKER.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from pathlib import Path

from inferd.workers.backends.opening import Stock
from inferd.workers.job import Job
from inferd.workers.pull.broker import Broker
from inferd.workers.service.agent import Post, opened_log, serving
from tests.workers.service.support import CONTRACTS, WORKER_KEY, settings
from tests.workers.support import Scripted


async def work(folder: Path) -> None:
    async def answer(job: Job) -> bytes:
        with (folder / "computed").open("a") as noted:
            noted.write(f"{job.request_id}\n")
        while not (folder / "go").exists():
            await asyncio.sleep(0.01)
        return secrets.token_bytes(16)

    post = Post("text", WORKER_KEY, CONTRACTS, 2, 1000)
    log = opened_log(post, folder)
    async with serving(
        post,
        Stock((Scripted(answer),)),
        settings(),
        log,
        folder=post.folder(folder),
        tokens_per_s={},
        broker=Broker(os.environ["BROKER"]),
    ) as agent:
        await agent.upkeep


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
