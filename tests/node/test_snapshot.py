"""What a round sees: which requests are to be computed, again if need be, and how much time a post
takes on this chain."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import pytest
from eth_utils.address import to_checksum_address

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.node.feed import Feed, Reading
from inferd.node.snapshot import RoundInputs
from inferd.protocol.request import Delivery
from inferd.settlement.intervals import block_interval_s
from inferd.settlement.terms import HELD_GAS, RELEASE_GAS, held_gas, release_bytes
from scheduler.model import GasModel, PendingRequest, RequestKey, Rules, Snapshot

NOW_S = 1_700_000_000
KEY = RequestKey(1, b"\x01" * 20)
WORKER, OTHER = Address(b"\x0a" * 20), Address(b"\x0b" * 20)


@pytest.fixture
async def chain(pool: Pool) -> Pool:
    """One pending request and two workers on an indexed chain."""
    await pool.execute(
        "INSERT INTO chain.cursor (block_number, block_hash, timestamp_s, base_fee_wei, gas_limit,"
        " finalized_number) VALUES (50, '', $1, 1, 30000000, 1)",
        NOW_S,
    )
    await pool.execute(
        "INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input,"
        " max_tokens, memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei,"
        " deadline_s, submitted_deadline_s, created_block, created_block_hash, created_log_index,"
        " created_tx_hash, created_at_s)"
        " VALUES ($1, $2, '', '', 0, '', 1, 0, 0, 1, true, 0, 1, $3, $3, 1, '', 0, '', $4)",
        KEY.id,
        KEY.commitment,
        NOW_S + 600,
        NOW_S,
    )
    for worker in (WORKER, OTHER):
        await pool.execute(
            "INSERT INTO chain.worker VALUES ($1, '', '{}', '', 4, 1000, true, true, 1, 0, 1)",
            worker,
        )
    return pool


async def blocks(pool: Pool, interval_s: int) -> None:
    await pool.execute(
        "INSERT INTO chain.block SELECT n, '', '', $1 - (50 - n) * $2, 1, 1, 1"
        " FROM generate_series(20, 50) n",
        NOW_S,
        interval_s,
    )


async def answer(pool: Pool, worker: Address) -> None:
    """A lease of that worker that ended well, and its result."""
    lease = await pool.fetchval(
        "INSERT INTO node.lease (request_id, commitment, worker, attempt, state, expires_at)"
        " VALUES ($1, $2, $3, 1, 'done', now()) RETURNING id",
        KEY.id,
        KEY.commitment,
        worker,
    )
    await pool.execute(
        "INSERT INTO node.result (request_id, commitment, worker, lease_id, digest, output,"
        " media_type, manifest, signature, compute_ms)"
        " VALUES ($1, $2, $3, $4, '', '', '', '{}', '', 1)",
        KEY.id,
        KEY.commitment,
        worker,
        lease,
    )


async def post(pool: Pool, worker: Address, *, live: bool, outcome: str | None) -> None:
    """A transaction with that worker's result."""
    intent = await pool.fetchval(
        "INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit, reason,"
        " inputs) VALUES ('post', '', 'failed', '', '', '', 1, '', '{}') RETURNING id"
    )
    await pool.execute(
        "INSERT INTO node.tx_item VALUES ($1, $2, $3, $4, $5, $6)",
        intent,
        KEY.id,
        KEY.commitment,
        worker,
        live,
        outcome,
    )


@dataclass
class Follower:
    """Somebody who has read before and reads what has changed."""

    feed: Feed = field(default_factory=Feed)
    pending: dict[RequestKey, PendingRequest] = field(default_factory=dict)

    def take_in(self, reading: Reading) -> None:
        changes = self.feed.take_in(reading)
        for key in changes.removed:
            del self.pending[key]
        self.pending |= {request.key: request for request in changes.added}


