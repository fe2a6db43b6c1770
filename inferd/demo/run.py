"""Runs the demo from an empty folder to checked results."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from indexer.errors import ExitCode, OperatorError
from inferd.chain.requester import cancel, submit
from inferd.cli.client import NodeClient, NotFound
from inferd.demo.script import DemoRequest
from inferd.demo.show import Board, show_report
from inferd.demo.verify import verify
from inferd.demo.world import World, built
from inferd.node.api_models import RequestState, RequestView
from inferd.node.supervise import first_cause

_POLL_S = 0.25
_TIMEOUT_S = 180.0
_DONE = {RequestState.SETTLED, RequestState.REFUNDED}


class NotAsPromised(OperatorError):
    """The demo ran, and something it checks does not hold."""

    code: ClassVar[str] = "not_as_promised"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


def run_demo(folder: Path, script: Sequence[DemoRequest], console: Console) -> None:
    """Runs it in `folder`, which it empties first and leaves with its logs.

    Raises NotAsPromised, KeyboardInterrupt, and what goes wrong on the way.
    """
    try:
        asyncio.run(_until_interrupted(folder.resolve(), script, console))
    except BaseExceptionGroup as group:
        raise first_cause(group) from None


async def _until_interrupted(folder: Path, script: Sequence[DemoRequest], console: Console) -> None:
    work = asyncio.create_task(_demo(folder, script, console))
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if not interrupted:  # the way down is not interrupted again: it leaves no process behind
            interrupted = True
            work.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    with contextlib.suppress(asyncio.CancelledError):
        await work
    if interrupted:
        raise KeyboardInterrupt


async def _demo(folder: Path, script: Sequence[DemoRequest], console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    async with built(folder, say) as world:
        asked = await _ask(world, script)
        say(f"{len(asked)} requests are on chain")
        async with asyncio.TaskGroup() as tasks:
            for request_id, request in asked.items():
                if request.cancel:
                    contracts = world.deployment.contracts
                    tasks.create_task(cancel(world.requester, contracts, request_id))
            views = await _watch(world, asked, console)
        report = await verify(world, asked, views)
        show_report(console, report)
    if report.broken:
        raise NotAsPromised(
            f"{len(report.broken)} promise(s) of the demo do not hold: {report.broken[0]}",
            help_text=f"the logs are in {folder}",
        )


async def _ask(world: World, script: Sequence[DemoRequest]) -> dict[int, DemoRequest]:
    """Submits all at once, one transaction each, as `inferd submit` does."""
    contracts = world.deployment.contracts
    head = await world.rpc.header("latest")
    if head is None:
        raise AssertionError("Anvil has a newest block")
    async with asyncio.TaskGroup() as tasks:
        sends = [
            tasks.create_task(
                submit(
                    world.requester, contracts, request.params(head.timestamp_s), request.fee_wei
                )
            )
            for request in script
        ]
    asked = {send.result().request_id: request for send, request in zip(sends, script, strict=True)}
    return dict(sorted(asked.items()))


async def _watch(
    world: World, asked: Mapping[int, DemoRequest], console: Console
) -> dict[int, RequestView]:
    """Until every request is settled or refunded. Raises NotAsPromised after three minutes."""
    names = {
        world.account(worker.key).address.lower(): worker.name for worker in world.settings.workers
    }
    views: dict[int, RequestView] = {}
    try:
        async with asyncio.timeout(_TIMEOUT_S), NodeClient(world.node_url) as client:
            with Board(console, names) as board:
                while len(views) < len(asked) or any(v.state not in _DONE for v in views.values()):
                    world.check_daemon()
                    with contextlib.suppress(NotFound):
                        page = await client.requests(len(asked))
                        views = {view.id: view for view in page.requests if view.id in asked}
                    board.update(views)
                    await asyncio.sleep(_POLL_S)
    except TimeoutError:
        open_ids = [str(i) for i in asked if i not in views or views[i].state not in _DONE]
        raise NotAsPromised(
            f"after {_TIMEOUT_S:.0f} s these requests are still open: {', '.join(open_ids)}",
            help_text=f"look into {world.log}",
        ) from None
    return views
