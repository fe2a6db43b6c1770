"""Whether a worker's answer may be believed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from indexer.types import Address, Hash32
from inferd.protocol.worker_api import MAX_MANIFEST_BYTES, BadAnswer, JobDone, JobId, signed_item
from inferd.workers.job import Job, SignedResult, WorkerLied

_MAX_DEPTH = 8
_MEDIA_TYPE = re.compile(
    r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}"
    r"(?:; ?[a-z0-9-]{1,32}=[A-Za-z0-9._+-]{1,64}){0,4}",
    re.ASCII,
)


def job_id(job: Job) -> JobId:
    """The id by which workers elsewhere know a job."""
    return JobId(job.request_id, job.commitment, job.attempt)


def checked_result(
    done: JobDone,
    job: Job,
    worker: Address,
    results_domain: Hash32,
    *,
    max_output_bytes: int,
    elapsed_ms: float,
    was_loaded: bool,
) -> SignedResult:
    """The result, where digest, signature, size, media type and manifest are what they must be.

    What it says of its time counts only where the model was not loaded before, whose loading is
    reckoned with apart; and never more than the time that has passed. Raises WorkerLied.
    """
    if len(done.output) > max_output_bytes:
        raise WorkerLied(f"its output has more than {max_output_bytes} bytes")
    try:
        item, signature = signed_item(done, job_id(job), worker, results_domain)
    except BadAnswer as error:
        raise WorkerLied(str(error)) from None
    if not _MEDIA_TYPE.fullmatch(done.media_type):
        raise WorkerLied("its media type is none")
    check_manifest(done.manifest, job.max_tokens)
    took_ms = elapsed_ms if was_loaded else min(float(done.compute_ms), elapsed_ms)
    return SignedResult(
        key=job.key,
        worker=worker,
        digest=item.digest,
        output=done.output,
        media_type=done.media_type,
        manifest=done.manifest,
        signature=signature,
        compute_ms=max(1, round(took_ms)),
    )


def check_manifest(manifest: Mapping[str, Any], max_tokens: int) -> None:
    """That it can be stored, and its counts are possible. Raises WorkerLied."""
    if not _storable(manifest, _MAX_DEPTH):
        raise WorkerLied("its manifest is nested too deep, or holds NUL characters")
    if len(msgspec.json.encode(manifest)) > MAX_MANIFEST_BYTES:
        raise WorkerLied(f"its manifest has more than {MAX_MANIFEST_BYTES} bytes")
    for name in ("prompt_tokens", "completion_tokens"):
        count = manifest.get(name, 0)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**32:
            raise WorkerLied(f"its manifest's {name} is no count")
    if 0 < max_tokens < manifest.get("completion_tokens", 0):
        raise WorkerLied("it says that it made more tokens than it was allowed")


def _storable(value: Any, depth: int) -> bool:
    """Whether PostgreSQL takes it as jsonb."""
    if isinstance(value, str):
        return "\0" not in value
    if isinstance(value, dict):
        return depth > 0 and all(
            _storable(key, depth) and _storable(inner, depth - 1) for key, inner in value.items()
        )
    if isinstance(value, list):
        return depth > 0 and all(_storable(inner, depth - 1) for inner in value)
    return True
