"""Lies that are settled under a window: disputed once with the operator's bond, or left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.chain.disputes import close_dispute, open_dispute, rule
from inferd.settlement.disputes import BondCaps, choose
from inferd.settlement.engine import Settlement
from inferd.settlement.orders import Order, give
from tests.settlement.held import (
    BOND,
    WINDOW_S,
    accuse,
    arbiter,
    as_arbiter,
    hold_states,
    lie,
    pass_time,
    set_terms,
)
from tests.settlement.world import ETHER, GWEI, World

FEE = ETHER // 100
STAKES = {
    "disputes": True,
    "dispute_max_bond_wei": BOND,
    "dispute_max_bonds_wei_per_day": 10 * BOND,
}


def disputing(world: World, **settings: Any) -> Settlement:
    return world.settlement(**{**STAKES, **settings})


async def settled_lie(world: World) -> int:
    """A request whose settled result is wrong, as a record says that came after it."""
    await set_terms(world)
    (request_id,) = await world.submit(1)
    await world.compute([request_id], output=b"a lie")
    await world.post_proven_by_a_stranger(request_id)
    await accuse(world, request_id)
    return request_id


async def record(world: World) -> tuple[str, bytes | None]:
    row = await world.pool.fetchrow("SELECT dispute, dispute_tx FROM node.disagreement")
    return row["dispute"], row["dispute_tx"]


async def test_a_settled_lie__disputed__bond_back_requester_repaid_accused_slashed(
    world: World,
) -> None:
    request_id = await settled_lie(world)
    settlement = disputing(world)
    assert await record(world) == ("wanted", None)
    before = await world.rpc.balance(world.poster.address)
    await world.tick(settlement, 5)

    assert await hold_states(world) == {request_id: "disputed"}
    (intent,) = await world.intents()
    (attempt,) = await world.attempts()
    assert (intent["kind"], intent["outcome"], intent["value_wei"]) == ("dispute", "done", BOND)
    assert await world.items() == {request_id: ["opened"]}
    assert await record(world) == ("opened", attempt["hash"])
    spent = before - await world.rpc.balance(world.poster.address)
    assert spent == BOND + attempt["gas_used"] * attempt["effective_gas_price_wei"]
    assert (
        settlement.status.open_disputes.disputes,
        settlement.status.open_disputes.bonds_wei,
    ) == (
        1,
        BOND,
    )

    requester = world.requester.address
    owed = await world.credit(requester)
    await as_arbiter(world, rule, request_id, upheld=True)
    await world.tick(settlement, 2)
    assert await record(world) == ("upheld", attempt["hash"])
    assert await world.credit(requester) == owed + FEE
    slashed = await world.pool.fetchval("SELECT slashed_wei FROM chain.hold")
    assert slashed == BOND
    assert await world.credit(world.poster.address) >= BOND
    assert settlement.status.open_disputes.disputes == 0
    await world.tick(settlement, 2)
    assert await world.posted() == 1
    stake = await world.pool.fetchval(
        "SELECT stake_wei FROM chain.worker WHERE signer = $1", world.workers[0]
    )
    assert stake == 10**17 - BOND


LEFT_ALONE = {
    "the operator stakes nothing": {"disputes": False},
    "the bond is over the cap": {"dispute_max_bond_wei": BOND - 1},
    "the day's bonds are spent": {"dispute_max_bonds_wei_per_day": BOND - 1},
}


async def test_within_the_caps_only(world: World) -> None:
    request_id = await settled_lie(world)
    for name, settings in LEFT_ALONE.items():
        settlement = disputing(world, **settings)
        await world.tick(settlement, 2)
        assert await world.intents() == [], name
        assert await record(world) == ("wanted", None), name
        assert bool(settlement.status.undisputed) == ("disputes" not in settings), name
        assert settlement.status.paused_reason is None, name
    assert await hold_states(world) == {request_id: "held"}


async def test_opened_by_another__nothing_sent__lapses_and_is_known(world: World) -> None:
    request_id = await settled_lie(world)
    await as_arbiter(world, open_dispute, request_id)
    settlement = disputing(world)
    await world.tick(settlement, 2)
    assert (await record(world))[0] == "opened"
    await pass_time(world, 3 * 24 * 3_600 + 1)
    await as_arbiter(world, close_dispute, request_id)
    await world.tick(settlement, 2)
    assert (await record(world))[0] == "lapsed"
    assert await world.intents() == []


async def test_undecided__or_of_our_own_worker__or_past_the_window__left_alone(
    world: World,
) -> None:
    await set_terms(world)
    first, second = await world.submit(2)
    await world.compute([first, second], output=b"a lie")
    await world.post_proven_by_a_stranger(first)
    await accuse(world, first, decided=False)
    await world.tick(disputing(world), 2)
    await accuse(world, first)
    ours = disputing(world, own_accounts=frozenset({arbiter(world).address}))
    await world.tick(ours, 2)
    await pass_time(world, WINDOW_S + 1)
    await world.tick(disputing(world), 2)
    assert await world.pool.fetch("SELECT FROM node.tx_intent WHERE kind = 'dispute'") == []


async def test_no_money_for_the_bond__told_once__posts_go_on(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    await settled_lie(world)
    plain_fee = BOND // 2
    await world.set_balance(plain_fee)
    settlement = disputing(world)
    await world.tick(settlement, 3)
    assert "does not have the bond" in settlement.status.disputing
    assert settlement.status.paused_reason is None
    assert capsys.readouterr().out.count("bond_not_affordable") == 1
    await world.set_balance(ETHER)
    await world.tick(settlement, 3)
    assert (await record(world))[0] == "opened"


async def test_a_reorganisation_takes_what_was_held__the_record_goes_back(world: World) -> None:
    request_id = await settled_lie(world)
    settlement = disputing(world)
    await world.tick(settlement, 3)
    assert (await record(world))[0] == "opened"
    await world.reorg(4)
    await settlement.step(await world.index())
    assert await hold_states(world) == {}
    assert await record(world) == ("wanted", None)
    await world.tick(settlement, 3)
    assert await world.pool.fetchval("SELECT count(*) FROM node.disagreement") == 1
    assert (await world.statuses())[request_id] in ("pending", "fulfilled")


async def test_the_window_ends_while_it_is_pending__ends_without_a_loop(world: World) -> None:
    """It reverts, the bond stays, and nothing is sent again."""
    request_id = await settled_lie(world)
    settlement = disputing(world)
    await settlement.step(await world.index())
    assert len(await world.attempts()) == 1
    await pass_time(world, WINDOW_S + 1)
    balance = await world.rpc.balance(world.poster.address)
    await world.tick(settlement, 4)
    (intent,) = [row for row in await world.intents() if row["kind"] == "dispute"]
    assert intent["state"] in ("failed", "cancelled", "final")
    assert balance - await world.rpc.balance(world.poster.address) < GWEI * 10**6
    assert (await hold_states(world))[request_id] in ("held", "released")


@given(
    bonds=st.lists(st.integers(1, 10), max_size=6),
    each=st.integers(0, 10),
    day=st.integers(0, 20),
    staked=st.integers(0, 20),
)
def test_no_choice_exceeds_a_cap(bonds: list[int], each: int, day: int, staked: int) -> None:
    lies = [lie(number, bond) for number, bond in enumerate(bonds)]
    chosen = choose(lies, BondCaps(each, day, staked))
    allowed = [one for one in lies if one.held.bond_wei <= min(each, day - staked)]
    assert sorted(chosen.lies, key=lies.index) == allowed
    ends = [one.held.disputable_until_s for one in chosen.lies]
    assert ends == sorted(ends)
    assert chosen.over_cap + chosen.over_budget + len(allowed) == len(lies)


async def test_a_dearer_transaction_stakes_the_same__one_without_effect_nothing(
    world: World,
) -> None:
    await settled_lie(world)
    settlement = disputing(world, own_accounts=frozenset())
    await settlement.step(await world.index())
    for _ in range(8):
        if len(attempts := await world.attempts()) > 1:
            break
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(20 * GWEI)])
        await world.tick(settlement)
    assert len(attempts) > 1
    assert {row["value_wei"] for row in attempts} == {BOND}
    async with world.pool.acquire() as connection:
        await give(connection, Order.CANCEL, attempts[0]["intent_id"], "a test")
    balance = await world.rpc.balance(world.poster.address)
    await settlement.step(await world.index())
    newest = (await world.attempts())[-1]
    assert (newest["value_wei"], newest["nonce"]) == (0, 0)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
    settings = {"disputes": False}
    await world.tick(disputing(world, **settings), 4)
    (intent,) = await world.intents()
    assert intent["outcome"] == "cancelled_by_operator"
    assert balance - await world.rpc.balance(world.poster.address) < BOND
    assert set((await hold_states(world)).values()) == {"held"}


async def test_what_a_bond_takes_is_not_spent_twice(world: World) -> None:
    """Two lies, and ether for one bond: the second waits."""
    await set_terms(world)
    ids = await world.submit(2)
    await world.compute(ids, output=b"a lie")
    for request_id in ids:
        await world.post_proven_by_a_stranger(request_id)
        await accuse(world, request_id)
    await world.set_balance(BOND + BOND // 2)
    settlement = disputing(world)
    await world.tick(settlement, 5)
    assert sorted((await hold_states(world)).values()) == ["disputed", "held"]
    assert settlement.status.paused_reason is None
    assert await world.posted() == 1


async def test_a_bond_that_is_not_affordable_keeps_no_smaller_one_back(world: World) -> None:
    """Though its window ends first."""
    ids = []
    for bond_wei in (10 * BOND, BOND):
        await set_terms(world, bond_wei=bond_wei)
        ids += await world.submit(1)
    await world.compute(ids, output=b"a lie")
    for request_id in ids:
        await world.post_proven_by_a_stranger(request_id)
        await accuse(world, request_id)
    await world.set_balance(2 * BOND)
    wide = {"dispute_max_bond_wei": 20 * BOND, "dispute_max_bonds_wei_per_day": 100 * BOND}
    settlement = disputing(world, **wide)
    await world.tick(settlement)
    assert f"Request {ids[0]} is not disputed" in settlement.status.disputing
    assert f"Request {ids[1]} is disputed" in settlement.status.disputing
    await world.tick(settlement, 2)
    assert await hold_states(world) == {ids[0]: "held", ids[1]: "disputed"}


async def test_one_dispute_does_not_wait_for_another_to_be_final(world: World) -> None:
    """Windows that end together would be over before the turn of the last."""
    await set_terms(world)
    ids = await world.submit(3)
    await world.compute(ids, output=b"a lie")
    for request_id in ids:
        await world.post_proven_by_a_stranger(request_id)
        await accuse(world, request_id)
    settlement = disputing(world, confirmations=20)
    await world.tick(settlement, 5)
    assert await hold_states(world) == dict.fromkeys(ids, "disputed")
    assert await world.posted() == 3


async def test_the_days_bonds_are_counted_over_restarts(world: World) -> None:
    await set_terms(world)
    ids = await world.submit(3)
    await world.compute(ids, output=b"a lie")
    for request_id in ids:
        await world.post_proven_by_a_stranger(request_id)
        await accuse(world, request_id)
    for _ in range(3):
        await world.tick(disputing(world, dispute_max_bonds_wei_per_day=2 * BOND), 3)
    assert sorted((await hold_states(world)).values()) == ["disputed", "disputed", "held"]
