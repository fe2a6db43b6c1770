"""Requests under a dispute window: posted, held back, released once; to the wei."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.chain.disputes import release
from inferd.chain.signers import LocalSigner
from inferd.protocol import calls
from inferd.protocol.hold import Hold
from inferd.settlement import releases, releasing
from inferd.settlement.releases import RELEASE_FIXED_GAS, Due, ReleaseTerms, worth_releasing
from inferd.settlement.settings import SettlementSettings
from inferd.settlement.terms import RELEASE_GAS, held_model, release_gas
from tests.settlement.held import (
    WINDOW_S,
    as_arbiter,
    hold_states,
    lie,
    owner_of_workers,
    pass_time,
    set_terms,
)
from tests.settlement.world import ETHER, GWEI, POSTER_BPS, World

FEE = ETHER // 100


async def test_results_under_a_window__posted_apart_from_others__held(world: World) -> None:
    plain = await world.submit(2)
    await set_terms(world)
    held = await world.submit(40)
    await world.compute([*plain, *held])
    settlement = world.settlement()
    await world.tick(settlement, 4)

    assert set((await world.statuses()).values()) == {"fulfilled"}
    assert await world.posted() == 2
    assert await hold_states(world) == dict.fromkeys(held, "held")
    assert await world.credit(world.poster.address) == 2 * FEE // 5
    gas = await world.pool.fetchval("SELECT max(gas_used) FROM node.tx_attempt")
    model = SettlementSettings(poster_bps=POSTER_BPS).gas_prior
    assert abs(gas - held_model(model).of(1, 40)) < gas // 20
    observed = await world.pool.fetch("SELECT items FROM node.gas_observation")
    assert [row["items"] for row in observed] == [2]


async def test_what_is_due__released_once__to_the_wei(world: World) -> None:
    await set_terms(world)
    ids = await world.submit(3)
    await world.compute(ids)
    settlement = world.settlement(own_accounts=frozenset({owner_of_workers(world)}))
    await world.tick(settlement, 4)
    assert await hold_states(world) == dict.fromkeys(ids, "held")
    before = await world.credit(owner_of_workers(world))

    await pass_time(world, WINDOW_S + 1)
    await world.tick(settlement, 5)
    assert await hold_states(world) == dict.fromkeys(ids, "released")
    assert await world.credit(world.poster.address) == 3 * FEE // 5
    assert await world.credit(owner_of_workers(world)) - before == 3 * FEE * 4 // 5
    post, release = await world.intents()
    assert (post["kind"], release["kind"], release["outcome"]) == ("post", "release", "done")
    assert await world.items() == {one: ["settled", "released"] for one in ids}
    await world.tick(settlement, 3)
    assert await world.posted() == 2


async def held_and_due(world: World, count: int = 2) -> list[int]:
    await set_terms(world)
    ids = await world.submit(count)
    await world.compute(ids)
    await world.tick(world.settlement(), 4)
    await pass_time(world, WINDOW_S + 1)
    return ids


async def test_released_by_another__nothing_is_sent(world: World) -> None:
    ids = await held_and_due(world)
    await as_arbiter(world, release, ids)
    await world.tick(world.settlement(), 3)
    assert await world.posted() == 1
    assert await world.credit(world.poster.address) == 2 * FEE // 5


async def test_somebody_is_first_in_the_pool__nothing_is_sent(world: World) -> None:
    """Seen in the pool, though no block has it yet."""
    ids = await held_and_due(world)
    holds = [Hold.from_row(row) for row in await world.pool.fetch("SELECT * FROM chain.hold")]
    place = {"from": "0x" + world.requester.address.hex(), "gas": hex(1_000_000)}
    place |= {
        "to": "0x" + world.contracts.disputes.hex(),
        "data": "0x" + calls.release(holds).hex(),
        "maxPriorityFeePerGas": hex(50 * GWEI),
        "maxFeePerGas": hex(100 * GWEI),
    }
    await world.rpc.request("eth_sendTransaction", [place])
    settlement = world.settlement()
    await settlement.step(await world.index())
    assert [intent["kind"] for intent in await world.intents()] == ["post"]
    await world.tick(settlement, 2)
    assert await hold_states(world) == dict.fromkeys(ids, "released")
    assert await world.posted() == 1


async def test_not_worth_the_gas__waits_and_says_so(world: World) -> None:
    await held_and_due(world)
    settlement = world.settlement()
    price = FEE // 5 // RELEASE_GAS  # as much as a share of a fee pays for
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(2 * price)])
    await settlement.step(await world.mine())
    assert len(await world.intents()) == 1
    assert "2 payments that can be released" in settlement.status.releasing
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
    await world.tick(settlement, 4)
    assert set((await hold_states(world)).values()) == {"released"}


async def test_what_is_not_worth_its_gas_hides_nothing_that_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much of it there is, and however long it has been due."""
    monkeypatch.setattr(releasing, "_LOOKED_AT", 1)
    await set_terms(world)
    ids = [*await world.submit(2, fee_wei=GWEI), *await world.submit(1)]
    await world.compute(ids)
    for request_id in ids:
        await world.post_proven_by(world.poster, request_id)
    await pass_time(world, WINDOW_S + 1)
    await world.tick(world.settlement(), 4)
    assert await hold_states(world) == {ids[0]: "held", ids[1]: "held", ids[2]: "released"}


