"""What the report says of given outcomes, and what it takes for one on real tables."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isclose

import pytest

from indexer.database import Connection
from indexer.types import Address
from inferd.policies.journal import Entry, Source, record
from inferd.policies.report import Outcome, count_fallbacks, load_outcomes, report
from scheduler.choice import Choice, chosen

OWNER, STRANGER = Address(b"\x0a" * 20), Address(b"\x0b" * 20)


def entry(choice: Choice) -> Entry:
    return Entry(7, Source.COMMAND, choice, "somebody@somewhere", datetime.now(UTC))


def outcome(arm: int = 0, **changes: object) -> Outcome:
    values = {
        "arm": arm,
        "settled": True,
        "over": False,
        "fee_wei": 1_000,
        "revenue_wei": 1_000,
        "gas_wei": 100,
        "wait_s": 2.0,
    }
    return Outcome(**(values | changes))


def test_figures_are_sums_shares_and_quantiles() -> None:
    outcomes = [
        *[outcome(wait_s=float(wait)) for wait in range(1, 4)],
        outcome(settled=False, over=True, revenue_wei=0, wait_s=4.0),
        outcome(settled=False, revenue_wei=0, gas_wei=0, wait_s=5.0),
    ]
    (arm,) = report(entry(chosen("fifo", "", "")), 60, outcomes).arms
    assert (arm.policy, arm.requests, arm.settled) == ("fifo", 5, 3)
    assert arm.on_time == 0.75, "the last one may still be settled"
    assert (arm.fee_wei, arm.gas_wei, arm.profit_wei) == (3_000, 400, 2_600)
    assert (arm.wait_p50_s, arm.wait_p95_s) == (3.0, 4.8)


def test_an_arm_without_requests_says_nothing() -> None:
    found = report(entry(chosen("", "fifo=1,edf=1", "")), 60, [])
    for arm in found.arms:
        assert arm.requests == 0
        assert arm.on_time is arm.wait_p50_s is arm.wait_p95_s is None
    assert not found.ratio_is_wrong
    assert not found.comparisons[0].on_time.is_clear


def test_differences_are_to_the_first_arm_per_request() -> None:
    outcomes = [outcome(0, wait_s=1.0 + at % 3) for at in range(300)]
    outcomes += [outcome(1, wait_s=3.0 + at % 3, gas_wei=300 + at % 5) for at in range(290)]
    found = report(entry(chosen("", "fifo=1,edf=1", "")), 60, outcomes)
    (compared,) = found.comparisons
    assert compared.policy == "edf"
    assert compared.wait_s.is_clear
    assert compared.wait_s.lower < 2.0 < compared.wait_s.upper
    assert isclose(compared.profit_wei.mean, -202.0)
    assert not compared.on_time.is_clear
    assert not found.ratio_is_wrong


@pytest.mark.parametrize(("lost", "wrong"), [(0, False), (30, False), (120, True)])
def test_requests_that_are_lost_on_the_way_raise_an_alarm(lost: int, wrong: bool) -> None:
    outcomes = [outcome(0) for _ in range(500)] + [outcome(1) for _ in range(500 - lost)]
    found = report(entry(chosen("", "fifo=1,edf=1", "")), 60, outcomes)
    assert found.ratio_is_wrong == wrong


class Tables:
    """Requests, rounds and transactions as a daemon leaves them."""

    def __init__(self, connection: Connection, entry: Entry) -> None:
        self.connection, self.entry = connection, entry

    async def round(self, policy_id: int, *, age_s: int = 0, fallback: str | None = None) -> int:
        number: int = await self.connection.fetchval(
            "INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, pending,"
            " assigned, kept, refused, duration_us, policy_id, fallback, created_at)"
            " VALUES (1, '', 1, 'fifo', 1, 1, 0, 0, 1, $1, $2, now() - $3 * interval '1 second')"
            " RETURNING id",
            policy_id,
            fallback,
            age_s,
        )
        return number

    async def assign(self, request_id: int, round_id: int, arm: int) -> None:
        await self.connection.execute(
            "INSERT INTO node.decision (round_id, request_id, commitment, kind, reason, arm)"
            " VALUES ($1, $2, $3, 'assign', 'assigned', $4)",
            round_id,
            request_id,
            bytes(20),
            arm,
        )

    async def request(
        self, number: int, *, worker: bytes | None = None, tx: bytes | None = None
    ) -> None:
        await self.connection.execute(
            "INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input,"
            " max_tokens, memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei,"
            " deadline_s, submitted_deadline_s, created_block, created_block_hash,"
            " created_log_index, created_tx_hash, created_at_s, status, worker, settled_tx_hash)"
            " VALUES ($1, $2, '', '', 0, '', 1, 0, 0, 1, true, 0, 1001, 500, 500, 1, '', 1, '',"
            " extract(epoch FROM now())::bigint - 10, $3, $4, $5)",
            number,
            bytes(20),
            "fulfilled" if tx else "pending",
            worker,
            tx,
        )

    async def post(self, tx: bytes, requests: list[int], gas: int, state: str = "mined") -> None:
        intent_id = await self.connection.fetchval(
            "INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit,"
            " reason, inputs) VALUES ('post', $1, 'mined', '', '', '', 1, '', '{}') RETURNING id",
            tx,
        )
        for number in requests:
            await self.connection.execute(
                "INSERT INTO node.tx_item (intent_id, request_id, commitment, live)"
                " VALUES ($1, $2, $3, false)",
                intent_id,
                number,
                bytes(20),
            )
        await self.connection.execute(
            "INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,"
            " priority_fee_wei, gas_limit, raw, state, gas_used, effective_gas_price_wei)"
            " VALUES ($1, $2, 1, '', 0, 1, 1, 1, '', $3, $4, 2)",
            tx,
            intent_id,
            state,
            gas,
        )


@pytest.fixture
async def tables(connection: Connection) -> Tables:
    newest = await record(connection, Source.COMMAND, chosen("", "fifo=1,edf=1", ""))
    await connection.execute(
        "INSERT INTO chain.cursor (block_number, block_hash, timestamp_s, base_fee_wei, gas_limit,"
        " finalized_number) VALUES (1, '', 1000, 1, 1, 1)"
    )
    for signer, owner in ((b"\x01" * 20, OWNER), (b"\x02" * 20, STRANGER)):
        await connection.execute(
            "INSERT INTO chain.worker VALUES ($1, $2, '{}', '', 4, 1, true, true, 1, 0, 1)",
            signer,
            owner,
        )
    return Tables(connection, newest)


async def outcomes(tables: Tables, since_s: int = 3_600) -> list[Outcome]:
    found = await load_outcomes(
        tables.connection,
        tables.entry,
        since_s=since_s,
        poster_bps=2_000,
        own_accounts=[OWNER],
    )
    return sorted(found, key=lambda one: (one.arm, one.revenue_wei))


async def test_outcomes_are_of_the_newest_experiment_within_the_time(tables: Tables) -> None:
    other = (await record(tables.connection, Source.COMMAND, chosen("fifo", "", ""))).id
    for number in range(1, 5):
        await tables.request(number)
    await tables.assign(1, await tables.round(tables.entry.id, age_s=7_200), 0)
    await tables.assign(2, await tables.round(tables.entry.id), 1)
    again = await tables.round(tables.entry.id)
    await tables.assign(1, again, 0)
    await tables.assign(2, again, 1)
    await tables.assign(3, await tables.round(other), 0)
    (one,) = await outcomes(tables)
    assert one.arm == 1, "the first was assigned before, the third in another experiment"
    assert 9.0 <= one.wait_s <= 60.0
    assert len(await outcomes(tables, 8_000)) == 2


async def test_money_is_what_this_operator_earns_and_pays(tables: Tables) -> None:
    ours, theirs = b"\xaa" * 32, b"\xbb" * 32
    await tables.request(1, worker=b"\x01" * 20, tx=ours)
    await tables.request(2, worker=b"\x02" * 20, tx=ours)
    await tables.request(3, worker=b"\x01" * 20, tx=theirs)
    await tables.request(4)
    number = await tables.round(tables.entry.id)
    for request_id in range(1, 5):
        await tables.assign(request_id, number, request_id % 2)
    await tables.post(ours, [1, 2], 101)
    await tables.post(b"\xcc" * 32, [2, 4], 51)
    await tables.post(b"\xdd" * 32, [2], 10**9, state="replaced")
    told = [(one.settled, one.over, one.revenue_wei, one.gas_wei) for one in await outcomes(tables)]
    assert told == [
        (False, True, 0, 51),
        (True, True, 200, 101 + 51),
        (True, True, 801, 0),
        (True, True, 1_001, 101),
    ]


async def test_rounds_that_fell_back_are_counted(tables: Tables) -> None:
    await tables.round(tables.entry.id)
    await tables.round(tables.entry.id, fallback="it was late")
    await tables.round(tables.entry.id, fallback="it was late", age_s=7_200)
    assert await count_fallbacks(tables.connection, tables.entry, 3_600) == 1


async def test_what_requests_cost_sums_to_what_was_paid(tables: Tables) -> None:
    number = await tables.round(tables.entry.id)
    for request_id in range(1, 8):
        await tables.request(request_id)
        await tables.assign(request_id, number, request_id % 2)
    paid_wei = 0
    for gas, of in ((10, [1, 2, 3]), (11, [3, 4, 5, 6, 7]), (1, [2, 4, 6]), (5, [1])):
        await tables.post(bytes([gas]) * 32, of, gas)
        paid_wei += 2 * gas
    assert sum(one.gas_wei for one in await outcomes(tables)) == paid_wei
