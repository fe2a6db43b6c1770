"""When a batch is posted, which results are in it, and that it never loses money."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.batching import decide
from scheduler.gas import MAX_TRANSACTION_GAS, base_fee_bound
from scheduler.gathering import gather
from scheduler.model import DataFee, DeliveryKind, GasModel
from scheduler.posting_model import PostReason
from tests.scheduler.make import (
    GAS,
    GWEI,
    NOW_S,
    block,
    posting,
    posting_rules,
    postings,
    ready,
    worker_id,
)

# At 1 gwei: fixed 50,000 gwei, a group 10,000, a result 5,000.
RICH = 1_000_000 * GWEI


def _added_gas(snapshot, result) -> int:
    return snapshot.gas.of_result(result.delivery) + result.later_gas


def _ids(decision) -> list[int]:
    return [result.key.id for result in decision.results]


@given(postings())
@settings(max_examples=400)
def test_no_post_loses_money_or_breaks_a_cap(snapshot):
    decision = decide(snapshot)
    rules = snapshot.rules
    price_wei = snapshot.block.base_fee_wei + rules.priority_fee_wei
    assert decision.sentence.endswith(".")
    assert decision.inputs["ready"] == len(snapshot.ready)
    if not decision.results:
        assert (decision.gas_limit_estimate, decision.cost_wei, decision.revenue_wei) == (0, 0, 0)
        return
    results = decision.results
    groups = len({r.worker for r in results})
    gas = snapshot.gas.of(
        groups,
        len(results),
        stored=sum(r.delivery is DeliveryKind.STORED for r in results),
        callbacks=sum(r.delivery is DeliveryKind.CALLBACK for r in results),
    )
    assert decision.gas_limit_estimate == gas <= rules.max_gas
    assert decision.cost_wei == gas * price_wei
    assert decision.later_cost_wei == sum(r.later_gas for r in results) * price_wei
    assert decision.revenue_wei == sum(r.revenue_wei for r in results)
    assert decision.revenue_wei >= decision.cost_wei + decision.later_cost_wei
    assert price_wei <= decision.fee_cap_wei <= rules.max_fee_per_gas_wei
    # Mined at any price that it offers, it is no loss, nor are the calls at that price.
    gas_with_calls = gas + sum(r.later_gas for r in results)
    assert decision.revenue_wei >= gas_with_calls * decision.fee_cap_wei
    assert len({r.key for r in results}) == len(results) <= rules.max_results
    next_block_s = max(snapshot.now_s, NOW_S + snapshot.block_interval_s)
    assert all(r.deadline_s >= next_block_s for r in results)
    assert not set(results) & set(decision.too_late)
    assert set(results) <= set(snapshot.ready)
    if decision.reason is PostReason.NOT_BATCHABLE:
        assert [r.batchable for r in results] == [False]
    else:
        assert all(r.batchable for r in results)
        # Each worker's group, and each result, pays for what it adds.
        for worker in {r.worker for r in results}:
            own = [r for r in results if r.worker == worker]
            added = snapshot.gas.per_group_gas + sum(_added_gas(snapshot, r) for r in own)
            assert sum(r.revenue_wei for r in own) >= added * price_wei
        assert all(r.revenue_wei >= _added_gas(snapshot, r) * price_wei for r in results)


@st.composite
def data_fees(draw):
    """Of the order of what gas costs in `postings`."""
    gwei = st.sampled_from([0, 1_000 * GWEI, 20_000 * GWEI])
    return DataFee(draw(gwei), draw(gwei), draw(gwei), draw(st.sampled_from([0, 1, GWEI])))


@given(postings(), data_fees(), st.integers(0, 3_000 * GWEI))
@settings(max_examples=400)
def test_a_fee_for_bytes_is_earned_too(snapshot, data_fee, later_data_wei):
    ready = tuple(
        replace(r, later_data_wei=later_data_wei if r.later_gas else 0) for r in snapshot.ready
    )
    snapshot = replace(snapshot, ready=ready, data_fee=data_fee)
    decision = decide(snapshot)
    if not decision.results:
        return
    results, gas = decision.results, decision.gas_limit_estimate
    price_wei = snapshot.block.base_fee_wei + snapshot.rules.priority_fee_wei
    bytes_wei = data_fee.of(len({r.worker for r in results}), len(results), gas)
    later_gas = sum(r.later_gas for r in results)
    later_bytes_wei = sum(r.later_data_wei for r in results)
    assert decision.cost_wei == gas * price_wei + bytes_wei
    assert decision.later_cost_wei == later_gas * price_wei + later_bytes_wei
    assert decision.revenue_wei >= decision.cost_wei + decision.later_cost_wei
    at_most_wei = (gas + later_gas) * decision.fee_cap_wei + bytes_wei + later_bytes_wei
    assert decision.revenue_wei >= at_most_wei
    assert ("for its bytes" in decision.sentence) is (bytes_wei > 0)
    if decision.reason is PostReason.NOT_BATCHABLE:
        return
    for one in results:
        own_gas = snapshot.gas.of_result(one.delivery)
        own_wei = own_gas * (price_wei + data_fee.per_gas_wei) + data_fee.per_result_wei
        assert one.revenue_wei >= own_wei + one.later_gas * price_wei + one.later_data_wei


def test_a_fee_for_a_post_however_small_is_shared_by_waiting():
    """Of two chains with the same gas, that one waits longer where a post costs more beside it."""
    results = tuple(ready(n, revenue_wei=RICH, computed_at_s=NOW_S - 60) for n in (1, 2))
    rules = posting_rules(delay_price_wei_per_s=1_000 * GWEI, guard_s=0.1)
    snapshot = posting(results, rules=rules)
    assert decide(snapshot).reason is PostReason.WORTH_IT
    dear = replace(snapshot, data_fee=DataFee(fixed_wei=100_000 * GWEI))
    assert decide(dear).reason is PostReason.ACCUMULATING
    assert decide(dear).inputs["fixed_cost_wei"] == 150_000 * GWEI


@given(postings(), st.randoms(use_true_random=False))
def test_the_order_of_the_ready_results_is_irrelevant(snapshot, rng):
    other = replace(snapshot, ready=tuple(rng.sample(snapshot.ready, len(snapshot.ready))))
    assert decide(other) == decide(snapshot)


@given(postings())
@settings(max_examples=300)
def test_a_near_deadline_is_never_left_to_accumulate(snapshot):
    """Whoever pays for a post of his own and cannot wait a block goes now, caps permitting."""
    decision = decide(snapshot)
    interval_s, guard_s = snapshot.block_interval_s, snapshot.rules.guard_s
    near_s = max(guard_s, interval_s) + interval_s
    if decision.reason in {PostReason.GAS_PRICE_OVER_CAP, PostReason.NOT_BATCHABLE}:
        return
    price_wei = snapshot.block.base_fee_wei + snapshot.rules.priority_fee_wei
    first_gas = snapshot.gas.of(1, 0)
    urgent = [
        r
        for r in snapshot.ready
        if r.batchable
        and interval_s <= r.deadline_s - snapshot.now_s < near_s
        and r.revenue_wei >= (first_gas + _added_gas(snapshot, r)) * price_wei
        and first_gas + snapshot.gas.of_result(r.delivery) <= snapshot.rules.max_gas
    ]
    if urgent:
        assert decision.reason is PostReason.DEADLINE_NEAR
        assert any(r.deadline_s - snapshot.now_s < near_s for r in decision.results)


@st.composite
def waits(draw):
    """Blocks at most `interval_s` apart, and results that become ready somewhen between them."""
    interval_s = draw(st.integers(1, 30))
    steps_s = draw(st.lists(st.integers(1, interval_s), min_size=1, max_size=5))
    arrivals = [
        (
            NOW_S + draw(st.integers(0, 60)),
            draw(st.integers(0, 4 * interval_s)),
            draw(st.sampled_from([True, True, False])),
        )
        for _ in range(draw(st.integers(1, 8)))
    ]
    rules = posting_rules(
        guard_s=draw(st.sampled_from([0.1, 6.0, 20.0])),
        delay_price_wei_per_s=draw(st.sampled_from([0, 10**10, 10**12])),
    )
    fees_wei = tuple(draw(st.lists(st.integers(GWEI // 4, 4 * GWEI), max_size=4)))
    return interval_s, steps_s, arrivals, rules, fees_wei


@given(waits(), st.floats(0.0, 0.999), st.sampled_from([0.5, 2.0, 60.0]))
@settings(max_examples=300)
def test_what_is_ready_in_time_is_mined_in_time_and_nothing_is_mined_late(wait, part, lead_s):
    """Each result pays for a post of its own. Every step posts until it decides to wait."""
    interval_s, steps_s, arrivals, rules, fees_wei = wait
    waiting = [
        (ready_s, ready(n, deadline_s=ready_s + left_s, computed_at_s=ready_s, batchable=batchable))
        for n, (ready_s, left_s, batchable) in enumerate(arrivals)
    ]
    owed = set()
    mined = {}
    gathering = None
    head_s, steps = NOW_S, cycle(steps_s)
    while head_s <= NOW_S + 60 + 4 * interval_s:
        next_s = head_s + next(steps)
        # At the block, somewhere between the blocks, and whenever a result becomes ready.
        times = {head_s, head_s + part * (next_s - head_s)}
        times |= {ready_s for ready_s, _ in waiting if head_s <= ready_s < next_s}
        while times:
            now_s = min(times)
            times.remove(now_s)
            gathering = gather(
                gathering,
                block(hash=str(head_s).encode(), timestamp_s=head_s),
                now_s=now_s,
                interval_s=interval_s,
                lead_s=lead_s,
            )
            here = [r for ready_s, r in waiting if ready_s <= now_s and r.key.id not in mined]
            owed |= {r.key.id for r in here if r.deadline_s >= head_s + interval_s}
            snapshot = posting(
                (),
                block=block(timestamp_s=head_s),
                rules=rules,
                block_interval_s=interval_s,
                recent_base_fees_wei=fees_wei,
            )
            snapshot = replace(snapshot, due_at_s=gathering.due_at_s)
            while True:
                decision = decide(replace(snapshot, now_s=now_s, ready=tuple(here)))
                if decision.reason is PostReason.GATHERING:
                    assert now_s < decision.again_at_s
                    gathering = gathering.held()
                    times |= {decision.again_at_s} if decision.again_at_s < next_s else set()
                elif decision.reason is not PostReason.NOTHING_READY:
                    gathering = gathering.decided(now_s)
                if not decision.results:
                    break
                for result in decision.results:
                    mined[result.key.id] = next_s
                    assert next_s <= result.deadline_s
                here = [r for r in here if r.key.id not in mined]
        head_s = next_s
    assert owed <= set(mined)


def test_nothing_ready():
    assert decide(posting(())).reason is PostReason.NOTHING_READY


def test_it_waits_until_the_delay_has_cost_the_fixed_gas():
    """Fixed 50,000 gwei = 5e13 wei; at 1e12 wei per second and result that is 50 s in all."""
    results = (ready(1, computed_at_s=NOW_S - 20.0), ready(2, computed_at_s=NOW_S - 29.0))
    waiting = decide(posting(results))
    assert waiting.reason is PostReason.ACCUMULATING
    assert waiting.results == ()
    assert waiting.sentence == (
        "2 results wait: their delay has cost 0.000049 ETH of the 0.00005 ETH of fixed gas that "
        "makes a post worth it."
    )
    worth = decide(posting(results, now_s=NOW_S + 0.5))
    assert worth.reason is PostReason.WORTH_IT
    assert _ids(worth) == [1, 2]
    assert worth.cost_wei == 70_000 * GWEI


def test_a_single_result_goes_almost_at_once_when_gas_is_cheap():
    one = (ready(1, computed_at_s=NOW_S - 1.0),)
    assert decide(posting(one)).reason is PostReason.ACCUMULATING
    cheap = block(base_fee_wei=GWEI // 100)
    assert decide(posting(one, block=cheap)).reason is PostReason.WORTH_IT


def test_a_near_deadline_posts_what_is_ready():
    results = (ready(1), ready(2, deadline_s=NOW_S + 19))
    decision = decide(posting(results))
    assert decision.reason is PostReason.DEADLINE_NEAR
    assert "19.0 s away" in decision.sentence
    assert _ids(decision) == [2, 1]
    at_guard = (ready(1), ready(2, deadline_s=NOW_S + 20))
    assert decide(posting(at_guard)).reason is PostReason.ACCUMULATING


def test_a_full_batch_goes_and_the_urgent_and_rich_have_the_places():
    results = (
        *(ready(n, revenue_wei=RICH * n) for n in range(1, 6)),
        ready(9, revenue_wei=RICH // 2, deadline_s=NOW_S + 10),
    )
    rules = posting_rules(max_results=3, guard_s=5.0)
    full = decide(posting(results, rules=rules))
    assert full.reason is PostReason.BATCH_FULL
    assert _ids(full) == [5, 4, 3]
    urgent = decide(posting(results, rules=replace(rules, guard_s=20.0)))
    assert urgent.reason is PostReason.DEADLINE_NEAR
    assert _ids(urgent) == [9, 5, 4]


def test_equal_results_take_the_places_by_key():
    results = tuple(ready(n, computed_at_s=NOW_S - 60.0) for n in (3, 1, 2))
    rules = posting_rules(max_results=2)
    for order in (results, results[::-1], results[1:] + results[:1]):
        assert _ids(decide(posting(order, rules=rules))) == [1, 2]


def test_gas_is_a_cap_too_and_so_is_the_block():
    results = tuple(ready(n, revenue_wei=RICH) for n in range(1, 6))
    for changes in (
        {"rules": posting_rules(max_gas=70_000)},
        {"block": block(gas_limit=70_000)},
    ):
        decision = decide(posting(results, **changes))
        assert decision.reason is PostReason.BATCH_FULL
        assert _ids(decision) == [1, 2]
        assert decision.gas_limit_estimate == 70_000


def test_a_result_that_must_travel_alone_goes_at_once_by_itself():
    results = (ready(1), ready(2, batchable=False), ready(3, batchable=False, deadline_s=NOW_S + 9))
    decision = decide(posting(results))
    assert decision.reason is PostReason.NOT_BATCHABLE
    assert _ids(decision) == [3]
    assert decision.cost_wei == 65_000 * GWEI


def test_an_earlier_deadline_goes_before_a_result_that_travels_alone():
    results = (ready(1, deadline_s=NOW_S + 5), ready(2, batchable=False))
    decision = decide(posting(results))
    assert decision.reason is PostReason.DEADLINE_NEAR
    assert _ids(decision) == [1]


def test_one_that_travels_alone_must_pay_for_it_alone():
    decision = decide(posting((ready(1, batchable=False, revenue_wei=65_000 * GWEI - 1),)))
    assert decision.reason is PostReason.UNPROFITABLE
    assert decision.inputs["unprofitable"] == 1


def test_results_that_do_not_pay_their_own_gas_are_left_out_and_counted():
    results = (
        ready(1, revenue_wei=RICH, deadline_s=NOW_S + 5),
        ready(2, revenue_wei=5_000 * GWEI - 1),
        ready(3, revenue_wei=5_000 * GWEI),
        ready(4, revenue_wei=14_999 * GWEI, worker=worker_id(2)),  # not its own group
    )
    decision = decide(posting(results))
    assert _ids(decision) == [1, 3]
    assert decision.inputs["unprofitable"] == 2


def test_what_never_pays_does_not_press_for_a_post():
    poor = ready(1, revenue_wei=1, computed_at_s=NOW_S - 1e6)
    assert decide(posting((poor, ready(2)))).reason is PostReason.ACCUMULATING


def test_even_a_deadline_is_no_reason_to_lose_money():
    results = tuple(ready(n, revenue_wei=20_000 * GWEI, deadline_s=NOW_S + 5) for n in (1, 2, 3))
    decision = decide(posting(results))
    assert decision.reason is PostReason.UNPROFITABLE
    assert decision.results == ()
    fourth = ready(4, revenue_wei=20_000 * GWEI)
    assert decide(posting((*results, fourth))).revenue_wei == 80_000 * GWEI


def test_urgent_but_poor_results_do_not_crowd_out_those_that_pay_for_the_post():
    poor = tuple(ready(n, revenue_wei=15_000 * GWEI, deadline_s=NOW_S + 5) for n in (1, 2))
    rich = tuple(ready(n, revenue_wei=100_000 * GWEI) for n in (3, 4))
    decision = decide(posting((*poor, *rich), rules=posting_rules(max_results=2)))
    assert decision.reason is PostReason.DEADLINE_NEAR
    assert _ids(decision) == [3, 4]


def test_nor_does_a_rich_one_that_can_wait_take_the_place_of_an_urgent_one_that_pays():
    poor = ready(1, revenue_wei=15_000 * GWEI, deadline_s=NOW_S + 4)
    urgent = ready(3, revenue_wei=70_000 * GWEI, deadline_s=NOW_S + 5)
    rich = ready(2, revenue_wei=100_000 * GWEI)
    decision = decide(posting((poor, urgent, rich), rules=posting_rules(max_results=1)))
    assert _ids(decision) == [3]


def test_a_group_that_the_cap_cuts_below_its_cost_makes_room():
    """Worker 2's three results pay for its group together, two of them would not."""
    own = tuple(ready(n, revenue_wei=9_000 * GWEI, worker=worker_id(2)) for n in (1, 2, 3))
    rich = ready(4, revenue_wei=RICH)
    last = ready(5, revenue_wei=8_000 * GWEI)
    decision = decide(posting((*own, rich, last), rules=posting_rules(max_results=3)))
    assert _ids(decision) == [4, 5]


