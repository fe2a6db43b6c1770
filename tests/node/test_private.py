"""Private requests through rounds, dispatch and tables: who computes them, and what is kept."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from indexer.database import Connection
from indexer.types import Address
from inferd.inputs import rows
from inferd.inputs.source import input_of
from inferd.node.snapshot import RoundInputs, with_private
from inferd.node.views import one_request
from inferd.node.why import why
from inferd.protocol.private import (
    ANSWER_MEDIA_TYPE,
    AnswerContext,
    Context,
    DecryptionKey,
    open_answer,
    reply_key,
    seal_input,
)
from inferd.protocol.request import Commitment, model_id
from inferd.workers.job import BadInput, Job
from inferd.workers.key_files import BadEncryptionKey, load_keys
from inferd.workers.sealing import Sealing
from tests.node.house import CHAIN_ID, NODE_KEY, REQUESTS, House, house
from tests.workers.support import MODEL

__all__ = ["house"]

ALICE, MALLORY = Address(b"\xa1" * 20), Address(b"\x6d" * 20)
SECRET = b"my very own secret prompt"
REPLY = reply_key(b"\x05" * 32, CHAIN_ID, REQUESTS)
CONTEXT = Context(CHAIN_ID, REQUESTS, ALICE, model_id(MODEL))


@pytest.fixture
def private_house(house: House) -> House:
    """The first worker has the node's key; the second, as one of another machine, has not."""
    plain = house.rounds.inputs

    async def inputs(connection: Connection) -> RoundInputs:
        seen = await plain(connection)
        return replace(
            seen, workers=with_private(seen.workers, {house.workers[0].address: [NODE_KEY.public]})
        )

    house.rounds = replace(house.rounds, inputs=inputs)
    return house


async def ask(
    house: House, number: int, sealed: bytes, requester: Address, **changes: object
) -> Commitment:
    made = await house.request(number, input=sealed, requester=requester, **changes)
    await house.rounds.round()
    await house.settle_down()
    await house.rounds.round()
    return Commitment(made)


async def told_why(house: House, number: int) -> tuple[str, str]:
    async with house.db.acquire() as connection:
        view = await one_request(connection, {model_id(MODEL): MODEL}, number)
    assert view is not None
    return why(view).reason, why(view).sentence


async def everything_stored(house: House) -> str:
    tables = await house.db.fetch(
        "SELECT format('%I.%I', table_schema, table_name) AS name FROM information_schema.tables"
        " WHERE table_schema IN ('chain', 'node')"
    )
    texts = [
        row["text"]
        for table in tables
        for row in await house.db.fetch(f"SELECT t::text AS text FROM {table['name']} t")
    ]
    assert len(texts) > 5
    return "\n".join(texts)


