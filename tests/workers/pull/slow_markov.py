"""A model that takes its time, and notes each computation in the file COMPUTED."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.job import Completion, Job

_COMPUTE_S = 0.5
_run = MarkovBackend.run


async def run(self: MarkovBackend, job: Job) -> Completion:
    with Path(os.environ["COMPUTED"]).open("a") as noted:
        noted.write(f"{job.request_id}\n")
    await asyncio.sleep(_COMPUTE_S)
    return await _run(self, job)


def slow_down() -> None:
    """Of this process."""
    MarkovBackend.run = run  # type: ignore[method-assign]
