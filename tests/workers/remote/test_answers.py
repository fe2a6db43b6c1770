"""Whatever a worker says, the answer is a result that holds, or a JobError."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from eth_keys.datatypes import PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address, Hash32
from inferd.net.guarded import Answer, GuardedClient
from inferd.net.reach import PUBLIC
from inferd.protocol.result import digest_of, pack_items
from inferd.protocol.typed_data import group_digest, recover
from inferd.protocol.worker_api import encode
from inferd.workers.job import JobError, SignedResult
from inferd.workers.remote.answers import job_id
from inferd.workers.remote.client import WorkerClient, retry_after_s
from inferd.workers.remote.worker import RemoteWorker, _Said
from inferd.workers.retries import RetryBudget
from tests.workers.remote.scripted import OPERATOR, RESULTS_DOMAIN, signed
from tests.workers.support import a_job

KEY = PrivateKey(b"\x31" * 32)
WORKER = Address(KEY.public_key.to_canonical_address())
JOB = a_job(max_tokens=10)
DONE = msgspec.json.decode(encode(signed(job_id(JOB), b"an answer", KEY)))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=20,
)


def take(answer: Answer) -> SignedResult | None:
    """What the pool makes of it; None where the worker says that it runs."""
    client = WorkerClient(GuardedClient(PUBLIC), "https://w.example", WORKER, OPERATOR)
    worker = RemoteWorker(client, RetryBudget(), max_output_bytes=1_000)
    said = _Said(answer, Hash32(bytes(32)))
    done = worker._done(said)
    return None if done is None else worker._checked(done, said, JOB, 0.0, was_loaded=True)


def holds(result: SignedResult) -> bool:
    signer = recover(group_digest(RESULTS_DOMAIN, pack_items([result.item])), result.signature)
    return (
        signer == WORKER
        and result.key == JOB.key
        and digest_of(result.output) == result.digest
        and len(result.output) <= 1_000
        and result.compute_ms >= 1
        and "\\u0000" not in msgspec.json.encode(result.manifest).decode()
    )


def check(status: int, body: bytes) -> None:
    try:
        result = take(Answer(status, {}, body))
    except JobError as error:
        assert len(error.reason) < 200
    else:
        assert result is None or holds(result)


def test_a_good_answer_holds() -> None:
    result = take(Answer(200, {}, msgspec.json.encode(DONE)))
    assert result is not None
    assert holds(result)


@given(st.sampled_from([200, 202, 404, 409, 422, 500, 503]), st.binary(max_size=300))
def test_bytes(status: int, body: bytes) -> None:
    check(status, body)


@given(st.sampled_from([200, 202]), JSON)
def test_any_json(status: int, body: Any) -> None:
    check(status, msgspec.json.encode(body))


@given(st.dictionaries(st.sampled_from(sorted(DONE)), JSON, min_size=1))
def test_fields_of_another_kind(changes: dict[str, Any]) -> None:
    check(200, msgspec.json.encode({**DONE, **changes}))


@given(JSON)
def test_any_manifest(manifest: Any) -> None:
    check(200, msgspec.json.encode({**DONE, "manifest": {"model": manifest}}))


@given(st.integers(0, 2**32))
def test_flipped_bytes(seed: int) -> None:
    dice = random.Random(seed)
    body = bytearray(msgspec.json.encode(DONE))
    for _ in range(dice.randint(1, 5)):
        body[dice.randrange(len(body))] = dice.randrange(256)
    check(200, bytes(body))


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "-5", "1e999", "Mon, 99 Foo", "7 years", "\xff"]
)
def test_any_retry_after(text: str) -> None:
    assert 0.0 <= retry_after_s(Answer(503, {"Retry-After": text}, b"")) <= 300.0
