"""Whether a batch waits for another block: its delay, the fee that is expected, and the limit."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from scheduler.batching import decide
from scheduler.model import PostReason
from tests.scheduler.make import GAS, GWEI, NOW_S, posting, postings, ready


@given(postings())
@settings(max_examples=300)
def test_it_waits_no_longer_than_until_the_delay_has_cost_the_fixed_gas(snapshot):
    """Whatever it expects of the price."""
    decision = decide(snapshot)
    if decision.reason in {PostReason.ACCUMULATING, PostReason.FEE_FALLING}:
        assert decision.inputs.get("delay_cost_wei", 0) <= max(
            decision.inputs.get("fixed_cost_wei", 0) - 1, 0
        )


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


def test_a_fee_above_its_recent_mean_is_waited_out_and_one_below_is_taken():
    gas = replace(GAS, per_result_gas=100_000)
    results = (ready(1, computed_at_s=NOW_S - 48.0), ready(2))
    usual = posting(results, gas=gas, block_interval_s=12.0, recent_base_fees_wei=(GWEI,) * 32)
    assert decide(usual).reason is PostReason.WORTH_IT
    dear = replace(usual, recent_base_fees_wei=(GWEI // 5,) * 32)
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
