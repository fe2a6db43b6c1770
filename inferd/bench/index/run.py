"""One run of one way, in a process of its own: `python -m inferd.bench.index.run JOB`.

The job is JSON, and so is what it took, on stdout.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path

import msgspec

from inferd.bench.index.jobs import Copy, Job, Range, copy_of
from inferd.node.logs import configure_logs

_STATUS = Path("/proc/self/status")


class Took(msgspec.Struct, frozen=True):
    """What a run took, the start of its process left out."""

    wall_s: float
    cpu_s: float
    """Of this process alone, all of its threads."""
    peak_mb: float
    """Of the whole process, interpreter and modules included."""
    ranges: list[Range]


def main() -> None:
    configure_logs("warning", "console")
    job = msgspec.json.decode(sys.argv[1], type=Job)
    copy = copy_of(job.way)
    started_s, cpu_before_s = time.perf_counter(), time.process_time()
    ranges = asyncio.run(_run(copy, job))
    took = Took(
        wall_s=time.perf_counter() - started_s,
        cpu_s=time.process_time() - cpu_before_s,
        peak_mb=peak_mb(),
        ranges=ranges,
    )
    sys.stdout.buffer.write(msgspec.json.encode(took))


async def _run(copy: Copy, job: Job) -> list[Range]:
    return await copy(job)


def peak_mb() -> float:
    """The most memory this process has held, in MiB."""
    # Linux counts what the parent held before exec into ru_maxrss; VmHWM is this program's own.
    for line in _STATUS.read_text().splitlines() if _STATUS.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
