"""Whether a worker's answer may be believed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from indexer.types import Address, Hash32
from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.typed_data import BadSignature, CompactSignature, group_digest, recover
from inferd.protocol.worker_api import (
    MAX_MANIFEST_BYTES,
    BadAnswer,
    JobDone,
    JobId,
    of_hex,
    signed_item,
)
from inferd.workers.job import Declined, Job, SignedResult, WorkerLied

_MAX_DEPTH = 8
_LONGEST_TOKEN = 512
"""Bytes of text that one token may stand for; the longest of known vocabularies, runs of spaces,
have 128 to 256."""
_SPARE_TOKENS = 8
_FASTEST_TOKENS_PER_S = 100_000.0
"""Of one request, on any machine: tens of times what the fastest do."""
_SPARE_MS = 10.0
"""Times are whole milliseconds, and models of a toy take none."""
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
    tokens_per_s: float = 0.0,
) -> SignedResult:
    """The result, where digest, signature, size, media type and manifest are what they must be.

    What it says of its time counts only where the model was not loaded before, whose loading is
    reckoned with apart; and never more than the time that has passed. `tokens_per_s` is what its
    heartbeat says of the model. Raises WorkerLied, with what is signed all the same, and Declined
    for an output that is too large.
    """
    if len(done.output) > max_output_bytes:
        raise Declined(f"its output has more than {max_output_bytes} bytes")
    try:
        item, signature = signed_item(done, job_id(job), worker, results_domain)
    except BadAnswer as error:
        raise WorkerLied(
            str(error), signed=_signed_anyhow(done, job, worker, results_domain)
        ) from None
    took_ms = elapsed_ms if was_loaded else min(float(done.compute_ms), elapsed_ms)
    result = SignedResult(
        key=job.key,
        worker=worker,
        digest=item.digest,
        output=done.output,
        media_type=done.media_type,
        manifest=done.manifest,
        signature=signature,
        compute_ms=max(1, round(took_ms)),
    )
    try:
        if not _MEDIA_TYPE.fullmatch(done.media_type):
            raise WorkerLied("its media type is none")
        check_manifest(done.manifest, job.max_tokens)
        check_counts(
            done.manifest,
            output_bytes=len(done.output) if done.media_type.startswith("text/") else None,
            took_ms=max(float(done.compute_ms), elapsed_ms),
            tokens_per_s=tokens_per_s,
        )
    except WorkerLied as error:
        raise WorkerLied(error.reason, signed=_as_evidence(result)) from None
    return result


def check_manifest(manifest: Mapping[str, Any], max_tokens: int) -> None:
    """That it can be stored, and its counts are counts. Raises WorkerLied."""
    if not _storable(manifest, _MAX_DEPTH):
        raise WorkerLied("its manifest is nested too deep, or holds NUL characters")
    if len(msgspec.json.encode(manifest)) > MAX_MANIFEST_BYTES:
        raise WorkerLied(f"its manifest has more than {MAX_MANIFEST_BYTES} bytes")
    for name in ("prompt_tokens", "completion_tokens"):
        count = manifest.get(name)
        if count is None:
            continue  # nobody counted
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**32:
            raise WorkerLied(f"its manifest's {name} is no count")
    if 0 < max_tokens < (manifest.get("completion_tokens") or 0):
        raise WorkerLied("it says that it made more tokens than it was allowed")


def check_counts(
    manifest: Mapping[str, Any],
    *,
    output_bytes: int | None,
    took_ms: float,
    tokens_per_s: float,
) -> None:
    """That so many tokens can be that text, and can be made in that time. Raises WorkerLied.

    `output_bytes` is None of what is no text. A manifest without a count tells nothing, and neither
    does a count of pieces of a stream. More tokens than the text has room for are no lie: models
    that think first count what they do not say. `took_ms` is the longer of what the worker says and
    what has passed: an answer that was kept comes at once.
    """
    tokens = manifest.get("completion_tokens")
    if tokens is None or manifest.get("tokens_counted_by") == "worker":
        return
    if output_bytes is not None and output_bytes > _LONGEST_TOKEN * (tokens + _SPARE_TOKENS):
        raise WorkerLied(f"it says that {output_bytes} bytes of text are {tokens} tokens")
    fastest = max(_FASTEST_TOKENS_PER_S, 10.0 * tokens_per_s)
    if tokens > fastest * (took_ms + _SPARE_MS) / 1000.0:
        raise WorkerLied(f"it says that it made {tokens} tokens in {took_ms:.0f} ms")


def _signed_anyhow(
    done: JobDone, job: Job, worker: Address, results_domain: Hash32
) -> SignedResult | None:
    """What it put its name to, where the signature is its own over the digest that it names."""
    digest = Hash32(of_hex(done.digest))
    item = ResultItem(job.request_id, job.commitment, digest)
    signature = CompactSignature(of_hex(done.signature))
    try:
        if recover(group_digest(results_domain, pack_items([item])), signature) != worker:
            return None
    except BadSignature:
        return None
    return _as_evidence(
        SignedResult(
            key=job.key,
            worker=worker,
            digest=digest,
            output=done.output,
            media_type=done.media_type,
            manifest=done.manifest,
            signature=signature,
            compute_ms=1,
        )
    )


def _as_evidence(result: SignedResult) -> SignedResult:
    """With what the database takes of it."""
    media_type, manifest = result.media_type, result.manifest
    if not _MEDIA_TYPE.fullmatch(media_type):
        media_type = ""
    if (
        not _storable(manifest, _MAX_DEPTH)
        or len(msgspec.json.encode(manifest)) > MAX_MANIFEST_BYTES
    ):
        manifest = {}
    return replace(result, media_type=media_type, manifest=manifest)


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