async def test_it_is_computed_by_who_has_the_key_and_plain_nowhere_else(
    private_house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    house = private_house
    sealed = seal_input(SECRET, NODE_KEY.public, REPLY.public, CONTEXT)
    for number in range(1, 4):
        made = await ask(house, number, sealed, ALICE)
        row = await house.db.fetchrow("SELECT * FROM node.result WHERE request_id = $1", number)
        assert row is not None
        assert row["media_type"] == ANSWER_MEDIA_TYPE
        answer = open_answer(row["output"], REPLY, AnswerContext(CHAIN_ID, REQUESTS, number, made))
        assert answer.content == b"answer to " + SECRET
        assert answer.media_type == "text/plain"
    assert [job.input for job in house.backends[0].calls] == [SECRET] * 3
    assert house.backends[1].calls == []
    written = capsys.readouterr()
    for place in (await everything_stored(house), written.out, written.err):
        assert SECRET.hex() not in place
        assert SECRET.decode() not in place
        assert "answer to" not in place


async def test_a_stranger_who_copies_the_ciphertext_gets_nothing(private_house: House) -> None:
    house = private_house
    sealed = seal_input(SECRET, NODE_KEY.public, REPLY.public, CONTEXT)
    await ask(house, 1, sealed, MALLORY)
    assert [job for backend in house.backends for job in backend.calls] == []
    assert await house.answered_by(1) == []
    reason, sentence = await told_why(house, 1)
    assert reason == "bad_input"
    assert "for another requester" in sentence


async def test_why_an_input_is_bad_tells_no_lengths(private_house: House) -> None:
    house = private_house

    async def too_long(_: Job) -> bytes:
        raise BadInput("the prompt has 5321 tokens, the model reads at most 2048")

    house.backends[0].answer = too_long
    await ask(house, 1, seal_input(SECRET, NODE_KEY.public, REPLY.public, CONTEXT), ALICE)
    reason, sentence = await told_why(house, 1)
    assert (reason, "too long" in sentence) == ("bad_input", True)
    assert "5321 tokens" not in await everything_stored(house)  # digits alone are in ciphertexts


async def test_another_nodes_key_or_version_is_refused_before_a_worker(
    private_house: House,
) -> None:
    house = private_house
    other = DecryptionKey(b"\x09" * 32)
    await ask(house, 1, seal_input(SECRET, other.public, REPLY.public, CONTEXT), ALICE)
    reason, sentence = await told_why(house, 1)
    assert reason == "model_unknown"
    assert f"encrypted to the key 0x{other.public.hex()}" in sentence
    assert f"serves model {MODEL}" in sentence
    sealed = seal_input(SECRET, NODE_KEY.public, REPLY.public, CONTEXT)
    await ask(house, 2, sealed[:14] + b"\x02" + sealed[15:], ALICE)
    reason, sentence = await told_why(house, 2)
    assert (reason, "not one of version 1" in sentence) == ("unsupported", True)
    assert await house.db.fetchval("SELECT count(*) FROM node.lease") == 0


async def test_a_workers_own_key_is_for_that_worker(house: House) -> None:
    """Its request waits for no other, and is taken up once the key is known."""
    own = DecryptionKey(b"\x0a" * 32)
    house.workers[1]._sealing = Sealing([own], CHAIN_ID, REQUESTS)
    plain, held = house.rounds.inputs, {house.workers[0].address: [NODE_KEY.public]}

    async def inputs(connection: Connection) -> RoundInputs:
        seen = await plain(connection)
        return replace(seen, workers=with_private(seen.workers, held))

    house.rounds = replace(house.rounds, inputs=inputs)
    sealed = seal_input(SECRET, own.public, REPLY.public, CONTEXT)
    await ask(house, 1, sealed, ALICE)
    assert (await told_why(house, 1))[0] == "model_unknown"
    assert [backend.calls for backend in house.backends] == [[], []]
    held[house.workers[1].address] = [own.public]
    await house.rounds.round()
    await house.rounds.round()
    await house.settle_down()
    assert await house.answered_by(1) == [house.workers[1].address]
    for number in range(2, 5):
        await ask(house, number, sealed, ALICE)
    assert [job.input for job in house.backends[1].calls] == [SECRET] * 4
    assert house.backends[0].calls == []


async def test_private_content_may_be_named_by_uri(private_house: House) -> None:
    house = private_house
    sealed = seal_input(SECRET, NODE_KEY.public, REPLY.public, CONTEXT)
    named = input_of(sealed, "https://example.test/sealed")
    await ask(house, 1, named, ALICE, input_kind=1)
    async with house.db.acquire() as connection:
        (wanted,), _ = await rows.load_wanted(connection)
        await rows.write_content(connection, wanted, sealed)
    await house.rounds.round()
    await house.settle_down()
    assert [job.input for job in house.backends[0].calls] == [SECRET]
    assert house.backends[1].calls == []


def test_a_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    (made,) = load_keys((), tmp_path / "encryption.key")
    file = tmp_path / "encryption.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]
    (again,) = load_keys((), tmp_path / "encryption.key")
    assert again.public == made.public


def test_keys_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(BadEncryptionKey, match="cannot be read"):
        load_keys([file], tmp_path / "own")
    file.write_text("ab" * 32)
    file.chmod(0o644)
    with pytest.raises(BadEncryptionKey, match="others"):
        load_keys([file], tmp_path / "own")
    file.chmod(0o600)
    assert load_keys([file, file], tmp_path / "own")[1].public == DecryptionKey(b"\xab" * 32).public
    file.write_text("no hex")
    with pytest.raises(BadEncryptionKey, match="64 hex digits"):
        load_keys([file], tmp_path / "own")