async def test_nor_does_what_many_workers_share_and_is_not_worth_its_gas(world: World) -> None:
    """Each worker of a quorum adds to what a release takes, and a dispute is closed alone."""
    await set_terms(world)
    ids = await world.submit(2)
    await world.compute(ids)
    for request_id in ids:
        await world.post_proven_by(world.poster, request_id)
    await pass_time(world, WINDOW_S + 1)
    head = await world.index()
    own = [world.poster.address]
    share_wei = FEE // 5
    await world.pool.execute(
        "UPDATE chain.hold SET owners = array_cat(owners, array_cat(owners, owners))"
        " WHERE request_id = $1",
        ids[0],
    )
    price_wei = share_wei // release_gas(2)
    terms = ReleaseTerms(price_wei, head.timestamp_s, 10**7)
    (found,) = await releases.load_due(world.pool, head, own, 1, terms)
    assert found.held.request_id == ids[1]
    await world.pool.execute(
        "UPDATE chain.hold SET state = 'disputed', disputer = $1, ruling_until_s = $2::bigint,"
        " poster_wei = CASE WHEN request_id = $3 THEN poster_wei ELSE 2 * poster_wei END",
        bytes(20),
        head.timestamp_s - 1,
        ids[0],
    )
    await world.pool.execute("UPDATE chain.hold SET owners = owners[1:1]")
    terms = ReleaseTerms(share_wei // (RELEASE_GAS + 1_000), head.timestamp_s, 10**7)
    (found,) = await releases.load_lapsed(world.pool, head, own, 1, terms)
    assert found.held.request_id == ids[1]


async def test_more_than_a_transaction_holds__half_of_them_go_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each takes more than was reckoned with."""
    monkeypatch.setattr(releases, "release_gas", lambda workers: 1)
    await set_terms(world)
    ids = await world.submit(6)
    await world.compute(ids)
    await world.tick(world.settlement(), 4)
    await pass_time(world, WINDOW_S + 1)
    settlement = world.settlement(max_gas=120_000, confirmations=1)
    await world.tick(settlement, 9)
    assert await hold_states(world) == dict.fromkeys(ids, "released")
    sizes = [
        len(await world.pool.fetch("SELECT FROM node.tx_item WHERE intent_id = $1", intent["id"]))
        for intent in await world.intents()
        if intent["kind"] == "release"
    ]
    assert 1 < len(sizes) < 6
    assert sum(sizes) == 6


async def test_payments_of_a_key_that_is_here_no_more_are_released_to_it(world: World) -> None:
    held = await held_and_due(world, 1)
    former = world.poster
    before = await world.credit(former.address)
    world.poster = LocalSigner(world.anvil.config.account(8))
    await world.tick(world.settlement(), 4)
    assert await hold_states(world) == dict.fromkeys(held, "released")
    assert await world.credit(former.address) == before + FEE // 5
    assert await world.posted() == 1


async def test_a_reorganisation_takes_the_release__it_comes_again_once(world: World) -> None:
    ids = await held_and_due(world)
    settlement = world.settlement()
    await world.tick(settlement, 4)
    assert set((await hold_states(world)).values()) == {"released"}
    await settlement.step(await world.reorg(3))
    assert set((await hold_states(world)).values()) == {"held"}
    await world.tick(settlement, 4)
    assert await hold_states(world) == dict.fromkeys(ids, "released")
    assert await world.posted() == 2
    assert await world.credit(world.poster.address) == 2 * FEE // 5


async def test_a_reorganisation_takes_what_was_held__the_post_comes_again(world: World) -> None:
    await set_terms(world)
    ids = await world.submit(2)
    await world.compute(ids)
    settlement = world.settlement()
    await world.tick(settlement, 3)
    assert await hold_states(world) == dict.fromkeys(ids, "held")
    await settlement.step(await world.reorg(2))
    assert await hold_states(world) == {}
    await world.tick(settlement, 4)
    assert await hold_states(world) == dict.fromkeys(ids, "held")
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_a_dispute_that_was_given_up__keeps_no_callback_back(world: World) -> None:
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    await world.compute([request_id])
    await world.tick(world.settlement(), 2)
    intent = await world.pool.fetchval(
        "INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit, reason,"
        " inputs, closed_at) VALUES ('dispute', '', 'final', '', '', '', 1, '', '{}', now())"
        " RETURNING id"
    )
    await world.pool.execute(
        "INSERT INTO node.tx_item SELECT $1, id, commitment, NULL, false, 'abandoned'"
        " FROM chain.request",
        intent,
    )
    await world.tick(world.settlement(), 5)
    assert await world.answer_of(diary, request_id) == f"answer {request_id}".encode()


@given(
    earned=st.lists(st.tuples(st.integers(0, 10**15), st.integers(1, 4)), max_size=8),
    price=st.integers(1, 10**10),
    limit=st.integers(1, 6),
    late_s=st.integers(0, 4_000),
    max_gas=st.integers(50_000, 600_000),
)
def test_no_release_costs_more_than_it_earns(
    earned: list[tuple[int, int]], price: int, limit: int, late_s: int, max_gas: int
) -> None:
    terms = ReleaseTerms(price, 1_000 + late_s, max_gas)
    due = [Due(lie(0, 1, workers).held, wei) for wei, workers in earned]
    chosen = worth_releasing(due, terms, limit)
    assert len(chosen) <= limit
    gas = RELEASE_FIXED_GAS + sum(release_gas(len(one.held.owners)) for one in chosen)
    assert gas <= max_gas or len(chosen) <= 1
    whole_wei = sum(one.earned_wei for one in chosen)
    assert not chosen or whole_wei > gas * price
    assert all(one.earned_wei > one.gas * price for one in chosen)
    if chosen or late_s < 3_600:
        return
    # Nor would any of them alone have paid, nor several, where all of them fit.
    all_fit = RELEASE_FIXED_GAS + sum(one.gas for one in due) <= max_gas
    for size in range(1, limit + 1 if all_fit else 2):
        for some in combinations(due, size):
            gas = RELEASE_FIXED_GAS + sum(one.gas for one in some)
            assert sum(one.earned_wei for one in some) <= gas * price


def test_a_release_has_what_leaves_most_not_what_earns_most() -> None:
    """The share of many workers earns more, and takes more than that."""
    terms = ReleaseTerms(1, 10_000, 10**7)
    poor = [Due(lie(n, 1, 10).held, release_gas(10) + 1) for n in range(50)]
    rich = Due(lie(99, 1).held, RELEASE_FIXED_GAS + RELEASE_GAS + 1)
    assert rich.earned_wei < poor[0].earned_wei
    assert rich in worth_releasing([*poor, rich], terms, 50)


def test_a_payment_that_does_not_fit_keeps_no_smaller_one_out() -> None:
    terms = ReleaseTerms(1, 10_000, RELEASE_FIXED_GAS + 2 * RELEASE_GAS)
    first, large, last = (
        Due(lie(n, 1, workers).held, wei)
        for n, workers, wei in ((1, 1, 10**6), (2, 4, 10**6 - 1), (3, 1, 10**5))
    )
    assert worth_releasing([first, large, last], terms, 50) == [first, last]
