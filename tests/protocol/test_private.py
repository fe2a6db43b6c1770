"""Private inputs: read by whom they are for, and only as the request they were made for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.types import Address
from inferd.protocol.private import (
    HEAD_BYTES,
    AnswerContext,
    CannotOpen,
    Context,
    DecryptionKey,
    EncryptionKey,
    NotPrivate,
    PrivateAnswer,
    is_key,
    open_answer,
    open_input,
    padded_bytes,
    private_model,
    recipient_of,
    reply_key,
    seal_answer,
    seal_input,
)
from inferd.protocol.request import Commitment, model_id

NODE = DecryptionKey(b"\x01" * 32)
OTHER = DecryptionKey(b"\x02" * 32)
REPLY = reply_key(b"\x05" * 32, 31337, Address(b"\x11" * 20))
CONTEXT = Context(31337, Address(b"\x11" * 20), Address(b"\x22" * 20), model_id("m"))
ANSWERED = AnswerContext(31337, Address(b"\x11" * 20), 7, Commitment(b"\x33" * 20))
_few = settings(max_examples=25)


@_few
@given(st.binary(max_size=3_000))
def test_an_input_is_read_by_whom_it_is_for(content: bytes) -> None:
    sealed = seal_input(content, NODE.public, REPLY.public, CONTEXT)
    assert recipient_of(sealed[:HEAD_BYTES]) == NODE.public
    opened = open_input(sealed, NODE, CONTEXT)
    assert (opened.content, opened.reply_to) == (content, REPLY.public)
    assert content not in repr(opened).encode() or len(content) < 3


@_few
@given(st.binary(max_size=3_000), st.text(max_size=40))
def test_an_answer_is_read_by_the_requester(content: bytes, media_type: str) -> None:
    answer = PrivateAnswer(content, media_type)
    sealed = seal_answer(answer, REPLY.public, ANSWERED)
    assert open_answer(sealed, REPLY, ANSWERED) == answer
    with pytest.raises(CannotOpen):
        open_answer(sealed, OTHER, ANSWERED)


@pytest.mark.parametrize(
    "stolen",
    [
        replace(CONTEXT, requester=Address(b"\x23" * 20)),
        replace(CONTEXT, model=model_id("n")),
        replace(CONTEXT, chain_id=1),
        replace(CONTEXT, requests=Address(b"\x12" * 20)),
    ],
    ids=["another requester", "another model", "another chain", "another deployment"],
)
def test_somebody_elses_ciphertext_is_worth_nothing(stolen: Context) -> None:
    sealed = seal_input(b"secret", NODE.public, REPLY.public, CONTEXT)
    with pytest.raises(CannotOpen):
        open_input(sealed, NODE, stolen)


def test_who_asks_through_the_same_contract_gets_an_answer_for_the_first_requester_alone() -> None:
    """Where a contract asks for everybody, the context is the same; the key to answer to is inside
    and cannot be changed."""
    sealed = seal_input(b"secret", NODE.public, REPLY.public, CONTEXT)
    opened = open_input(sealed, NODE, CONTEXT)
    answer = seal_answer(
        PrivateAnswer(b"about the secret", "text/plain"), opened.reply_to, ANSWERED
    )
    thief = reply_key(b"\x06" * 32, 31337, Address(b"\x11" * 20))
    with pytest.raises(CannotOpen):
        open_answer(answer, thief, ANSWERED)
    assert open_answer(answer, REPLY, ANSWERED).content == b"about the secret"


@pytest.mark.parametrize(
    "other", [replace(ANSWERED, request_id=8), replace(ANSWERED, commitment=Commitment(bytes(20)))]
)
def test_an_answer_belongs_to_one_request(other: AnswerContext) -> None:
    sealed = seal_answer(PrivateAnswer(b"yes", ""), REPLY.public, ANSWERED)
    with pytest.raises(CannotOpen):
        open_answer(sealed, REPLY, other)


@_few
@given(st.data())
def test_no_byte_can_be_changed(data: st.DataObject) -> None:
    sealed = seal_input(b"secret", NODE.public, REPLY.public, CONTEXT)
    at = data.draw(st.integers(0, len(sealed) - 1))
    changed = bytearray(sealed)
    changed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((CannotOpen, NotPrivate)):
        open_input(bytes(changed), NODE, CONTEXT)


@_few
@given(st.binary(max_size=400))
def test_whatever_follows_the_beginning_is_turned_away(rest: bytes) -> None:
    sealed = seal_input(b"secret", NODE.public, REPLY.public, CONTEXT)
    for cut in (14, 15, HEAD_BYTES, HEAD_BYTES + 32):
        with pytest.raises((CannotOpen, NotPrivate)):
            open_input(sealed[:cut] + rest, NODE, CONTEXT)
    with pytest.raises((CannotOpen, NotPrivate)):
        open_answer(rest, REPLY, ANSWERED)


@given(st.integers(0, 2**32), st.integers(0, 2**20))
def test_lengths_are_hidden_at_little_cost(length: int, more: int) -> None:
    padded = padded_bytes(length)
    assert length <= padded <= max(256, length * 1.12)
    assert padded <= padded_bytes(length + more)
    assert padded_bytes(padded) == padded


def test_equal_lengths_below_the_least_look_alike() -> None:
    def sizes(length: int) -> int:
        return len(seal_input(bytes(length), NODE.public, REPLY.public, CONTEXT))

    assert sizes(0) == sizes(100) == sizes(252)
    assert sizes(252) < sizes(253)


def test_two_envelopes_of_one_input_have_nothing_in_common() -> None:
    first, second = (seal_input(b"x", NODE.public, REPLY.public, CONTEXT) for _ in range(2))
    assert first[HEAD_BYTES:] != second[HEAD_BYTES:]
    assert recipient_of(b"a public prompt") is None
    with pytest.raises(NotPrivate):
        recipient_of(first[:14] + b"\x02" + first[15:])


def test_keys_of_few_points_are_none() -> None:
    assert is_key(NODE.public)
    for bad in (bytes(32), (1).to_bytes(32, "little"), b"short"):
        assert not is_key(bad)
        with pytest.raises(ValueError):
            seal_input(b"x", EncryptionKey(bad), REPLY.public, CONTEXT)
    # Nor can an answer be asked for to such a key.
    sealed = seal_input(b"x", NODE.public, EncryptionKey(bytes(32)), CONTEXT)
    with pytest.raises(CannotOpen):
        open_input(sealed, NODE, CONTEXT)


def test_reply_keys_differ_by_account_and_deployment_and_stay_the_same() -> None:
    keys = {
        reply_key(account, chain_id, Address(contract * 20)).public
        for account in (b"\x05" * 32, b"\x06" * 32)
        for chain_id in (1, 31337)
        for contract in (b"\x11", b"\x12")
    }
    assert len(keys) == 8
    assert REPLY.public.hex() == "46dc340871eec70340e4ce891e5ecbdd1938144ed8e615d400aaf2d4ff32146d"
    private = {private_model(model_id(name), NODE.public) for name in "mn"}
    private |= {private_model(model_id(name), REPLY.public) for name in "mn"}
    assert len(private | {model_id("m"), model_id("n")}) == 6
    assert "0101" not in repr(NODE)


def test_it_is_the_hpke_of_rfc_9180() -> None:
    """Appendix A.2.1, the first encryption."""
    key = DecryptionKey(
        bytes.fromhex("8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb")
    )
    assert key.public.hex() == "4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a"
    opened = key.open(
        b"Ode on a Grecian Urn",
        bytes.fromhex("1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a"),
        bytes.fromhex(
            "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28"
        ),
        b"Count-0",
    )
    assert opened == b"Beauty is truth, truth beauty"
