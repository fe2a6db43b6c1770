"""Manifests of honest back ends are believed, whatever they count; those that cannot be are not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eth_keys.datatypes import PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address
from inferd.protocol.result import pack_items
from inferd.protocol.typed_data import group_digest, recover
from inferd.protocol.worker_api import JobDone, as_hex
from inferd.workers.backends.base import Backend
from inferd.workers.backends.choice import CommandOptions, OpenAIOptions
from inferd.workers.backends.command import CommandBackend
from inferd.workers.backends.llamacpp import LlamaCppBackend
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.backends.openai.backend import OpenAIBackend
from inferd.workers.backends.wordllama import WordLlamaBackend
from inferd.workers.job import Job, SignedResult, WorkerLied
from inferd.workers.model_files import ModelFile
from inferd.workers.remote.answers import checked_result, job_id
from tests.workers.backends.scripted_server import DONE, Asked, Scripted, piece, serving, usage
from tests.workers.remote.scripted import RESULTS_DOMAIN, signed, wrong_key
from tests.workers.support import a_job

KEY = PrivateKey(b"\x31" * 32)
WORKER = Address(KEY.public_key.to_canonical_address())
JOB = a_job(max_tokens=512)


def taken(done: JobDone, job: Job = JOB, elapsed_ms: float = 1.0) -> SignedResult:
    return checked_result(
        done,
        job,
        WORKER,
        RESULTS_DOMAIN,
        max_output_bytes=10_000_000,
        elapsed_ms=elapsed_ms,
        was_loaded=True,
        tokens_per_s=0.0,
    )


def told(
    output: bytes, compute_ms: int = 5, media_type: str = "text/plain", **manifest: Any
) -> Any:
    done = signed(job_id(JOB), output, KEY)
    changes = {"manifest": manifest, "compute_ms": compute_ms, "media_type": media_type}
    return msgspec.structs.replace(done, **changes)


async def believed(backend: Backend, text: bytes, max_tokens: int = 512) -> dict[str, Any]:
    """What this back end makes, as its agent would send it after a millisecond."""
    job = a_job(1, text, max_tokens=max_tokens)
    await backend.start()
    try:
        completion = await backend.run(job)
    finally:
        await backend.close()
    done = signed(job_id(job), completion.output, KEY)
    manifest = msgspec.json.decode(msgspec.json.encode(completion.manifest))
    done = msgspec.structs.replace(done, manifest=manifest, media_type=completion.media_type)
    taken(done, job)
    return dict(manifest)


async def test_markov() -> None:
    manifest = await believed(MarkovBackend(), b"a few words")
    assert manifest["completion_tokens"] == 512, "as many as there can be, in no time"


async def test_vectors_take_no_tokens() -> None:
    manifest = await believed(WordLlamaBackend(), b'["one text", "another", "a third"]')
    assert manifest["completion_tokens"] == 0


async def test_a_program_counts_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nprint('x' * 50_000)\n")
    program.chmod(0o755)
    options = CommandOptions(argv=(str(program),), timeout_s=60)
    manifest = await believed(CommandBackend(options, name="m", threads=1), b"hello")
    assert manifest["completion_tokens"] is None


@pytest.mark.parametrize(
    "parts",
    [
        (piece("x" * 20_000, "stop"), DONE),  # a server that counts nothing, in one piece
        (piece("hello", "stop"), usage(3, 2), DONE),
        (piece("yes", "stop"), usage(3, 400), DONE),  # it has thought before
        (piece(" " * 2_000, "stop"), usage(3, 8), DONE),
    ],
)
async def test_a_server(parts: tuple[bytes, ...]) -> None:
    async def answer(asked: Asked) -> Any:
        return await asked.stream(*parts)

    script = Scripted()
    async with serving(script):
        script.answer = answer
        options = OpenAIOptions(base_url=f"{script.url}/v1", model="m")
        await believed(OpenAIBackend(options, name="m"), b"hello")


async def test_llama_cpp(smollm2: ModelFile) -> None:
    made = LlamaCppBackend(smollm2, name="smollm2-135m", context_tokens=256)
    manifest = await believed(made, b"Name a colour.", max_tokens=4)
    assert manifest["completion_tokens"] <= 4


@pytest.mark.parametrize(
    "done",
    [
        told(b"x" * 5_000, completion_tokens=0),
        told(b"x" * 100_000, completion_tokens=10),
        told(b"x" * 2_000, completion_tokens=513),
        told(b"x", completion_tokens=True),
        told(b"x", completion_tokens=-1),
        told(b"x", prompt_tokens="3"),
        told(b"x", completion_tokens=2.0),
        told(b"x", media_type="a type"),
    ],
)
def test_what_cannot_be_is_not_believed_and_is_evidence(done: JobDone) -> None:
    with pytest.raises(WorkerLied) as lied:
        taken(done)
    result = lied.value.signed
    assert result is not None
    signer = recover(group_digest(RESULTS_DOMAIN, pack_items([result.item])), result.signature)
    assert signer == WORKER


def test_more_tokens_than_any_machine_makes_in_that_time() -> None:
    job = a_job(max_tokens=0)
    fast = msgspec.structs.replace(
        signed(job_id(job), b"x" * 9_000, KEY), manifest={"completion_tokens": 9_000}
    )
    with pytest.raises(WorkerLied, match="9000 tokens in 5 ms"):
        taken(fast, job)
    assert taken(msgspec.structs.replace(fast, compute_ms=100), job), "kept since it was computed"
    assert taken(fast, job, elapsed_ms=100.0)


def test_what_is_signed_and_is_not_the_output_is_evidence_too() -> None:
    good = signed(job_id(JOB), b"an answer", KEY)
    with pytest.raises(WorkerLied) as lied:
        taken(msgspec.structs.replace(good, output=b"another"))
    assert lied.value.signed is not None
    assert as_hex(lied.value.signed.digest) == good.digest


def test_what_another_key_signed_is_no_evidence() -> None:
    with pytest.raises(WorkerLied) as lied:
        taken(wrong_key(job_id(JOB), b"an answer"))
    assert lied.value.signed is None


@given(st.integers(0, 512), st.integers(0, 128), st.integers(1, 10_000))
def test_no_text_of_real_tokens_is_doubted(tokens: int, bytes_each: int, took_ms: int) -> None:
    taken(told(b"x" * (tokens * bytes_each), compute_ms=took_ms, completion_tokens=tokens))
