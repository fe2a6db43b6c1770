"""Inputs that are encrypted to the worker's own key: opened by it alone, answered in private."""

from __future__ import annotations

import resource
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from indexer.types import Address
from inferd.protocol.private import (
    ANSWER_MEDIA_TYPE,
    AnswerContext,
    Context,
    DecryptionKey,
    is_answer,
    open_answer,
    reply_key,
    seal_input,
)
from inferd.protocol.request import model_id
from inferd.protocol.typed_data import (
    CompactSignature,
    domain_separator,
    encryption_key_digest,
    recover,
)
from inferd.protocol.worker_api import (
    HEALTH,
    ErrorBody,
    Heartbeat,
    JobDone,
    JobRequest,
    SignedHeartbeat,
    as_hex,
    decode,
    of_hex,
    signed_item,
)
from inferd.workers.job import BadInput, Completion, Job, WorkerFailed
from inferd.workers.key_files import BadEncryptionKey, load_keys
from inferd.workers.sealing import Sealing
from tests.workers.service.support import (
    CONTRACTS,
    RESULTS_DOMAIN,
    WORKER,
    a_request,
    an_agent,
)
from tests.workers.support import MODEL, Scripted, a_job

KEY, FORMER = DecryptionKey(b"\x05" * 32), DecryptionKey(b"\x06" * 32)
SEALING = Sealing([KEY, FORMER], CONTRACTS.chain_id, CONTRACTS.requests)
ALICE, MALLORY = Address(b"\xa1" * 20), Address(b"\x6d" * 20)
REPLY = reply_key(b"\x07" * 32, CONTRACTS.chain_id, CONTRACTS.requests)
SECRET = b"my very own secret prompt"


def private(number: int = 1, *, to: DecryptionKey = KEY, requester: Address = ALICE) -> JobRequest:
    context = Context(CONTRACTS.chain_id, CONTRACTS.requests, ALICE, model_id(MODEL))
    sealed = seal_input(SECRET, to.public, REPLY.public, context)
    return replace(a_request(number, sealed), requester=as_hex(requester))


def opened(job: JobRequest, done: JobDone) -> bytes:
    context = AnswerContext(
        CONTRACTS.chain_id, CONTRACTS.requests, job.id.request_id, job.id.commitment
    )
    return open_answer(done.output, REPLY, context).content


async def test_the_heartbeat_has_the_keys_with_the_workers_word_for_each(tmp_path: Path) -> None:
    async with an_agent(tmp_path, Scripted(), sealing=SEALING) as (_, operator):
        _, body, _ = await operator.send("GET", HEALTH)
        said = decode(decode(body, SignedHeartbeat).heartbeat, Heartbeat)
    assert [one.key for one in said.encryption_keys] == [as_hex(KEY.public), as_hex(FORMER.public)]
    domain = domain_separator(CONTRACTS.chain_id, CONTRACTS.requests)
    for one in said.encryption_keys:
        digest = encryption_key_digest(domain, of_hex(one.key))
        assert recover(digest, CompactSignature(of_hex(one.signature))) == WORKER


