"""The outbox's own promises, on real PostgreSQL."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from enum import StrEnum
from itertools import permutations

import asyncpg
import pytest
from eth_utils.crypto import keccak

from indexer.database import Pool
from indexer.rpc import Receipt
from indexer.types import Address, Hash32, Wei
from inferd.chain.signers import SignedTx
from inferd.protocol.request import Commitment
from inferd.settlement.fees import Fees
from inferd.settlement.outbox import AlreadyLive, NonceHeld, NotPlanned, Outbox
from inferd.settlement.records import Draft, Intent, Item
from inferd.settlement.state import (
    ATTEMPT_STEPS,
    INTENT_STEPS,
    AttemptState,
    IntentState,
)
from scheduler.audit import VERSION

SENDER, TARGET = Address(b"\x01" * 20), Address(b"\x02" * 20)
FEES = Fees(20, 2)


def item(number: int) -> Item:
    return Item(number, Commitment(bytes([number % 251]) * 20), Address(b"\x03" * 20))


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


def signature_of(name: str) -> Callable[[int], Awaitable[SignedTx]]:
    """Of a transaction of that name."""

    async def sign(nonce: int) -> SignedTx:
        return SignedTx(name.encode(), Hash32(keccak(text=f"{name} {nonce}")))

    return sign


def receipt_of(intent: Intent, *, succeeded: bool = True) -> Receipt:
    """Of its newest transaction, in block 9."""
    return Receipt(
        tx_hash=intent.attempts[-1].hash,
        tx_index=0,
        block_number=9,
        block_hash=Hash32(b"\x99" * 32),
        succeeded=succeeded,
        gas_used=50,
        effective_gas_price_wei=Wei(10),
        sender=SENDER,
        to=TARGET,
        contract_address=None,
        logs=(),
    )


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


async def test_keys_that_plan_at_once_never_share_a_request(pool: Pool) -> None:
    """Whatever they plan, in whatever order: each request is in one live intent, and who came too
    late is told so, and nothing else."""
    draw = random.Random(7)
    senders = [Address(bytes([number]) * 20) for number in range(1, 5)]
    outboxes = [Outbox(pool, chain_id=31337, sender=sender) for sender in senders]
    for step in range(12):
        wanted = [draw.sample(range(100 * step, 100 * step + 100), 60) for _ in outboxes]
        drafts = [
            draft(*numbers, calldata=b"%d %d" % (step, place))
            for place, numbers in enumerate(wanted)
        ]
        done = await asyncio.gather(
            *(outbox.plan(one) for outbox, one in zip(outboxes, drafts, strict=True)),
            return_exceptions=True,
        )
        assert all(isinstance(one, int | AlreadyLive) for one in done), done
        assert sum(isinstance(one, int) for one in done) == 1  # two times 60 of 100 overlap
        live = [i.request_id for o in outboxes for intent in await o.live() for i in intent.items]
        assert len(live) == len(set(live)) == 60 * (step + 1)


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


async def a_decision(pool: Pool) -> int:
    """One without a leaf."""
    round_id = await pool.fetchval(
        "INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, pending, assigned,"
        " kept, refused, duration_us) VALUES (1, '', 1, 'p', 0, 0, 0, 0, 0) RETURNING id"
    )
    decision_id: int = await pool.fetchval(
        "INSERT INTO node.decision (round_id, request_id, commitment, kind, reason)"
        " VALUES ($1, 1, '', 'assign', 'assigned') RETURNING id",
        round_id,
    )
    return decision_id


async def test_a_decision_is_anchored_once(outbox: Outbox, pool: Pool) -> None:
    decision_id = await a_decision(pool)
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


async def test_a_nonce_is_signed_for_one_live_intent_only(outbox: Outbox) -> None:
    first = await outbox.plan(draft(1))
    await outbox.sign_first(first, 7, FEES, signature, gas_limit=100)
    second = await outbox.plan(draft(2))
    with pytest.raises(NonceHeld):
        await outbox.sign_first(second, 7, FEES, signature, gas_limit=100, hole=7)
    assert (await outbox.load(second)).attempts == ()
    await outbox.close(
        await outbox.load(first), IntentState.CANCELLED, "nonce_taken", {}, max_failures=3
    )
    await outbox.sign_first(second, 7, FEES, signature_of("again"), gas_limit=100, hole=7)


async def test_writers_at_the_same_time_get_different_nonces(outbox: Outbox, pool: Pool) -> None:
    others = [Outbox(pool, chain_id=31337, sender=SENDER) for _ in range(4)]
    ids = [await outbox.plan(draft(number)) for number in range(1, 9)]
    await asyncio.gather(
        *(
            others[number % 4].sign_first(
                intent_id, 3, FEES, signature_of(str(number)), gas_limit=100
            )
            for number, intent_id in enumerate(ids)
        )
    )
    assert [intent.nonce for intent in await outbox.live()] == list(range(3, 11))
    assert await outbox.next_nonce() == 11


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
    await outbox.mark_mined(intent_id, receipt_of(intent), 0)
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
    await outbox.mark_mined(intent_id, receipt_of(intent), 0)
    await outbox.close(intent, IntentState.FAILED, "reverted", {}, max_failures=3)
    await outbox.plan(draft(1))
    assert not await outbox.reopen(intent_id)


@pytest.mark.parametrize(
    ("table", "key", "states", "legal"),
    [
        ("tx_intent", "id", IntentState, INTENT_STEPS),
        ("tx_attempt", "intent_id", AttemptState, ATTEMPT_STEPS),
    ],
)
async def test_the_database_refuses_every_step_that_is_none(
    outbox: Outbox,
    pool: Pool,
    table: str,
    key: str,
    states: type[StrEnum],
    legal: frozenset[tuple[str, str]],
) -> None:
    intent_id = await outbox.plan(draft(1))
    await outbox.sign_first(intent_id, 0, FEES, signature, gas_limit=100)
    taken = set()
    for before, after in permutations([state.value for state in states], 2):
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(f"UPDATE node.{table} SET state = $1", before)
        try:
            await pool.execute(
                f"UPDATE node.{table} SET state = $1 WHERE {key} = $2", after, intent_id
            )
            taken.add((before, after))
        except asyncpg.CheckViolationError as error:
            assert f"{table} of " in str(error)
            assert f"may not go from {before} to {after}" in str(error)
    assert taken == legal


async def test_what_is_final_is_not_opened_again(outbox: Outbox) -> None:
    intent_id = await outbox.plan(draft(1))
    await outbox.sign_first(intent_id, 0, FEES, signature, gas_limit=100)
    intent = await outbox.load(intent_id)
    await outbox.mark_mined(intent_id, receipt_of(intent), 0)
    await outbox.close(intent, IntentState.CONFIRMED, "done", {}, max_failures=3)
    await outbox.finalise([intent_id])
    with pytest.raises(asyncpg.CheckViolationError):
        await outbox.reopen(intent_id)
    assert (await outbox.load(intent_id)).state is IntentState.FINAL


async def test_an_answer_that_was_lost_makes_it_unknown_until_a_pool_has_it(
    outbox: Outbox,
) -> None:
    intent_id = await outbox.plan(draft(1))
    await outbox.sign_first(intent_id, 0, FEES, signature, gas_limit=100)
    (sent,) = (await outbox.load(intent_id)).attempts
    await outbox.mark_unanswered(intent_id, sent.hash, "no answer: timeout")
    intent = await outbox.load(intent_id)
    assert (intent.state, intent.attempts[0].state) == ("unknown", "unknown")
    assert [one.id for one in await outbox.live()] == [intent_id]
    await outbox.mark_found(intent_id, sent.hash)
    intent = await outbox.load(intent_id)
    assert (intent.state, intent.attempts[0].state) == ("broadcast", "broadcast")
    # Sent again, and not answered: that it was taken once is known.
    await outbox.mark_unanswered(intent_id, sent.hash, "no answer: timeout")
    intent = await outbox.load(intent_id)
    assert (intent.state, intent.attempts[0].state) == ("broadcast", "broadcast")


async def test_what_a_pool_lost_is_replaced_by_what_it_takes(outbox: Outbox) -> None:
    intent_id = await outbox.plan(draft(1))
    await outbox.sign_first(intent_id, 0, FEES, signature_of("old"), gas_limit=100)
    (old,) = (await outbox.load(intent_id)).attempts
    await outbox.mark_sent(intent_id, old.hash)
    await outbox.mark_dropped(old.hash)
    dearer = await signature_of("new")(0)
    await outbox.add_replacement(intent_id, 0, dearer, Fees(40, 4), 100)
    await outbox.mark_sent(intent_id, dearer.hash)
    states = {one.hash: one.state for one in (await outbox.load(intent_id)).attempts}
    assert states == {old.hash: AttemptState.REPLACED, dearer.hash: AttemptState.BROADCAST}


async def test_what_had_lost_its_nonce_is_on_its_way_again_once_it_is_opened(
    outbox: Outbox,
) -> None:
    intent_id = await outbox.plan(draft(1))
    await outbox.sign_first(intent_id, 0, FEES, signature, gas_limit=100)
    intent = await outbox.load(intent_id)
    await outbox.close(intent, IntentState.CANCELLED, "nonce_taken", {}, max_failures=3)
    assert (await outbox.load(intent_id)).attempts[0].state is AttemptState.DROPPED
    assert await outbox.reopen(intent_id)
    reopened = await outbox.load(intent_id)
    assert (reopened.state, reopened.attempts[0].state) == ("broadcast", "broadcast")


async def test_a_filled_hole_leaves_later_nonces_reserved(outbox: Outbox) -> None:
    later = await outbox.plan(draft(1))
    await outbox.sign_first(later, 5, FEES, signature, gas_limit=100)
    filler = await outbox.plan(draft(2))
    await outbox.sign_first(filler, 0, FEES, signature, gas_limit=100, hole=2)
    assert [(await outbox.load(one)).nonce for one in (later, filler)] == [5, 2]
    assert await outbox.next_nonce() == 6


@pytest.mark.parametrize("end", [IntentState.CONFIRMED, IntentState.FAILED, IntentState.CANCELLED])
async def test_decisions_of_a_post_that_was_none_are_free_for_the_next(
    outbox: Outbox, pool: Pool, end: IntentState
) -> None:
    decision = await a_decision(pool)
    anchored = dataclasses.replace(draft(1), decisions=((decision, LEAF),))
    intent_id = await outbox.plan(anchored)
    await outbox.sign_first(intent_id, 0, FEES, signature, gas_limit=100)
    intent = await outbox.load(intent_id)
    if end is not IntentState.CANCELLED:
        await outbox.mark_mined(intent_id, receipt_of(intent), 0)
    await outbox.close(intent, end, "any", {}, max_failures=3)
    kept = await pool.fetchval("SELECT intent_id FROM node.decision WHERE id = $1", decision)
    assert kept == (intent_id if end is IntentState.CONFIRMED else None)


class Displaced(Exception):
    """Another process leads."""


async def test_who_was_displaced_writes_nothing(outbox: Outbox, pool: Pool) -> None:
    planned = await outbox.plan(draft(1))
    signed_id = await outbox.plan(draft(2))
    await outbox.sign_first(signed_id, 0, FEES, signature, gas_limit=100)
    intent = await outbox.load(signed_id)
    tx_hash = intent.attempts[0].hash

    async def refuses(connection: object) -> None:
        raise Displaced

    late = Outbox(pool, chain_id=31337, sender=SENDER, fence=refuses)
    writes = (
        late.plan(draft(3)),
        late.sign_first(planned, 0, FEES, signature, gas_limit=100),
        late.add_replacement(signed_id, 0, await signature(7), FEES, 100),
        late.mark_sent(signed_id, tx_hash),
        late.mark_refused(tx_hash, "no"),
        late.mark_unanswered(signed_id, tx_hash, "no"),
        late.mark_found(signed_id, tx_hash),
        late.mark_dropped(tx_hash),
        late.mark_unknown(signed_id),
        late.mark_mined(signed_id, receipt_of(intent), 0),
        late.mark_unmined(signed_id),
        late.close(intent, IntentState.CANCELLED, "any", {}, max_failures=3),
        late.reopen(signed_id),
        late.finalise([signed_id]),
    )
    before = await written(pool)
    for write in writes:
        with pytest.raises(Displaced):
            await write
    assert await written(pool) == before


async def written(pool: Pool) -> list[tuple[object, ...]]:
    tables = ("tx_intent", "tx_attempt", "tx_item", "sender")
    rows = [await pool.fetch(f"SELECT * FROM node.{table} ORDER BY 1, 2") for table in tables]
    return [tuple(row.values()) for table in rows for row in table]
