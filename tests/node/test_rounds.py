"""Rounds on real tables and real dispatch: retries, reasons, reorganised ids."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from indexer.database import Connection
from indexer.types import Address
from inferd.node import rounds
from inferd.node.grounds import Grounds, reopened
from inferd.node.snapshot import RoundInputs
from inferd.node.views import one_request
from inferd.node.why import why
from inferd.protocol.request import Delivery, model_id
from inferd.settlement.batch import load_decisions
from inferd.settlement.decisions import SELECT_DECISION, decision_of, leaf_of
from inferd.workers.job import BadInput, Job
from scheduler import audit, recording
from scheduler.model import GasModel, Reason, RequestKey
from tests.node.house import House, fails, hangs, house, rest
from tests.workers.support import MODEL, Scripted, learn_length, until

__all__ = ["house"]


async def test_another_worker_gets_what_one_failed(house: House) -> None:
    house.backends[0].answer = fails
    for number in range(1, 5):
        await house.request(number)
    for _ in range(3):
        await house.rounds.round()
        await house.settle_down()
        await rest(house)
    for number in range(1, 5):
        assert await house.answered_by(number) == [house.workers[1].address]


async def test_another_worker_gets_what_timed_out(house: House) -> None:
    house.backends[0].answer = house.backends[1].answer = hangs
    await house.request(1)
    await house.rounds.round()
    await until(lambda: any(backend.calls for backend in house.backends))
    first = await house.db.fetchrow("SELECT id, worker FROM node.lease")
    house.backends[0].answer = house.backends[1].answer = Scripted().answer
    await house.db.execute(
        "UPDATE node.lease SET state = 'expired', ended_at = now() - interval '1 hour'"
        " WHERE id = $1",
        first["id"],
    )
    await house.rounds.round()
    (answered,) = [worker.address for worker in house.workers if worker.address != first["worker"]]
    await until(lambda: house.dispatcher.running == 1)
    assert await house.answered_by(1) == [answered]


async def test_nothing_is_begun_while_results_crowd_before_full_transactions(house: House) -> None:
    await house.request(1)
    house.settings["unposted"] = 10
    for _ in range(2):
        await house.rounds.round()
    assert await house.decisions(1) == [("keep", "posting_behind")], "told once"
    assert not house.dispatcher.running
    house.settings["unposted"] = 9
    await house.rounds.round()
    await house.settle_down()
    assert len(await house.answered_by(1)) == 1


async def test_after_a_failure_a_request_rests(house: House) -> None:
    house.backends[0].answer = house.backends[1].answer = fails
    await house.request(1)
    for _ in range(4):
        await house.rounds.round()
        await house.settle_down()
    assert await house.decisions(1) == [("assign", "assigned")]
    await rest(house)
    await house.rounds.round()
    assert await house.decisions(1) == [("assign", "assigned")] * 2


async def test_a_refusal_falls_with_the_deadline_it_was_about(house: House) -> None:
    now_s = int(time.time())
    await house.request(1, deadline_s=now_s + 1)
    await house.rounds.round()
    assert await house.decisions(1) == [("refuse", "deadline_infeasible")]
    await house.db.execute("UPDATE chain.request SET deadline_s = $1", now_s + 600)
    await house.rounds.round()
    assert (await house.decisions(1))[-1] == ("assign", "assigned")


async def test_given_up_after_the_last_attempt(house: House) -> None:
    house.backends[0].answer = house.backends[1].answer = fails
    await house.request(1)
    for _ in range(5):
        await house.rounds.round()
        await house.settle_down()
        await rest(house)
    kinds = await house.decisions(1)
    assert kinds.count(("assign", "assigned")) == 3
    assert kinds[-1] == ("refuse", "attempts_exhausted")


async def test_what_no_worker_can_read_is_refused_at_once(house: House) -> None:
    async def unreadable(job: Job) -> bytes:
        raise BadInput("the input is not UTF-8 at byte 0")

    house.backends[0].answer = house.backends[1].answer = unreadable
    await house.request(1)
    for _ in range(2):
        await house.rounds.round()
        await house.settle_down()
    assert await house.decisions(1) == [("assign", "assigned"), ("refuse", "bad_input")]


async def test_a_reason_to_wait_is_written_once(house: House) -> None:
    await house.request(1, fee_wei=10**9)
    for _ in range(4):
        await house.rounds.round()
    assert await house.decisions(1) == [("keep", "gas_too_dear_now")]


async def test_a_new_offer_reopens_what_was_refused_for_want_of_it(house: House) -> None:
    other = model_id("another")
    await house.request(1, model_id=other)
    await house.rounds.round()
    assert await house.decisions(1) == [("refuse", "model_unknown")]
    await house.rounds.round()
    assert len(await house.decisions(1)) == 1
    assert house.rounds._grounds is not None
    # As when a worker's row or circuit has changed.
    house.rounds._grounds = replace(house.rounds._grounds, offers=frozenset())
    await house.rounds.round()
    assert await house.decisions(1) == [("refuse", "model_unknown")] * 2


async def test_more_gas_in_a_block_reopens_what_no_transaction_could_deliver(house: House) -> None:
    await house.db.execute("UPDATE chain.cursor SET gas_limit = 3000000")
    await house.request(1, delivery=2, callback_gas_limit=3_000_000, fee_wei=10**18)
    await house.request(2, model_id=model_id("another"))
    for gas_limit in (3_000_000, 2_000_000):
        await house.db.execute("UPDATE chain.cursor SET gas_limit = $1", gas_limit)
        await house.rounds.round()
        assert await house.decisions(1) == [("refuse", "unsupported")]
    await house.db.execute("UPDATE chain.cursor SET gas_limit = 30000000")
    await house.rounds.round()
    assert await house.decisions(1) == [("refuse", "unsupported"), ("assign", "assigned")]
    assert await house.decisions(2) == [("refuse", "model_unknown")]


@pytest.mark.parametrize(
    ("setting", "value", "refused", "changes"),
    [
        ("max_gas", 15_000_000, "unsupported", {"delivery": 2, "callback_gas_limit": 3_000_000}),
        ("max_attempts", 3, "attempts_exhausted", {}),
    ],
)
async def test_started_with_another_setting__refusals_that_rest_on_it_are_reopened(
    house: House, setting: str, value: int, refused: str, changes: dict[str, Any]
) -> None:
    house.settings |= {"max_gas": 3_000_000, "max_attempts": 1}
    house.backends[0].answer = house.backends[1].answer = fails
    await house.request(1, fee_wei=10**18, **changes)
    for _ in range(3):
        await house.rounds.round()
        await house.settle_down()
        await rest(house)
    assert (await house.decisions(1))[-1] == ("refuse", refused)
    house.settings[setting] = value
    await house.start_anew().round()
    assert (await house.decisions(1))[-1] == ("assign", "assigned")


async def test_started_anew__bad_input_stays_refused(house: House) -> None:
    async def unreadable(job: Job) -> bytes:
        raise BadInput("the input is not UTF-8 at byte 0")

    house.backends[0].answer = house.backends[1].answer = unreadable
    await house.request(1)
    for _ in range(2):
        await house.rounds.round()
        await house.settle_down()
    await house.start_anew().round()
    assert await house.decisions(1) == [("assign", "assigned"), ("refuse", "bad_input")]


async def test_an_id_on_another_branch_is_another_request(house: House) -> None:
    old = await house.request(1)
    await house.rounds.round()
    await house.settle_down()
    await house.db.execute("DELETE FROM chain.request")
    new = await house.request(1, branch=1)
    await house.rounds.round()
    await house.settle_down()
    rows = await house.db.fetch("SELECT commitment FROM node.result ORDER BY computed_at")
    assert [row["commitment"] for row in rows] == [old, new]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_request_that_a_reorg_took_away_is_not_leased(
    house: House, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    await house.request(1)
    loads = {"load_jobs": rounds.load_jobs, "load_servable": rounds.load_servable}

    for name, load in loads.items():

        async def after_a_reorg(
            connection: Connection, *arguments: Any, load: Any = load
        ) -> dict[RequestKey, Job] | set[RequestKey]:
            await connection.execute("DELETE FROM chain.request")
            found: dict[RequestKey, Job] | set[RequestKey] = await load(connection, *arguments)
            return found

        monkeypatch.setattr(rounds, name, after_a_reorg)
    if elsewhere:
        house.rounds.dispatcher = None
    await house.rounds.round()
    assert await house.db.fetchval("SELECT count(*) FROM node.lease") == 0
    await house.rounds.round()
    assert house.rounds._state.planner.pending == 0


async def test_after_an_error_on_the_way_everything_is_read_anew(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.request(1, fee_wei=10**9)
    await house.rounds.round()
    await house.request(2)

    async def broken(*_: object) -> None:
        raise OSError("the database is away")

    monkeypatch.setattr(house.rounds, "_write", broken)
    with pytest.raises(OSError, match="away"):
        await house.rounds.round()
    monkeypatch.undo()
    plan = await house.rounds.round()
    assert plan is not None
    assert [one.key.id for one in plan.assigned] == [2]
    assert [one.key.id for one in plan.kept] == [1]


async def test_while_nothing_may_be_decided_changes_do_not_pile_up(house: House) -> None:
    house.rounds.may_decide = lambda: False
    await house.request(1)
    assert await house.db.fetchval("SELECT count(*) FROM node.touched") > 0
    house.rounds.bell.ring()
    running = asyncio.create_task(house.rounds.run())

    async def emptied() -> None:
        while await house.db.fetchval("SELECT count(*) FROM node.touched"):
            await asyncio.sleep(0.01)

    async with asyncio.timeout(20):
        await emptied()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    plan = await house.rounds.round()
    assert plan is not None
    assert [one.key.id for one in plan.assigned] == [1]


async def test_a_decision_comes_back_from_the_table_as_it_was(house: House) -> None:
    await house.request(1)
    await house.request(2, fee_wei=10**9)
    await house.request(3, quorum=3)
    await house.request(4, model_id=model_id("unheard-of"))
    await house.request(5, memory_mb=10**6)
    plan = await house.rounds.round()
    assert plan is not None
    rows = await house.db.fetch(
        f"SELECT d.kind, d.leaf, {SELECT_DECISION} FROM node.decision d"
        " JOIN node.round r ON r.id = d.round_id ORDER BY request_id"
    )
    decided = [*plan.assigned, *plan.kept, *plan.refused]
    assert [decision_of(row) for row in rows] == decided
    assert [row["kind"] for row in rows] == ["assign", "keep", "keep", "refuse", "refuse"]
    leaves = [leaf_of(row) for row in rows]
    assert leaves == [audit.leaf(one, audit.origin_of(plan)) for one in decided]
    async with house.db.acquire() as connection:
        view = await one_request(connection, {}, 2)
    assert view is not None
    assert view.sentence == plan.kept[0].sentence
    assert why(view).numbers["fee_wei"] == str(10**9)
    anchored = await load_decisions(house.db, 100)
    assert anchored.root == audit.merkle_root(leaves)


async def test_outputs_are_predicted_by_what_the_requester_was_answered_before(
    house: House,
) -> None:
    model, talker = model_id(MODEL), b"\x44" * 20
    for _ in range(60):
        async with house.db.acquire() as connection:
            await learn_length(connection, model, Address(talker), 900, 1_000)
    await house.request(1, max_tokens=1_000)
    await house.request(2, max_tokens=1_000, requester=talker)
    await house.request(3, max_tokens=20, requester=talker)
    house.rounds.record_up_to = 100
    assert await house.rounds.round() is not None
    stored = await house.db.fetchval("SELECT encoding FROM node.round_snapshot")
    seen = recording.decode(recording.decompress(stored)).snapshot
    tokens = {one.key.id: one.tokens_mean for one in seen.requests}
    assert tokens[2] > 800
    assert 15 < tokens[3] <= 20
    assert all(one.tokens_sigma > 0 for one in seen.requests if one.key.id == 1)


_NOW = Grounds(frozenset({(b"w", b"m", 1)}), 3_000_000, 3, 3.0)


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        ({}, set()),
        ({"max_gas": 3_000_001}, {Reason.UNSUPPORTED}),
        ({"max_gas": 2_999_999}, set()),
        ({"max_attempts": 4}, {Reason.ATTEMPTS_EXHAUSTED, Reason.NO_AGREEMENT}),
        ({"max_attempts": 2}, set()),
        ({"inclusion_s": 2.0}, {Reason.DEADLINE_INFEASIBLE}),
        ({"inclusion_s": 4.0}, set()),
        (
            {"offers": frozenset()},
            {Reason.MODEL_UNKNOWN, Reason.MEMORY_TOO_LARGE, Reason.DEADLINE_INFEASIBLE},
        ),
    ],
)
def test_what_a_change_reopens(change: dict[str, Any], reasons: set[Reason]) -> None:
    assert reopened(_NOW, replace(_NOW, **change)) == reasons


def test_a_start_reopens_all_but_bad_inputs() -> None:
    assert Reason.BAD_INPUT not in reopened(None, _NOW)
    assert reopened(None, _NOW) > reopened(_NOW, replace(_NOW, max_gas=10**9))


async def test_a_stored_digest_has_to_pay_what_receipts_say_that_it_takes(house: House) -> None:
    before = house.rounds.inputs

    async def inputs(connection: Connection) -> RoundInputs:
        fitted = GasModel(45_000, 14_000, 5_500, per_stored_gas=10_000)
        return replace(await before(connection), gas=fitted)

    house.rounds.inputs = inputs
    await house.request(1, fee_wei=64_500 * 1_500_000_000)
    await house.request(2, fee_wei=64_500 * 1_500_000_000, delivery=Delivery.STORED)
    await house.request(3, fee_wei=74_500 * 1_500_000_000, delivery=Delivery.STORED)
    await house.rounds.round()
    assert await house.decisions(1) == [("assign", "assigned")]
    assert await house.decisions(2) == [("keep", "gas_too_dear_now")]
    assert await house.decisions(3) == [("assign", "assigned")]


async def test_a_worker_that_has_the_model_loaded_goes_before_one_that_has_not(
    house: House,
) -> None:
    house.backends[0].loaded, house.backends[0].load_ms = False, 30_000.0
    for number in range(1, 5):
        await house.request(number)
    plan = await house.rounds.round()
    assert plan is not None
    assert {one.worker for one in plan.assigned} == {house.workers[1].address}
    await house.settle_down()

    # It is loaded where that is sooner than to wait: all slots of the other are taken.
    house.backends[1].answer = hangs
    for number in range(5, 10):
        await house.request(number)
    plan = await house.rounds.round()
    assert plan is not None
    (cold,) = (one for one in plan.assigned if one.worker == house.workers[0].address)
    assert cold.numbers.p90_ms is not None
    assert cold.numbers.p90_ms > 30_000
    await until(lambda: house.backends[0].loaded)