@pytest.fixture(autouse=True)
def follower() -> Follower:
    _FOLLOWERS.clear()
    _FOLLOWERS.append(Follower())
    return _FOLLOWERS[0]


_FOLLOWERS: list[Follower] = []


async def seen(pool: Pool, inclusion_s: float = 3.0, max_gas: int = 15_000_000) -> Snapshot:
    """What a round sees that reads everything; one that reads what has changed sees the same."""
    rules = Rules(poster_bps=1_000, inclusion_s=inclusion_s)
    inputs = RoundInputs((), GasModel(1, 1, 1), rules, float(NOW_S), max_gas)
    followers = (Follower(), _FOLLOWERS[0])
    async with pool.acquire() as connection:
        for follower in reversed(followers):
            reading = await follower.feed.read(connection, inputs, no_fence)
            assert reading is not None
            follower.take_in(reading)
    first, second = (
        sorted(one.pending.values(), key=lambda request: request.key) for one in followers
    )
    assert first == second
    moment = reading.moment
    return Snapshot(
        moment.block,
        moment.now_s,
        tuple(first),
        (),
        moment.gas,
        moment.rules,
        moment.recent_fees_wei,
    )


async def no_fence(connection: Connection) -> None:
    """One daemon only."""


async def test_only_what_was_touched_is_read_again(chain: Pool, follower: Follower) -> None:
    await seen(chain)
    inputs = RoundInputs((), GasModel(1, 1, 1), Rules(poster_bps=1), float(NOW_S), 15_000_000)

    async def asked() -> object:
        async with chain.acquire() as connection:
            reading = await follower.feed.read(connection, inputs, no_fence)
            assert reading is not None
            follower.take_in(reading)
            return reading.asked

    assert await asked() == []
    await chain.execute("UPDATE chain.request SET fee_wei = fee_wei + 1")
    assert await asked() == [KEY.id]
    assert follower.pending[KEY].fee_wei == 2
    await chain.execute("UPDATE chain.worker SET staked = false WHERE signer = ''")
    assert await asked() == []  # nobody
    await chain.execute("UPDATE chain.worker SET staked = false")
    assert await asked() is None  # any stored result may be void
    assert await asked() == []
    await chain.execute("UPDATE chain.worker SET stake_wei = stake_wei + 1, memory_mb = 7")
    await chain.execute("UPDATE chain.worker SET staked = true, enabled = false")
    assert await asked() == []  # it is as void as before
    await chain.execute("UPDATE chain.worker SET enabled = true")
    assert await asked() is None
    await chain.execute("UPDATE chain.worker SET staked = true, enabled = true")
    assert await asked() == []
    await chain.execute("DELETE FROM chain.worker")
    assert await asked() is None
    await chain.execute("UPDATE chain.request SET status = 'fulfilled'")
    assert await asked() == [KEY.id]
    assert not follower.pending


async def test_where_transactions_may_have_other_gas_only_calls_are_read_again(
    chain: Pool, follower: Follower
) -> None:
    """As the gas limit of blocks moves with every block."""

    async def unsupported(max_gas: int) -> tuple[object, bool]:
        rules = Rules(poster_bps=1)
        inputs = RoundInputs((), GasModel(1, 1, 1), rules, float(NOW_S), max_gas)
        async with chain.acquire() as connection:
            reading = await follower.feed.read(connection, inputs, no_fence)
            assert reading is not None
            follower.take_in(reading)
        return reading.asked, follower.pending[KEY].unsupported is not None

    await seen(chain)
    assert await unsupported(14_000_000) == ([], False)
    await chain.execute(
        "UPDATE chain.request SET delivery = $1, callback_gas_limit = 1000000", Delivery.CALLBACK
    )
    assert await unsupported(13_000_000) == ([KEY.id], False)
    assert await unsupported(900_000) == ([KEY.id], True)
    assert await unsupported(900_000) == ([], True)
    assert await unsupported(13_000_000) == ([KEY.id], False)
    await seen(chain)


