"""The bodies of the worker API: they survive the way there and back, and nothing else is read."""

from __future__ import annotations

import base64
import contextlib
import json
import tracemalloc
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address
from inferd.protocol.request import Commitment
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import DigestSigner, domain_separator, group_digest
from inferd.protocol.worker_api import (
    STATUS,
    BadAnswer,
    BadMessage,
    ErrorBody,
    ErrorCode,
    JobDone,
    JobId,
    JobRequest,
    JobRunning,
    SignRequest,
    as_hex,
    decode,
    decode_answer,
    encode,
    of_hex,
    signed_item,
)

KEY = PrivateKey(b"\x07" * 32)
WORKER = Address(KEY.public_key.to_canonical_address())
DOMAIN = domain_separator(31337, Address(b"\x11" * 20))

ids = st.builds(
    JobId,
    st.integers(0, 2**63 - 1),
    st.binary(min_size=20, max_size=20).map(Commitment),
    st.integers(0, 2**32 - 1),
)
jobs = st.builds(
    lambda job, model, given, tokens, deadline_s, wait_ms, requester: JobRequest(
        str(job.request_id),
        as_hex(job.commitment),
        job.attempt,
        model,
        given,
        tokens,
        deadline_s,
        wait_ms,
        as_hex(requester),
    ),
    ids,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200),
    st.binary(max_size=300),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**53),
    st.integers(0, 60_000),
    st.binary(min_size=20, max_size=20),
)
A_JOB = JobRequest("5", "0x" + "ab" * 20, 1, "text", b"hello", 16, 1_800_000_000, 500)


@given(ids)
def test_an_id_is_read_back(job: JobId) -> None:
    assert JobId.parse(str(job)) == job


@given(st.text(max_size=90))
def test_no_other_text_is_an_id(text: str) -> None:
    with contextlib.suppress(BadMessage):
        assert str(JobId.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "05-" + "ab" * 20 + "-1",
        "5-" + "AB" * 20 + "-1",
        "5-" + "ab" * 19 + "-1",
        "5-" + "ab" * 20 + "-1\n",
        "\u0665-" + "ab" * 20 + "-1",
        f"{2**63}-" + "ab" * 20 + "-1",
        "5-" + "ab" * 20 + f"-{2**32}",
    ],
)
def test_a_malformed_id_is_refused(text: str) -> None:
    with pytest.raises(BadMessage):
        JobId.parse(text)


@given(jobs)
def test_a_job_is_read_back(job: JobRequest) -> None:
    assert decode(encode(job), JobRequest) == job
    assert decode(encode(job), JobRequest).id == job.id


@given(st.binary(max_size=100))
def test_an_answer_is_read_back(output: bytes) -> None:
    done = JobDone("0x" + "00" * 32, output, "text/plain", {"a": [1, "b"]}, "0x" + "00" * 64, 3)
    assert decode_answer(encode(done)) == done
    assert decode_answer(encode(JobRunning())) == JobRunning()


def test_a_manifest_that_is_too_large_is_not_made_into_values() -> None:
    """Else one answer of a few megabytes would hold up whoever reads it for seconds."""
    done = JobDone("0x" + "00" * 32, b"", "text/plain", {}, "0x" + "00" * 64, 3)
    large = b'{"a":[' + b",".join([b"[]"] * 200_000) + b"]}"
    body = encode(done).replace(b'"manifest":{}', b'"manifest":' + large + b',"manifest":{}')
    for sent in (body, body.replace(b',"manifest":{}', b"")):
        tracemalloc.start()
        try:
            with contextlib.suppress(BadMessage):
                assert decode_answer(sent) == done, "the last one counts"
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < len(sent)
    with pytest.raises(BadMessage, match="manifest has more than"):
        decode_answer(sent)


def test_unknown_fields_are_passed_over() -> None:
    body = json.loads(encode(A_JOB)) | {"later": {"release": 2}}
    assert decode(json.dumps(body).encode(), JobRequest) == A_JOB


