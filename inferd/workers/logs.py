"""One form for every log line about a job. Prompts and outputs are never in one."""

from __future__ import annotations

from typing import Any

import structlog

from indexer.types import Address
from inferd.workers.job import Job

_log = structlog.get_logger("workers")


def job_log(job: Job, worker: Address) -> Any:
    """A logger whose lines carry the trace id that follows a request through the node."""
    return _log.bind(
        trace_id=job.commitment.hex()[:16],
        request_id=job.request_id,
        worker="0x" + worker.hex(),
    )