@pytest.mark.parametrize("tip_gwei", [0, 1])
def test_gas_above_the_cap_waits_whatever_is_at_stake(tip_gwei):
    rules = posting_rules(max_fee_per_gas_wei=3 * GWEI, priority_fee_wei=tip_gwei * GWEI)
    snapshot = posting((ready(1, revenue_wei=RICH, deadline_s=NOW_S + 5),), rules=rules)
    at_cap = replace(snapshot, block=block(base_fee_wei=(3 - tip_gwei) * GWEI))
    assert decide(at_cap).reason is PostReason.DEADLINE_NEAR
    over = replace(snapshot, block=block(base_fee_wei=(3 - tip_gwei) * GWEI + 1))
    decision = decide(over)
    assert decision.reason is PostReason.GAS_PRICE_OVER_CAP
    assert decision.sentence == "Gas costs 3000000001 wei; the cap is 3000000000 wei."


def test_past_deadlines_are_left_out():
    decision = decide(posting((ready(1, deadline_s=NOW_S - 1),)))
    assert decision.reason is PostReason.TOO_LATE
    assert decision.inputs["expired"] == 1
    assert "1 are past their deadline" in decision.sentence


def test_on_slow_blocks_the_guard_begins_one_block_earlier_and_two_at_least():
    rules = posting_rules(guard_s=6.0)
    for interval_s, near_s in ((2.0, 8), (6.0, 12), (12.0, 24)):
        for left_s, reason in (
            (near_s - 1, PostReason.DEADLINE_NEAR),
            (near_s, PostReason.ACCUMULATING),
        ):
            one = (ready(1, deadline_s=NOW_S + left_s),)
            slow = posting(one, rules=rules, block_interval_s=interval_s)
            assert decide(slow).reason is reason