@pytest.mark.parametrize("key", [KEY, FORMER], ids=["newest", "former"])
async def test_it_is_plain_for_the_back_end_and_nowhere_else(
    tmp_path: Path, key: DecryptionKey, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = Scripted()
    async with an_agent(tmp_path, backend, sealing=SEALING) as (_, operator):
        job = private(to=key)
        done = await operator.ask(job)
        assert isinstance(done, JobDone), done
        assert is_answer(done.output)
        assert done.media_type == ANSWER_MEDIA_TYPE
        signed_item(done, job.id, WORKER, RESULTS_DOMAIN)
        assert opened(job, done) == b"answer to " + SECRET
        # Encryption is randomised, and there is one answer all the same.
        assert await operator.ask(replace(job, attempt=2)) == done
    assert [call.input for call in backend.calls] == [SECRET]
    written = capsys.readouterr()
    places = [written.out.encode(), written.err.encode()]
    places += [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(places) > 3
    for place in places:
        assert SECRET not in place
        assert b"answer to" not in place


async def test_what_is_not_for_it_has_one_reason(tmp_path: Path) -> None:
    backend = Scripted()
    async with an_agent(tmp_path, backend, sealing=SEALING) as (_, operator):
        for number, job in enumerate(
            (
                private(1, requester=MALLORY),
                private(2, to=DecryptionKey(b"\x09" * 32)),
                replace(private(3), input=private(3).input[:-1] + b"\x00"),
                replace(private(4), input=private(4).input[:20]),
            ),
            1,
        ):
            refused = await operator.ask(job)
            assert isinstance(refused, ErrorBody), number
            assert refused.code == "bad_input"
            assert "encrypted to another key" in refused.message
    assert backend.calls == []


async def test_why_an_input_is_bad_tells_no_lengths(tmp_path: Path) -> None:
    async def too_long(_: Job) -> bytes:
        raise BadInput("the prompt has 5321 tokens, the model reads at most 2048")

    async with an_agent(tmp_path, Scripted(too_long), sealing=SEALING) as (_, operator):
        refused = await operator.ask(private())
    assert isinstance(refused, ErrorBody)
    assert (refused.code, "5321" in refused.message) == ("bad_input", False)


async def test_why_a_model_failed_tells_none_either(tmp_path: Path) -> None:
    async def too_large(_: Job) -> bytes:
        raise WorkerFailed("the output would have up to 5321 bytes")

    async with an_agent(tmp_path, Scripted(too_large), sealing=SEALING) as (_, operator):
        refused = await operator.ask(private())
    assert isinstance(refused, ErrorBody)
    assert (refused.code, "5321" in refused.message) == ("failed", False)


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_the_manifest_tells_no_lengths(field: str) -> None:
    """A server's context less the prompt is what is asked for, where that is less than wanted."""
    manifest = {
        "model": MODEL,
        "sampling": {"temperature": 0, "seed": 7, field: 5321},
        "prompt_tokens": 5321,
        "completion_tokens": 5321,
        "finish_reason": "length",
    }
    plain = Completion(b"hi", "text/plain", manifest)
    sealed = await SEALING.closed(a_job(), REPLY.public, plain)
    told = {"model": MODEL, "sampling": {"temperature": 0, "seed": 7}, "private": True}
    assert sealed.manifest == told


async def test_who_lies_about_the_requester_spoils_it_for_nobody(tmp_path: Path) -> None:
    async with an_agent(tmp_path, Scripted(), sealing=SEALING) as (_, operator):
        honest = private()
        lie = replace(honest, attempt=2, requester=as_hex(MALLORY))
        assert isinstance(await operator.ask(lie), ErrorBody)
        assert isinstance(await operator.ask(honest), JobDone)
        again = await operator.ask(replace(lie, attempt=3))
        assert isinstance(again, ErrorBody)
        assert again.code == "conflict"


async def test_an_agent_without_a_key_says_so_and_announces_none(tmp_path: Path) -> None:
    async with an_agent(tmp_path, Scripted()) as (_, operator):
        refused = await operator.ask(private())
        assert isinstance(refused, ErrorBody)
        assert refused.message == "text has no key for private inputs"
        _, body, _ = await operator.send("GET", HEALTH)
        assert decode(decode(body, SignedHeartbeat).heartbeat, Heartbeat).encryption_keys == []


async def test_whom_a_public_input_is_from_is_no_part_of_it(tmp_path: Path) -> None:
    async with an_agent(tmp_path, Scripted()) as (_, operator):
        done = await operator.ask(a_request())
        other = replace(a_request(attempt=2), requester=as_hex(ALICE))
        assert await operator.ask(other) == done


def test_its_key_is_made_in_its_own_folder(tmp_path: Path) -> None:
    place = tmp_path / "worker" / "encryption.key"
    (made,) = load_keys((), place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    (again,) = load_keys((), place)
    assert again.public == made.public


def test_a_key_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    place = tmp_path / "encryption.key"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # as on a full disk
    try:
        with pytest.raises(BadEncryptionKey, match="cannot be written to"):
            load_keys((), place)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
