"""A daemon in a process of its own, for the time that a command needs one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from indexer.errors import ExitCode, OperatorError
from indexer.threads import in_thread
from inferd.chain.child import die_with_parent
from inferd.cli.client import NodeClient, NodeUnreachable

_READY_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0


class DaemonDied(OperatorError):
    """The daemon of a demo or a benchmark ended by itself, or never became ready."""

    code: ClassVar[str] = "daemon_died"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


def start_daemon(folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """A daemon with the folder's inferd.toml, and where it writes its log."""
    log = folder / "node.log"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("INFERD_")}
    if cache := os.environ.get("INFERD_CACHE_DIR"):
        environment["INFERD_CACHE_DIR"] = cache
    with log.open("ab") as output:
        # In a session of its own it does not get the terminal's Ctrl-C: the demo ends it in order.
        daemon = subprocess.Popen(
            [sys.executable, "-m", "inferd", "--config", str(folder / "inferd.toml"), "node"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
        )
    return daemon, log


async def until_ready(folder: Path, daemon: subprocess.Popen[bytes], log: Path) -> str:
    """The URL of its API. Raises DaemonDied."""
    announced = folder / "api.json"
    try:
        async with asyncio.timeout(_READY_TIMEOUT_S):
            while True:
                if daemon.poll() is not None:
                    raise died(log, f"ended with exit code {daemon.returncode}")
                if announced.is_file():
                    url: str = json.loads(announced.read_text())["url"]
                    if await _is_ready(url):
                        return url
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise died(log, f"is not ready after {_READY_TIMEOUT_S:.0f} s") from None


async def _is_ready(url: str) -> bool:
    try:
        async with NodeClient(url) as client:
            return (await client.status()).ready
    except NodeUnreachable:
        return False


async def stop_daemon(daemon: subprocess.Popen[bytes]) -> None:
    """As its supervisor would."""
    daemon.terminate()
    try:
        await in_thread(lambda: daemon.wait(_STOP_TIMEOUT_S))
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def died(log: Path, what: str) -> DaemonDied:
    """The error, with the end of the log."""
    tail = log.read_text(errors="replace")[-1500:] if log.exists() else ""
    return DaemonDied(f"the daemon {what}; the end of {log}:\n{tail}", help_text="read its log")