async def test_a_change_that_commits_late_is_read_late(chain: Pool) -> None:
    """Its row in the queue is older than others that were taken out before."""
    await seen(chain)
    async with chain.acquire() as connection:
        change = connection.transaction()
        await change.start()
        await connection.execute("UPDATE chain.request SET fee_wei = 77")
        await chain.execute("INSERT INTO node.touched VALUES (99)")
        assert [request.fee_wei for request in (await seen(chain)).requests] == [1]
        await change.commit()
    assert [request.fee_wei for request in (await seen(chain)).requests] == [77]


async def test_an_id_of_another_branch_takes_the_place_of_the_old(chain: Pool) -> None:
    await seen(chain)
    await chain.execute("UPDATE chain.request SET commitment = $1", b"\xee" * 20)
    assert [request.key for request in (await seen(chain)).requests] == [
        RequestKey(KEY.id, b"\xee" * 20)
    ]
    await chain.execute("DELETE FROM chain.request")
    assert (await seen(chain)).requests == ()


async def test_the_end_of_a_rest_is_seen_without_a_change(chain: Pool, follower: Follower) -> None:
    await chain.execute(
        "INSERT INTO node.lease (request_id, commitment, worker, attempt, state, expires_at,"
        " ended_at, failure) VALUES ($1, $2, $3, 1, 'failed', now(), clock_timestamp(),"
        " 'failed: x')",
        KEY.id,
        KEY.commitment,
        WORKER,
    )
    assert (await seen(chain)).requests == ()
    await until_rested(follower)
    (request,) = (await seen(chain)).requests
    assert request.attempts == 1
    await chain.execute("TRUNCATE node.lease")
    (request,) = (await seen(chain)).requests
    assert request.attempts == 0


async def until_rested(follower: Follower) -> None:
    (until_s,) = follower.feed._rests.values()
    # It asks again after three quarters of the second that the rest takes.
    await asyncio.sleep(max(0.0, until_s - time.monotonic()) + 0.3)


async def test_what_was_passed_over_is_read_as_a_whole(chain: Pool, follower: Follower) -> None:
    await seen(chain)
    await chain.execute("UPDATE chain.request SET fee_wei = 5")
    async with chain.acquire() as connection:
        await follower.feed.skip(connection, no_fence)
    assert await chain.fetchval("SELECT count(*) FROM node.touched") == 0
    assert [request.fee_wei for request in (await seen(chain)).requests] == [5]


async def test_what_has_a_result_that_can_be_posted_is_not_computed_again(chain: Pool) -> None:
    assert [request.key for request in (await seen(chain)).requests] == [KEY]
    await answer(chain, WORKER)
    assert (await seen(chain)).requests == ()


@pytest.mark.parametrize("gone", ["enabled", "staked"])
async def test_a_dead_workers_result_is_computed_again_by_another(chain: Pool, gone: str) -> None:
    await answer(chain, WORKER)
    await chain.execute(f"UPDATE chain.worker SET {gone} = false WHERE signer = $1", WORKER)
    (request,) = (await seen(chain)).requests
    assert request.tried == {WORKER}
    assert request.attempts == 1
    await answer(chain, OTHER)
    assert (await seen(chain)).requests == ()


async def test_a_result_that_was_given_up_is_computed_again_by_another(chain: Pool) -> None:
    await answer(chain, WORKER)
    await post(chain, WORKER, live=False, outcome="abandoned")
    (request,) = (await seen(chain)).requests
    assert request.tried == {WORKER}
    await answer(chain, OTHER)
    assert (await seen(chain)).requests == ()