def test_who_asked_may_be_left_out() -> None:
    body = json.loads(encode(A_JOB))
    del body["requester"]
    assert decode(json.dumps(body).encode(), JobRequest) == A_JOB


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request_id", 5),
        ("request_id", "-5"),
        ("request_id", "5\n"),
        ("request_id", "\u0665"),
        ("request_id", str(2**63)),
        ("commitment", "0x" + "AB" * 20),
        ("commitment", "ab" * 20),
        ("commitment", "0x" + "ab" * 20 + "\n"),
        ("attempt", -1),
        ("attempt", 2**32),
        ("attempt", 1.5),
        ("attempt", True),
        ("model", ""),
        ("model", "m" * 201),
        ("model", None),
        ("input", "not base64!"),
        ("input", [1, 2]),
        ("max_tokens", -1),
        ("deadline_s", "soon"),
        ("wait_ms", 60_001),
        ("requester", "0x12"),
        ("requester", None),
    ],
)
def test_what_does_not_fit_is_refused(field: str, value: Any) -> None:
    body = json.loads(encode(A_JOB)) | {field: value}
    with pytest.raises(BadMessage):
        decode(json.dumps(body).encode(), JobRequest)


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(body: bytes) -> None:
    for kind in (JobRequest, SignRequest, ErrorBody, JobDone):
        with contextlib.suppress(BadMessage):
            decode(body, kind)


def test_deep_and_long_bodies_are_refused_and_not_quoted() -> None:
    for body in (b"[" * 100_000, b'{"state":"' + b"secret" * 100_000 + b'"}', b'"\\ud800"'):
        with pytest.raises(BadMessage) as caught:
            decode_answer(body)
        assert len(str(caught.value)) < 250


def test_input_and_output_are_in_no_text() -> None:
    secret = b"a secret"
    done = JobDone("0x" + "00" * 32, secret, "text/plain", {}, "0x" + "00" * 64, 3)
    shown = repr(A_JOB) + repr(done) + str(A_JOB) + str(done)
    for form in ("secret", "hello", base64.b64encode(secret).decode()):
        assert form not in shown


def test_a_group_of_too_many_items_is_refused() -> None:
    assert decode(encode(SignRequest(bytes(60 * 400))), SignRequest).items == bytes(24_000)
    with pytest.raises(BadMessage):
        decode(encode(SignRequest(bytes(60 * 401))), SignRequest)


def test_each_code_has_a_status() -> None:
    assert set(STATUS) == set(ErrorCode)


def answer(output: bytes, job: JobId) -> JobDone:
    item = ResultItem(job.request_id, job.commitment, digest_of(output))
    signature = DigestSigner(KEY).sign(group_digest(DOMAIN, pack_items([item])))
    return JobDone(as_hex(item.digest), output, "text/plain", {}, as_hex(signature), 7)


def test_a_true_answer_is_believed() -> None:
    job = A_JOB.id
    item, signature = signed_item(answer(b"out", job), job, WORKER, DOMAIN)
    assert item == ResultItem(5, job.commitment, digest_of(b"out"))
    assert len(signature) == 64


def test_no_changed_answer_is_believed() -> None:
    job = A_JOB.id
    done = answer(b"out", job)
    other = JobId(job.request_id, Commitment(bytes(20)), job.attempt)
    foreign = domain_separator(1, Address(b"\x11" * 20))
    for changed, name, worker, domain in (
        (JobDone(done.digest, b"oui", "text/plain", {}, done.signature, 7), job, WORKER, DOMAIN),
        (
            JobDone(**_but(done, digest=as_hex(digest_of(b"x")))),
            job,
            WORKER,
            DOMAIN,
        ),
        (done, other, WORKER, DOMAIN),
        (done, job, Address(bytes(20)), DOMAIN),
        (done, job, WORKER, foreign),
    ):
        with pytest.raises(BadAnswer):
            signed_item(changed, name, worker, domain)
    for at in range(0, 64, 7):
        spoiled = bytearray(of_hex(done.signature))
        spoiled[at] ^= 1
        with pytest.raises(BadAnswer):
            signed_item(
                JobDone(**_but(done, signature=as_hex(bytes(spoiled)))), job, WORKER, DOMAIN
            )


def _but(done: JobDone, **changes: Any) -> dict[str, Any]:
    return {name: getattr(done, name) for name in done.__struct_fields__} | changes
