"""Agents in processes of their own, started again when they die, each on its own port."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from eth_keys.datatypes import PrivateKey

from indexer.types import Address, Contracts
from inferd.bench.workers.kinds import Kind, backend_of
from inferd.node.logs import configure_logs
from inferd.workers.backends.opening import Stock
from inferd.workers.model_files import ModelFile
from inferd.workers.service.agent import Post, opened_log, serving
from inferd.workers.service.settings import AgentSettings

_STARTED_WITHIN_S = 120.0
_ENDED_WITHIN_S = 30.0
_PAUSE_S = 0.2
"""Between a death and the next start, as a supervisor has it."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one process is told."""

    kind: Kind
    key: bytes = field(repr=False)
    contracts: Contracts
    operator: str
    """Whom it answers."""
    folder: Path
    model: ModelFile
    slots: int = 1
    port: int = 0

    @property
    def post(self) -> Post:
        return Post(self.kind, PrivateKey(self.key), self.contracts, self.slots, 1024)


@dataclass
class Hired:
    """One worker, whichever process it is at the moment."""

    order: Order
    url: str = ""
    deaths: int = 0
    """How often its process has died by itself."""
    process: ForkServerProcess | None = None

    @property
    def address(self) -> Address:
        return self.order.post.address

    async def begin(self) -> None:
        """Starts it, and waits until it listens. Raises TimeoutError."""
        place = self.order.post.folder(self.order.folder) / "agent.json"
        place.unlink(missing_ok=True)
        process = multiprocessing.get_context("forkserver").Process(
            target=run, args=(self.order,), daemon=True
        )
        await asyncio.to_thread(process.start)
        self.process = process
        async with asyncio.timeout(_STARTED_WITHIN_S):
            while not place.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.02)
        self.url = json.loads(place.read_text())["url"]
        self.order = replace(self.order, port=int(self.url.rpartition(":")[2]))

    async def keep_up(self) -> None:
        """Starts it again whenever it has ended."""
        while True:
            process = self.process
            if process is None or process.is_alive():
                await asyncio.sleep(0.05)
                continue
            self.deaths += 1
            await asyncio.sleep(_PAUSE_S)
            await self.begin()

    async def end(self) -> None:
        process = self.process
        if process is None or process.pid is None:
            return
        if process.is_alive():
            os.kill(process.pid, signal.SIGTERM)
            await asyncio.to_thread(process.join, _ENDED_WITHIN_S)
        process.kill()
        await asyncio.to_thread(process.join)


@asynccontextmanager
async def crew(orders: Sequence[Order]) -> AsyncIterator[dict[Kind, Hired]]:
    """All of them, up, and kept up until the end. A kind is there once at most."""
    multiprocessing.get_context("forkserver").set_forkserver_preload([__name__])
    hired = {order.kind: Hired(order) for order in orders}
    try:
        async with asyncio.TaskGroup() as starting:
            for one in hired.values():
                starting.create_task(one.begin())
        keeping = [asyncio.create_task(one.keep_up()) for one in hired.values()]
        try:
            yield hired
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.wait(keeping)
    finally:
        await asyncio.gather(*(one.end() for one in hired.values()))


def run(order: Order) -> None:
    """What such a process does until SIGTERM."""
    order.folder.mkdir(parents=True, exist_ok=True)
    sys.stdout = sys.stderr = (order.folder / f"{order.kind}.log").open("a", buffering=1)
    configure_logs("info", "json")
    asyncio.run(_serve(order))


async def _serve(order: Order) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    backend = backend_of(order.kind, order.model)
    await backend.start()
    log = opened_log(order.post, order.folder)
    settings = AgentSettings(
        port=order.port, metrics_port=0, operators=(order.operator,), queue=4 * order.slots
    )
    try:
        async with serving(
            order.post,
            Stock((backend,)),
            settings,
            log,
            folder=order.post.folder(order.folder),
            tokens_per_s={},
        ):
            await stop.wait()
    finally:
        await log.close()
        await backend.close()