async def test_what_is_in_a_transaction_is_not_computed_again(chain: Pool) -> None:
    await answer(chain, WORKER)
    await post(chain, WORKER, live=True, outcome=None)
    await chain.execute("UPDATE chain.worker SET enabled = false")
    assert (await seen(chain)).requests == ()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ("delivery = 2, callback_gas_limit = 8000000", None),
        ("delivery = 2, max_tokens = 15000", "with 120000 bytes of input and output"),
        ("callback_gas_limit = 8000000, max_tokens = 15000, delivery = 0", None),
    ],
)
async def test_a_callback_that_fits_in_no_transaction_is_turned_away(
    chain: Pool, changed: str, words: str | None
) -> None:
    await chain.execute(f"UPDATE chain.request SET {changed}")
    (request,) = (await seen(chain)).requests
    assert (request.unsupported is None) == (words is None)
    assert (words or "") in (request.unsupported or "")


async def test_no_transaction_has_more_gas_than_a_block(chain: Pool) -> None:
    await chain.execute("UPDATE chain.request SET delivery = 2, callback_gas_limit = 3000000")
    await chain.execute("UPDATE chain.cursor SET gas_limit = 3000000")
    (request,) = (await seen(chain)).requests
    assert request.unsupported is not None
    assert "and 3000000 gas at most" in request.unsupported


@pytest.mark.parametrize(("interval_s", "inclusion_s"), [(1, 3.0), (2, 4.0), (12, 24.0)])
async def test_a_post_takes_two_blocks_at_least(
    chain: Pool, interval_s: int, inclusion_s: float
) -> None:
    await blocks(chain, interval_s)
    assert (await seen(chain)).rules.inclusion_s == inclusion_s
    assert (await seen(chain, 60.0)).rules.inclusion_s == 60.0


async def test_without_blocks_the_setting_holds(chain: Pool) -> None:
    assert (await seen(chain)).rules.inclusion_s == 3.0


@pytest.mark.parametrize(
    ("times_s", "expected_s"),
    [
        ([], 0.0),
        ([100], 0.0),
        ([100, 112, 124, 148, 160], 12.0),  # a missed slot
        ([100, 101, 102, 500, 501], 1.0),  # nobody asked for an hour
        ([100, 100, 100, 101, 101], 0.0),  # four a second
        ([0, 3600, 7200], 30.0),  # on demand only
    ],
)
def test_the_interval_is_that_of_most_blocks(times_s: list[int], expected_s: float) -> None:
    assert block_interval_s(list(enumerate(times_s))) == expected_s


def test_blocks_that_are_not_remembered_count_as_steps() -> None:
    assert block_interval_s([(10, 100), (20, 220)]) == 12.0


NOBODY, VERIFIER = bytes(20), b"\x0c" * 20


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], "its model's terms are not in the index"),
        ([(1, 0, NOBODY)], None),
        ([(1, 0, VERIFIER)], f"a proof that {to_checksum_address(VERIFIER)} accepts"),
        ([(0, 9, VERIFIER), (1, 0, NOBODY)], None),
        ([(0, 9, NOBODY), (1, 0, VERIFIER)], "this node makes none"),
        # It keeps what was in force when it was made.
        ([(0, 9, NOBODY), (1, 2, VERIFIER), (2, 0, VERIFIER)], None),
    ],
)
async def test_a_request_is_served_by_the_terms_it_was_made_under(
    chain: Pool, changes: list[tuple[int, int, bytes]], words: str | None
) -> None:
    await chain.execute(
        "UPDATE chain.request SET under_terms = true, quorum = 2, created_log_index = 1"
    )
    for block, log_index, verifier in changes:
        await chain.execute(
            "INSERT INTO chain.terms VALUES ($1, $2, $3, '', $4, 60, 1000000000, 0)",
            bytes([block]),
            log_index,
            block,
            verifier,
        )
    (request,) = (await seen(chain)).requests
    assert (request.unsupported is None) == (words is None)
    assert (words or "") in (request.unsupported or "")
    assert request.later_gas == held_gas(2) > HELD_GAS + RELEASE_GAS, "each owner has a share"
    assert request.later_bytes == release_bytes(2)
