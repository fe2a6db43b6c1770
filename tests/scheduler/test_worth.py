"""Whether a batch waits for another block: its delay, the fee that is expected, and the limit."""

from __future__ import annotations

from dataclasses import replace
from statistics import median_low

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.batching import decide
from scheduler.posting_model import PostReason
from tests.scheduler.make import GAS, GWEI, NOW_S, block, posting, postings, ready


@given(postings())
@settings(max_examples=300)
def test_its_delay_costs_no_more_than_the_fixed_gas_and_a_fall_to_the_usual_fee(snapshot):
    """Whatever it expects of the price."""
    decision = decide(snapshot)
    if decision.reason not in {PostReason.ACCUMULATING, PostReason.FEE_FALLING}:
        return
    most_wei = decision.inputs.get("fixed_cost_wei", 0)
    if decision.inputs.get("wait_saves_wei", 0):
        fee_wei = snapshot.block.base_fee_wei
        usual_wei = median_low([*snapshot.recent_base_fees_wei, fee_wei])
        together = [r for r in snapshot.ready if r.batchable]
        gas = snapshot.gas.of(4, len(together), stored=len(together), callbacks=len(together))
        most_wei += (fee_wei - usual_wei) * gas
    assert decision.inputs.get("delay_cost_wei", 0) <= max(most_wei - 1, 0)


@given(postings(), st.integers(0, 2_000), st.integers(0, 2_000))
@settings(max_examples=300)
def test_where_delay_is_dearer_it_posts_no_later(snapshot, one, other):
    def at(price):
        rules = replace(snapshot.rules, delay_price_wei_per_s=price * 10**9)
        return decide(replace(snapshot, rules=rules)).results

    low, high = sorted((one, other))
    if at(low):
        assert at(high)


def test_it_posts_when_another_block_would_cost_more_than_a_block_does_on_average():
    """A result came 48 s ago and three just now; every block costs four results 12 s each.

    Another block costs 48e12, and so far 48e12 of delay and 50e12 of fixed gas were for a span of
    (48 + 12) * 5/4 = 75 s, or 15.7e12 a block.
    """
    results = (ready(1, computed_at_s=NOW_S - 48.0), *(ready(n) for n in (2, 3, 4)))
    decision = decide(posting(results, block_interval_s=12.0))
    assert decision.reason is PostReason.WORTH_IT
    assert decision.inputs["delay_cost_wei"] == 48 * 10**12
    assert decision.sentence.startswith(
        "4 results of 1 worker: another block would cost 0.000048 ETH, more than a block does on "
        "average; their delay has cost 0.000048 ETH; the post earns"
    )
    # The first alone: 12e12 for a block, and on average (48 + 50) / (60 * 2) * 12 = 9.8e12.
    alone = decide(posting(results[:1], block_interval_s=12.0))
    assert alone.reason is PostReason.WORTH_IT
    young = decide(posting((ready(1, computed_at_s=NOW_S - 12.0),), block_interval_s=12.0))
    assert young.reason is PostReason.ACCUMULATING


def test_a_fee_that_rises_for_a_block_is_waited_out_and_one_that_falls_is_taken():
    gas = replace(GAS, per_result_gas=100_000)
    results = (ready(1, computed_at_s=NOW_S - 48.0), ready(2))
    usual = posting(results, gas=gas, block_interval_s=12.0, recent_base_fees_wei=(GWEI,) * 32)
    assert decide(usual).reason is PostReason.WORTH_IT
    # Usually as dear as now, but for the last blocks.
    dear = replace(usual, recent_base_fees_wei=(GWEI,) * 8 + (GWEI // 5,) * 7)
    waiting = decide(dear)
    assert waiting.reason is PostReason.FEE_FALLING
    assert waiting.inputs["expected_fall_wei"] > 0
    assert "with the next block gas is expected to get" in waiting.sentence
    # Never past a deadline, and not for ever.
    near = tuple(replace(r, deadline_s=NOW_S + 20) for r in results)
    assert decide(replace(dear, ready=near)).reason is PostReason.DEADLINE_NEAR
    assert decide(replace(dear, now_s=NOW_S + 2.0)).reason is PostReason.WORTH_IT

    early = (ready(1, computed_at_s=NOW_S - 12.0),)
    usual = posting(early, gas=gas, block_interval_s=12.0, recent_base_fees_wei=(GWEI,) * 32)
    assert decide(usual).reason is PostReason.ACCUMULATING
    cheap = replace(usual, recent_base_fees_wei=(5 * GWEI,) * 32)
    assert decide(cheap).reason is PostReason.WORTH_IT


def test_a_fee_far_above_the_usual_is_waited_out_until_the_deadline_or_the_limit():
    """Of 120,000 gas at 5 gwei instead of 1; two results have waited for 160 s each."""
    results = tuple(
        ready(n, revenue_wei=10**16, computed_at_s=NOW_S - 160.0, deadline_s=NOW_S + 300)
        for n in (1, 2)
    )
    gas = replace(GAS, per_result_gas=30_000)
    fees_wei = (GWEI,) * 100
    usual = posting(results, gas=gas, block_interval_s=12.0, recent_base_fees_wei=fees_wei)
    dear = replace(usual, block=block(base_fee_wei=5 * GWEI))
    assert decide(usual).reason is PostReason.WORTH_IT
    waiting = decide(dear)
    assert waiting.reason is PostReason.FEE_FALLING
    assert waiting.inputs["delay_cost_wei"] > waiting.inputs["fixed_cost_wei"]
    assert waiting.sentence.startswith(
        "2 results wait: their gas costs 0.00048 ETH more than it usually does, and to wait for it "
        "to come down is expected to save 0.00"
    )
    assert decide(replace(dear, recent_base_fees_wei=(5 * GWEI,) * 100)).results
    near = tuple(replace(r, deadline_s=NOW_S + 23) for r in results)
    assert decide(replace(dear, ready=near)).reason is PostReason.DEADLINE_NEAR
    # 250,000 gwei of fixed gas and 480,000 of excess are what 365 s of two results cost.
    for age_s, reason in ((364, PostReason.FEE_FALLING), (366, PostReason.WORTH_IT)):
        aged = tuple(replace(r, computed_at_s=float(NOW_S - age_s)) for r in results)
        assert decide(replace(dear, ready=aged)).reason is reason
