"""One item that spoils every transaction it is in is found by halves, and blocks nobody."""

from __future__ import annotations

from math import ceil, log2

from eth_utils.crypto import keccak
from hypothesis import given
from hypothesis import strategies as st

from inferd.chain.requester import submit_many
from inferd.protocol.request import RequestParams, model_id, params_hash
from inferd.settlement.apart import Cohort, companies
from tests.settlement.poison import Poison
from tests.settlement.scripted import ScriptedRpc, error
from tests.settlement.world import ETHER, World


async def _commitment(world: World, request_id: int) -> bytes:
    found: bytes = await world.pool.fetchval(
        "SELECT commitment FROM chain.request WHERE id = $1", request_id
    )
    return found


async def _sizes(world: World, outcome: str) -> list[int]:
    rows = await world.pool.fetch(
        "SELECT count(*) AS n FROM node.tx_item t JOIN node.tx_intent i ON i.id = t.intent_id"
        " WHERE i.outcome = $1 GROUP BY i.id ORDER BY i.id",
        outcome,
    )
    return [row["n"] for row in rows]


async def test_a_poisonous_result_is_found_by_halves_and_given_up(world: World) -> None:
    ids = await world.submit(8)
    poisonous = ids[5]
    poison = Poison(world, world.contracts.results, [await _commitment(world, poisonous)])
    await poison.take_effect()
    await world.compute(ids)
    settlement = world.settlement(max_item_failures=5, max_in_flight=2)
    await settlement.step(await world.index())
    await poison.tick(settlement, 24)
    healthy = [one for one in ids if one != poisonous]
    assert await world.fulfilled_events() == dict.fromkeys(healthy, 1)
    assert (await world.items())[poisonous] == [*["reverted"] * 4, "abandoned"]
    assert settlement.status.abandoned == 1
    assert await _sizes(world, "reverted") == [8, 4, 2, 1, 1]
    assert sorted(await _sizes(world, "done")) == [1, 2, 4]
    diagnoses = {i["diagnosis"] for i in await world.intents() if i["outcome"] == "reverted"}
    assert diagnoses == {"RequestsPaused()"}


async def test_two_poisonous_results_block_none_of_those_that_come_later(world: World) -> None:
    ids = await world.submit(6)
    markers = [await _commitment(world, one) for one in (ids[0], ids[3])]
    poison = Poison(world, world.contracts.results, markers)
    await poison.take_effect()
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)

    async def only_replays(real: object, method: str, params: object = ()) -> object:
        if method == "debug_traceTransaction":
            await error("the method debug_traceTransaction does not exist", -32601)(world.rpc)
        return await world.rpc.request(method, params)  # type: ignore[arg-type]

    rpc.always("request", only_replays)
    settlement = world.settlement(rpc, max_item_failures=2)
    await settlement.step(await world.index())
    await poison.tick(settlement, 3)
    later = await world.submit(2)
    await world.compute(later)
    await poison.tick(settlement, 3)
    assert dict.fromkeys(later, 1).items() <= (await world.fulfilled_events()).items()
    await poison.tick(settlement, 16)
    healthy = [one for one in (*ids, *later) if one not in (ids[0], ids[3])]
    assert await world.fulfilled_events() == dict.fromkeys(healthy, 1)
    assert settlement.status.abandoned == 2
    # From a replay, as this node makes no traces.
    diagnoses = {i["diagnosis"] for i in await world.intents() if i["outcome"] == "reverted"}
    assert diagnoses == {"RequestsPaused()"}


async def test_a_poisonous_refund_is_found_by_halves(world: World) -> None:
    head = await world.rpc.header("latest")
    assert head is not None
    params = [
        RequestParams(model_id("test-model"), 16, head.timestamp_s + 30 + n, 0, b"hi")
        for n in range(4)
    ]
    await world.automine(True)
    fees = [ETHER // 100] * 4
    asked = await submit_many(world.requester, world.contracts, params, fees)  # type: ignore[arg-type]
    await world.automine(False)
    await world.rpc.request("evm_increaseTime", [60])
    await world.mine()
    poison = Poison(world, world.contracts.requests, [params_hash(params[2])[:20]])
    await poison.take_effect()
    settlement = world.settlement(max_item_failures=3)
    await settlement.step(await world.index())
    await poison.tick(settlement, 20)
    statuses = await world.statuses()
    spoilt = asked[2].request_id
    assert statuses.pop(spoilt) == "pending"
    assert set(statuses.values()) == {"refunded"}
    assert (await world.items())[spoilt] == ["reverted", "reverted", "abandoned"]
    assert await _sizes(world, "reverted") == [4, 2, 1]


async def test_a_poisonous_delivery_is_found_by_halves(world: World) -> None:
    marker = keccak(text="poison")[:20]
    diary = await world.new_diary()
    ids = [await world.ask_by(diary) for _ in range(3)]
    consumer = world.workers[0]
    spoilt = await world.ask_as(consumer, callback_gas=100_000, prompt=marker)
    await world.compute([*ids, spoilt])
    settlement = world.settlement(max_item_failures=3)
    poison = Poison(world, world.contracts.results, [marker], step=4)
    await poison.take_effect()
    await settlement.step(await world.index())
    await poison.tick(settlement, 24)
    assert [await world.answer_of(diary, one) for one in ids] == [
        f"answer {one}".encode() for one in ids
    ]
    items = await world.items()
    assert items[spoilt] == ["settled", "reverted", "reverted", "abandoned"]
    assert all(items[one][-1] == "delivered" for one in ids)


@given(
    st.lists(
        st.tuples(
            st.integers(),
            st.one_of(st.none(), st.builds(Cohort, st.integers(1, 3), st.integers(1, 9))),
        ),
        max_size=30,
    )
)
def test_companies__any__everybody_once_and_suspects_in_halves_by_themselves(
    items: list[tuple[int, Cohort | None]],
) -> None:
    found = companies(items, lambda item: item[1])
    assert sorted(map(repr, (one for company in found for one in company))) == sorted(
        map(repr, items)
    )
    for number, company in enumerate(found):
        (cohort,) = {cohort for _, cohort in company}
        if cohort is None:
            assert number == 0
        else:
            assert len(company) <= max(1, ceil(cohort.size / 2))


@given(st.integers(1, 64), st.sets(st.integers(0, 63)))
def test_bisection__any_poison__all_others_are_settled_within_few_transactions(
    size: int, poisonous: set[int]
) -> None:
    poisonous = {one for one in poisonous if one < size}
    failed: dict[int, Cohort] = {}
    alone: set[int] = set()
    open_items = set(range(size))
    transactions = 0
    while open_items - alone:
        ready = sorted(open_items - alone)
        company = companies(ready, failed.get)[0]
        transactions += 1
        if not poisonous & set(company):
            open_items -= set(company)
        else:
            failed |= dict.fromkeys(company, Cohort(transactions, len(company)))
            if len(company) == 1:
                alone |= set(company)
    assert alone == poisonous
    levels = ceil(log2(size)) + 1 if size > 1 else 1
    assert transactions <= 1 + 2 * levels * max(len(poisonous), 1)