def test_what_the_next_block_is_too_late_for_is_left_out_and_told():
    late = ready(1, deadline_s=NOW_S + 11)
    decision = decide(posting((late,), block_interval_s=12.0))
    assert decision.reason is PostReason.TOO_LATE
    assert decision.too_late == (late,)
    assert decision.inputs["too_late"] == 1
    assert "1 would be past it in the next block" in decision.sentence
    in_time = ready(2, deadline_s=NOW_S + 12)
    both = decide(posting((late, in_time), block_interval_s=12.0))
    assert (_ids(both), both.too_late) == ([2], (late,))


def test_a_late_block_is_expected_at_any_moment():
    """The wall clock is past the time of the next block: it will be stamped with now or later."""
    one = ready(1, deadline_s=NOW_S + 15)
    snapshot = posting((one,), block_interval_s=12.0)
    assert _ids(decide(replace(snapshot, now_s=NOW_S + 14.5))) == [1]
    assert decide(replace(snapshot, now_s=NOW_S + 15.5)).inputs["expired"] == 1


def test_of_two_results_for_one_request_one_is_posted():
    late = ready(1, worker=worker_id(2), computed_at_s=NOW_S - 50.0)
    first = ready(1, worker=worker_id(1), computed_at_s=NOW_S - 60.0)
    decision = decide(posting((late, first)))
    assert decision.results == (first,)
    assert decision.inputs["duplicates"] == 1


