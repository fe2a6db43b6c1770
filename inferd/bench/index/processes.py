"""The processes of a benchmark: how one run is started, and what others have cost."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from inferd.bench.index.jobs import Job
from inferd.chain.child import die_with_parent

_PROC = Path("/proc")


async def start_run(job: Job, *, stdout: int) -> asyncio.subprocess.Process:
    """A process for one job: a Ctrl-C does not reach it, and it ends when this process does."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "inferd.bench.index.run", msgspec.json.encode(job).decode()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def cpu_s_of(pid: int) -> float:
    """Seconds of CPU that a process, its children that run and those that ended have taken.

    0.0 where the system has no /proc.
    """
    total, parents = 0.0, {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It ended meanwhile; its parent has its share.
        parents[int(folder.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    for at, (parent, ticks) in parents.items():
        if pid in (at, parent):
            total += ticks / os.sysconf("SC_CLK_TCK")
    return total
