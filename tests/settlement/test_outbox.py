"""The outbox's own promises, on real PostgreSQL."""

from __future__ import annotations

import dataclasses

import pytest

from indexer.database import Pool
from indexer.types import Address, Hash32
from inferd.protocol.request import Commitment
from inferd.settlement.fees import Fees
from inferd.settlement.keys import SignedTx
from inferd.settlement.outbox import AlreadyLive, NotPlanned, Outbox
from inferd.settlement.records import Draft, Item
from inferd.settlement.state import IntentState
from scheduler.audit import VERSION

SENDER, TARGET = Address(b"\x01" * 20), Address(b"\x02" * 20)
FEES = Fees(20, 2)


def item(number: int) -> Item:
    return Item(number, Commitment(bytes([number]) * 20), Address(b"\x03" * 20))


def draft(*numbers: int, calldata: bytes | None = None) -> Draft:
    return Draft(
        kind="post",
        target=TARGET,
        calldata=calldata or bytes(numbers),
        gas_limit=100,
        items=tuple(item(number) for number in numbers),
        reason="worth_it",
        inputs={"ready": len(numbers)},
    )


async def signature(nonce: int) -> SignedTx:
    return SignedTx(b"raw%d" % nonce, Hash32(nonce.to_bytes(32, "big")))


@pytest.fixture
def outbox(pool: Pool) -> Outbox:
    return Outbox(pool, chain_id=31337, sender=SENDER)


async def test_a_request_is_in_one_live_intent_at_most(outbox: Outbox) -> None:
    await outbox.plan(draft(1, 2))
    with pytest.raises(AlreadyLive):
        await outbox.plan(draft(2, 3))
    await outbox.plan(draft(3))
    live = await outbox.live()
    assert sorted(i.request_id for intent in live for i in intent.items) == [1, 2, 3]


async def test_the_same_effect_is_live_once(outbox: Outbox) -> None:
    await outbox.plan(draft(1, calldata=b"same"))
    with pytest.raises(AlreadyLive):
        await outbox.plan(draft(2, calldata=b"same"))


LEAF = b"\x55" * 32


async def test_a_leaf_stays_with_its_decision_and_knows_its_encoding(
    outbox: Outbox, pool: Pool
) -> None:
    """A row from before there were columns has a leaf of an older encoding."""
    round_id = await pool.fetchval(
        "INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, pending, assigned,"
        " kept, refused, duration_us) VALUES (1, '', 1, 'p', 0, 0, 0, 0, 0) RETURNING id"
    )
    rows = await pool.fetch(
        "INSERT INTO node.decision (round_id, request_id, commitment, kind, reason, leaf)"
        " VALUES ($1, 1, '', 'assign', 'assigned', NULL), ($1, 2, '', 'assign', 'assigned', $2)"
        " RETURNING id",
        round_id,
        LEAF,
    )
    new, old = (row["id"] for row in rows)
    made = b"\x56" * 32
    both = dataclasses.replace(draft(1), decisions=((new, made), (old, LEAF)))
    intent = await outbox.load(await outbox.plan(both))
    stored = await pool.fetch("SELECT leaf, leaf_version FROM node.decision ORDER BY id")
    assert [tuple(row) for row in stored] == [(made, VERSION), (LEAF, None)]
    await outbox.close(intent, IntentState.CANCELLED, "not_sent", {}, max_failures=3)
    await outbox.plan(dataclasses.replace(draft(2), decisions=((new, made), (old, LEAF))))
    again = await pool.fetch("SELECT leaf, leaf_version FROM node.decision ORDER BY id")
    assert [tuple(row) for row in again] == [tuple(row) for row in stored]


async def test_a_decision_is_anchored_once(outbox: Outbox, pool: Pool) -> None:
    round_id = await pool.fetchval(
        "INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, pending, assigned,"
        " kept, refused, duration_us) VALUES (1, '', 1, 'p', 0, 0, 0, 0, 0) RETURNING id"
    )
    decision_id = await pool.fetchval(
        "INSERT INTO node.decision (round_id, request_id, commitment, kind, reason)"
        " VALUES ($1, 1, '', 'assign', 'assigned') RETURNING id",
        round_id,
    )
    first = dataclasses.replace(draft(1), decisions=((decision_id, LEAF),))
    intent_id = await outbox.plan(first)
    with pytest.raises(AlreadyLive):
        await outbox.plan(dataclasses.replace(draft(2), decisions=((decision_id, LEAF),)))
    intent = await outbox.load(intent_id)
    await outbox.close(intent, IntentState.CANCELLED, "not_sent", {}, max_failures=3)
    await outbox.plan(dataclasses.replace(draft(2), decisions=((decision_id, LEAF),)))


async def test_nonces_follow_the_database_and_the_chain(outbox: Outbox) -> None:
    nonces = []
    for number, chain_nonce in ((1, 4), (2, 4), (3, 9), (4, 0)):
        intent_id = await outbox.plan(draft(number))
        await outbox.sign_first(intent_id, chain_nonce, FEES, signature, gas_limit=100)
        nonces.append((await outbox.load(intent_id)).nonce)
    assert nonces == [4, 5, 9, 10]
    assert await outbox.next_nonce() == 11
    intent_id = await outbox.plan(draft(5))
    await outbox.sign_first(intent_id, 4, FEES, signature, gas_limit=100, hole=7)
    assert (await outbox.load(intent_id)).nonce == 7
    assert await outbox.next_nonce() == 11
    assert [intent.nonce for intent in await outbox.live()] == [4, 5, 7, 9, 10]


async def test_a_failed_signature_reserves_nothing(outbox: Outbox) -> None:
    intent_id = await outbox.plan(draft(1))

    async def fails(nonce: int) -> SignedTx:
        raise ConnectionError("the signer is gone")

    with pytest.raises(ConnectionError):
        await outbox.sign_first(intent_id, 3, FEES, fails, gas_limit=100)
    assert await outbox.next_nonce() == 0
    assert (await outbox.load(intent_id)).state is IntentState.PLANNED


async def test_an_intent_is_signed_for_one_nonce_only(outbox: Outbox) -> None:
    intent_id = await outbox.plan(draft(1))
    await outbox.sign_first(intent_id, 0, FEES, signature, gas_limit=100)
    with pytest.raises(NotPlanned):
        await outbox.sign_first(intent_id, 0, FEES, signature, gas_limit=100)
    assert await outbox.next_nonce() == 1


async def test_reopening_takes_back_only_items_that_nobody_has(outbox: Outbox) -> None:
    intent_id = await outbox.plan(draft(1, 2))
    await outbox.sign_first(intent_id, 0, FEES, signature, gas_limit=100)
    intent = await outbox.load(intent_id)
    await outbox.close(intent, IntentState.CONFIRMED, "done", {}, max_failures=3)
    await outbox.plan(draft(2, calldata=b"new"))
    assert await outbox.reopen(intent_id)
    with pytest.raises(AlreadyLive):
        await outbox.plan(draft(1, calldata=b"newer"))
    assert (await outbox.load(intent_id)).state is IntentState.BROADCAST


async def test_reopening_what_is_live_under_the_same_key_is_refused(outbox: Outbox) -> None:
    intent_id = await outbox.plan(draft(1))
    await outbox.sign_first(intent_id, 0, FEES, signature, gas_limit=100)
    intent = await outbox.load(intent_id)
    await outbox.close(intent, IntentState.FAILED, "reverted", {}, max_failures=3)
    await outbox.plan(draft(1))
    assert not await outbox.reopen(intent_id)