def test_of_two_results_for_one_request_the_one_with_the_cheaper_call_is_posted():
    """A longer answer of another worker, which came first: its call alone takes what both earn."""
    long = ready(1, worker=worker_id(1), computed_at_s=NOW_S - 60.0, later_gas=10**9)
    short = ready(1, worker=worker_id(2), computed_at_s=NOW_S - 50.0, later_gas=30_000)
    assert decide(posting((long,))).reason is PostReason.UNPROFITABLE
    assert decide(posting((long, short))).results == (short,)


def test_a_full_batch_has_the_results_that_leave_most():
    """Not those that earn most: what this one's call takes, it does not leave for the post."""
    dear = ready(1, revenue_wei=RICH, later_gas=RICH // GWEI - 5_000)
    cheap = ready(2, revenue_wei=RICH - 1)
    rules = posting_rules(max_results=1)
    assert decide(posting((dear, cheap), rules=rules)).results == (cheap,)


def test_a_group_is_a_worker():
    results = tuple(ready(n, worker=worker_id(n % 2), computed_at_s=NOW_S - 60.0) for n in range(6))
    decision = decide(posting(results, gas=GasModel(50_000, 7_000, 5_000)))
    assert decision.gas_limit_estimate == 50_000 + 2 * 7_000 + 6 * 5_000
    assert GAS.of(2, 6) == 100_000


@given(postings())
def test_the_same_snapshot_gives_the_same_decision(snapshot):
    assert decide(snapshot) == decide(replace(snapshot))


def test_a_result_bears_what_its_delivery_takes():
    gas = replace(GAS, per_stored_gas=4_000, per_callback_gas=6_000)
    results = (
        ready(1, revenue_wei=RICH, deadline_s=NOW_S + 5),
        ready(2, revenue_wei=9_000 * GWEI, delivery=DeliveryKind.STORED),
        ready(3, revenue_wei=9_000 * GWEI - 1, delivery=DeliveryKind.STORED),
        ready(4, revenue_wei=41_000 * GWEI, delivery=DeliveryKind.CALLBACK, later_gas=30_000),
        ready(5, revenue_wei=41_000 * GWEI - 1, delivery=DeliveryKind.CALLBACK, later_gas=30_000),
    )
    decision = decide(posting(results, gas=gas))
    assert _ids(decision) == [1, 2, 4], "nobody else leaves more than its gas"
    assert decision.gas_limit_estimate == 50_000 + 10_000 + 3 * 5_000 + 4_000 + 6_000
    assert decision.later_cost_wei == 30_000 * GWEI
    assert "and the calls of contracts 0.00003 ETH" in decision.sentence
    # Alone, the call counts too, and so does what it adds to the cap.
    single = replace(results[3], batchable=False, revenue_wei=101_000 * GWEI)
    assert _ids(decide(posting((single,), gas=gas))) == [4]
    poor = replace(single, revenue_wei=101_000 * GWEI - 1)
    assert decide(posting((poor,), gas=gas)).reason is PostReason.UNPROFITABLE
    tight = decide(posting(results[:1] + results[3:], gas=gas, rules=posting_rules(max_gas=84_999)))
    assert _ids(tight) == [1, 4]


def test_no_transaction_has_more_gas_than_the_protocol_takes():
    """Each result takes 1,000,000 of gas: 16 of them and the rest are 16,060,000."""
    gas = replace(GAS, per_result_gas=1_000_000)
    results = tuple(ready(n, revenue_wei=RICH * 10) for n in range(1, 25))
    rules = posting_rules(max_gas=30_000_000)
    decision = decide(posting(results, gas=gas, rules=rules))
    assert decision.reason is PostReason.BATCH_FULL
    assert len(decision.results) == 16
    assert decision.gas_limit_estimate <= MAX_TRANSACTION_GAS


def test_the_fee_cap_is_what_the_base_fee_can_reach_by_the_first_deadline():
    rich = ready(1, revenue_wei=RICH, deadline_s=NOW_S + 40)
    rules = posting_rules(priority_fee_wei=GWEI, guard_s=60.0)
    snapshot = posting((rich,), rules=rules, block_interval_s=12.0)
    assert decide(snapshot).fee_cap_wei == base_fee_bound(GWEI, 3) + GWEI
    far = replace(snapshot, ready=(replace(rich, deadline_s=NOW_S + 10**6, batchable=False),))
    assert decide(far).fee_cap_wei == RICH // 65_000
    capped = replace(far, rules=replace(rules, max_fee_per_gas_wei=3 * GWEI))
    assert decide(capped).fee_cap_wei == 3 * GWEI
    single = replace(rich, revenue_wei=150_000 * GWEI)
    assert decide(replace(snapshot, ready=(single,))).fee_cap_wei == 150_000 * GWEI // 65_000
