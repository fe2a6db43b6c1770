"""Rounds on real tables under changing policies, and the limits on tenants over restarts."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from indexer.database import Connection
from inferd.node.rounds import _State
from inferd.node.snapshot import RoundInputs
from inferd.node.spending import load_budgets
from inferd.node.tenants import load_uses
from inferd.policies.journal import Source, adopt_settings, history, in_force, record
from inferd.policies.steering import Steering
from inferd.workers import leases
from scheduler.allowance import Limits, Quota
from scheduler.choice import Choice, chosen
from scheduler.cover import Cover
from scheduler.experiment import arm_of
from scheduler.model import Block, GasModel, Moment, Rules
from scheduler.quota import cost_tokens, level
from tests.node.house import House, hangs, house
from tests.policies.support import install

__all__ = ["house"]

TENANT, OTHER = b"\x33" * 20, b"\x44" * 20
COST = cost_tokens(len(b"prompt"), 8.0)


async def choose(house: House, choice: Choice) -> int:
    async with house.db.acquire() as connection, connection.transaction():
        return (await record(connection, Source.COMMAND, choice)).id


def limited(house: House, limits: Limits, **changes: Any) -> None:
    """From now on rounds are under these limits; `changes` are of the inputs."""
    before = house.rounds.inputs

    async def inputs(connection: Connection) -> RoundInputs:
        found = await before(connection)
        return replace(found, rules=replace(found.rules, limits=limits), **changes)

    house.rounds.inputs = inputs


async def reasons(house: House) -> dict[int, str]:
    rows = await house.db.fetch(
        "SELECT DISTINCT ON (request_id) request_id, reason FROM node.decision"
        " ORDER BY request_id, id DESC"
    )
    return {row["request_id"]: row["reason"] for row in rows}


async def last_round(house: House) -> Any:
    return await house.db.fetchrow("SELECT * FROM node.round ORDER BY id DESC LIMIT 1")


async def test_a_policy_that_was_set_orders_the_next_round(house: House) -> None:
    await house.request(1)
    await house.rounds.round()
    assert (await last_round(house))["policy"] == "balanced"
    number = await choose(house, chosen("edf", "", ""))
    await house.request(2)
    await house.rounds.round()
    row = await last_round(house)
    assert (row["policy"], row["policy_id"], row["fallback"]) == ("edf", number, None)


async def test_weights_that_were_set_are_in_the_version(house: House) -> None:
    await choose(house, chosen("balanced", "", "fee=50,wait=40,slack=10"))
    await house.request(1)
    await house.rounds.round()
    assert (await last_round(house))["policy_version"] == "1:50/40/10"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raises failed at scores with RuntimeError: no idea"),
        ("raises-bytes", "raises-bytes failed at scores with RuntimeError: no header"),
        ("raises-on-work", "raises-on-work failed at work with RuntimeError"),
        ("loops", "loops took longer than its 1000 ms"),
        ("loops-on-load", "loops-on-load took longer than its 1000 ms"),
        ("exits", "exits ended while it was asked for scores"),
        ("short", "short gave 0 numbers as scores of 1"),
        ("nans", "policy nans gave a score that is not finite"),
        ("nan-loads", "policy nan-loads gave something else than"),
        ("negative", "policy negative gave something else than"),
        ("words", "words failed at scores with ValueError"),
    ],
)
async def test_nothing_is_lost_where_a_policy_fails(
    house: House, name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    await house.rounds.round()
    await choose(house, chosen(name, "", ""))
    await until_in_force(house, name)
    await house.request(1)
    await house.rounds.round()
    row = await last_round(house)
    assert row["policy"] == "least-requests"
    assert words in row["fallback"]
    await house.settle_down()
    assert len(await house.answered_by(1)) == 1


async def test_a_version_is_stored_whatever_is_in_it(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    await house.rounds.round()
    await choose(house, chosen("odd-version", "", ""))
    await until_in_force(house, "odd-version")
    await house.request(1)
    await house.rounds.round()
    row = await last_round(house)
    assert (row["policy"], row["policy_version"], row["fallback"]) == ("odd-version", "7?", None)


async def test_a_daemon_that_starts_does_not_wait_for_a_process(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    await choose(house, chosen("mute", "", ""))
    await house.request(1)
    await house.rounds.round()
    row = await last_round(house)
    assert (row["policy"], row["fallback"]) == ("least-requests", "mute is being started")


async def until_in_force(house: House, name: str) -> None:
    """Until its process is up; the policies before go on meanwhile."""

    async def entry() -> Any:
        async with house.db.acquire() as connection:
            return await in_force(connection)

    newest = await entry()
    for _ in range(3_000):
        force = house.rounds.steering.follow(newest)
        if force.entry.id == newest.id:
            assert force.policies[0].name == name
            return
        time.sleep(0.02)
    raise AssertionError(f"{name} is not up")


async def test_the_policy_before_goes_on_while_a_process_starts(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    await house.request(1)
    await house.rounds.round()
    await choose(house, chosen("good", "", ""))
    await house.request(2)
    await house.rounds.round()
    row = await last_round(house)
    assert (row["policy"], row["fallback"]) == ("balanced", None)
    await until_in_force(house, "good")
    await house.request(3)
    await house.rounds.round()
    row = await last_round(house)
    assert (row["policy"], row["policy_version"], row["fallback"]) == ("good", "7", None)


async def test_processes_of_policies_begin_and_end_off_the_event_loop(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    doers: list[tuple[str, int]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            doers.append(("begin", threading.get_ident()))
            super().__init__(*args, **options)

        def kill(self) -> None:
            doers.append(("end", threading.get_ident()))
            super().kill()

    monkeypatch.setattr("inferd.policies.hosted.subprocess.Popen", Recorded)
    await house.rounds.round()
    for choice in ("good", "edf"):
        number = await choose(house, chosen(choice, "", ""))
        for request_id in range(100 * number, 100 * number + 99):
            await house.request(request_id)
            await house.rounds.round()
            if (await last_round(house))["policy"] == choice:
                break
            await asyncio.sleep(0.05)
    assert [what for what, _ in doers] == ["begin", "end"]
    assert threading.get_ident() not in {who for _, who in doers}


async def test_a_built_in_policy_that_raises_is_replaced_too(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise ZeroDivisionError("at a bad moment")

    monkeypatch.setattr("scheduler.policies.balanced.Balanced.scores", broken)
    await house.request(1)
    await house.rounds.round()
    row = await last_round(house)
    assert row["policy"] == "least-requests"
    assert row["fallback"] == "balanced raised ZeroDivisionError: at a bad moment"


async def test_each_assignment_has_its_arm(house: House) -> None:
    number = await choose(house, chosen("", "fifo=1,edf=1", ""))
    commitments = {one: await house.request(one) for one in range(1, 5)}
    await house.rounds.round()
    rows = await house.db.fetch("SELECT request_id, arm FROM node.decision WHERE kind = 'assign'")
    assert {row["request_id"]: row["arm"] for row in rows} == {
        one: arm_of(commitment, number, (1, 1)) for one, commitment in commitments.items()
    }
    assert (await last_round(house))["policy"] == "fifo=1,edf=1"


async def test_what_was_set_last_is_in_force(connection: Connection) -> None:
    fifo, edf, value = (chosen(name, "", "") for name in ("fifo", "edf", "value"))

    async def now() -> tuple[Choice, Source]:
        entry = await in_force(connection)
        assert entry is not None
        return entry.choice, entry.source

    assert await in_force(connection) is None
    await adopt_settings(connection, fifo)
    assert await now() == (fifo, Source.SETTINGS)
    await record(connection, Source.COMMAND, edf)
    await adopt_settings(connection, fifo)
    assert await now() == (edf, Source.COMMAND), "a restart changes nothing"
    await adopt_settings(connection, value)
    assert await now() == (value, Source.SETTINGS), "a changed file does"
    await record(connection, Source.COMMAND, fifo)
    await adopt_settings(connection, value)
    assert await now() == (fifo, Source.COMMAND)
    split = chosen("", "value=90,balanced=10", "fee=1,wait=2,slack=3.5")
    await record(connection, Source.COMMAND, split)
    assert await now() == (split, Source.COMMAND)
    entries = await history(connection, 3)
    assert [entry.choice for entry in entries] == [split, fifo, value]
    assert all("@" in entry.set_by for entry in entries)


async def test_a_tenants_requests_in_hand_are_limited(house: House) -> None:
    house.backends[0].answer = house.backends[1].answer = hangs
    limited(house, Limits(Quota(in_flight=2)))
    for number in range(1, 4):
        await house.request(number)
    await house.request(4, requester=OTHER)
    await house.rounds.round()
    told = await reasons(house)
    assert sorted(told.values()) == ["assigned", "assigned", "assigned", "tenant_in_flight"]
    assert told[4] == "assigned"
    await house.rounds.round()
    assert await reasons(house) == told


def restarted(house: House) -> None:
    """As a daemon that begins anew on the same tables."""
    house.rounds._state = _State()
    house.rounds.steering = Steering()


async def bucket_tokens(house: House, limits: Limits, now_s: float) -> float:
    async with house.db.acquire() as connection:
        use = (await load_uses(connection, limits))[TENANT]
    return level(use.bucket, limits.quota_of(TENANT), now_s)


async def test_a_bucket_is_neither_lost_nor_doubled_by_a_restart(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.backends[0].answer = house.backends[1].answer = hangs
    now_s = time.time()
    limits = Limits(Quota(tokens_per_s=0.001, burst_tokens=2.5 * COST))
    limited(house, limits, now_s=now_s)
    for number in range(1, 4):
        await house.request(number)
    await house.rounds.round()
    assert sorted((await reasons(house)).values()) == ["assigned", "assigned", "tenant_rate"]
    assert await bucket_tokens(house, limits, now_s) == pytest.approx(0.5 * COST)

    restarted(house)
    async with house.db.acquire() as connection:
        await leases.abandon_previous(connection)
    await house.rounds.round()
    told = await reasons(house)
    assert sorted(told.values()) == ["assigned", "assigned", "tenant_rate"]
    assert await house.db.fetchval("SELECT count(*) FROM node.lease") == 4, "two, and again"
    assert await bucket_tokens(house, limits, now_s) == pytest.approx(0.5 * COST)


async def test_a_round_that_is_not_committed_takes_nothing(house: House) -> None:
    limits = Limits(Quota(tokens_per_s=1.0, burst_tokens=2.0 * COST))
    limited(house, limits)

    async def refused(connection: Connection) -> None:
        raise RuntimeError("another leads by now")

    await house.request(1)
    fence, house.rounds.fence = house.rounds.fence, refused
    with pytest.raises(RuntimeError):
        await house.rounds.round()
    assert await house.db.fetchval("SELECT count(*) FROM node.tenant") == 0
    house.rounds.fence = fence
    await house.rounds.round()
    assert await house.db.fetchval("SELECT count(*) FROM node.tenant") == 1


async def test_what_a_tenant_is_owed_outlives_a_restart(house: House) -> None:
    house.backends[0].answer = house.backends[1].answer = hangs
    limited(house, Limits(fair_quantum_tokens=float(COST)))
    for number in range(1, 8):
        await house.request(number, fee_wei=10**18)
    for number in range(8, 14):
        await house.request(number, requester=OTHER)
    await house.rounds.round()
    told = await reasons(house)
    slots = sum(reason == "assigned" for reason in told.values())
    by_tenant = [sum(told[n] == "assigned" for n in span) for span in (range(1, 8), range(8, 14))]
    assert abs(by_tenant[0] - by_tenant[1]) <= 1
    before = await house.db.fetch("SELECT tenant, deficit_tokens FROM node.tenant ORDER BY tenant")
    restarted(house)
    await house.rounds.round()
    after = await house.db.fetch("SELECT tenant, deficit_tokens FROM node.tenant ORDER BY tenant")
    assert after == before
    assert slots < 13


async def test_a_tenant_that_waits_no_more_is_owed_nothing(house: House) -> None:
    await house.db.execute("INSERT INTO node.tenant VALUES ($1, 100, 0, 40)", OTHER)
    limited(house, Limits(fair_quantum_tokens=float(COST)))
    await house.request(1)
    await house.rounds.round()
    assert await house.db.fetchval("SELECT count(*) FROM node.tenant") == 0


async def committed_wei(house: House, window_s: int = 3_600) -> int:
    block = Block(1, bytes(32), int(time.time()), 10**9, 30_000_000)
    gas = GasModel(45_000, 14_000, 5_500)
    cover = Cover(Moment(block, time.time(), gas, Rules(poster_bps=2_000)), 2)
    async with house.db.acquire() as connection:
        (budget,) = await load_budgets(connection, [(window_s, 10**20)], cover)
    return budget.committed_wei


EACH_WEI = (45_000 + 14_000 + 5_500) * 10**9


async def test_a_budget_counts_what_is_begun_until_it_is_posted_and_paid(house: House) -> None:
    limited(house, Limits(), budgets_wei=((3_600, 2 * EACH_WEI),))
    for number in range(1, 4):
        await house.request(number)
    assert await committed_wei(house) == 0
    await house.rounds.round()
    assert sorted((await reasons(house)).values()) == ["assigned", "assigned", "budget_spent"]
    assert await committed_wei(house) == 2 * EACH_WEI
    await house.settle_down()
    assert await committed_wei(house) == 2 * EACH_WEI, "results that wait still cost"

    first = await house.db.fetchrow("SELECT * FROM node.result ORDER BY request_id LIMIT 1")
    await post(house, first["request_id"], first["commitment"])
    assert await committed_wei(house) == EACH_WEI + 200_000 * 3 * 10**9
    await house.db.execute(
        "UPDATE node.tx_attempt SET state = 'mined', gas_used = 60000,"
        " effective_gas_price_wei = 1000000000"
    )
    assert await committed_wei(house) == EACH_WEI + 60_000 * 10**9
    await house.db.execute("UPDATE node.tx_intent SET state = 'mined'")
    await house.db.execute(
        "UPDATE node.tx_intent SET state = 'confirmed', closed_at = now() - interval '2 hours'"
    )
    assert await committed_wei(house) == EACH_WEI
    assert await committed_wei(house, 86_400) == EACH_WEI + 60_000 * 10**9


async def test_what_can_be_posted_no_more_costs_nothing(house: House) -> None:
    """A request that nobody refunds stays pending for ever: its result must not hold a budget."""
    await house.request(1)
    await house.rounds.round()
    await house.settle_down()
    assert await committed_wei(house) == EACH_WEI
    await house.db.execute("UPDATE chain.cursor SET timestamp_s = timestamp_s + 600")
    await house.db.execute(
        "UPDATE chain.request SET deadline_s = (SELECT timestamp_s FROM chain.cursor)"
    )
    assert await committed_wei(house) == 0


async def post(house: House, request_id: int, commitment: bytes) -> None:
    """A post of one result, signed and sent."""
    intent_id = await house.db.fetchval(
        "INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit, reason,"
        " inputs) VALUES ('post', '', 'broadcast', '', '', '', 200000, '', '{}') RETURNING id"
    )
    await house.db.execute(
        "INSERT INTO node.tx_item (intent_id, request_id, commitment) VALUES ($1, $2, $3)",
        intent_id,
        request_id,
        commitment,
    )
    await house.db.execute(
        "INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,"
        " priority_fee_wei, gas_limit, raw, state)"
        " VALUES ($1, $2, 1, '', 0, 3000000000, 1, 200000, '', 'broadcast')",
        request_id.to_bytes(32, "big"),
        intent_id,
    )


async def test_a_stake_and_fees_in_hand_reach_the_scheduler(house: House) -> None:
    house.backends[0].answer = house.backends[1].answer = hangs
    await house.request(1)
    await house.rounds.round()
    async with house.db.acquire() as connection:
        views = (await house.rounds.inputs(connection)).workers
    assert {view.stake_wei for view in views} == {1}
    assert sorted(view.fees_in_hand_wei for view in views) == [0, 10**16]
