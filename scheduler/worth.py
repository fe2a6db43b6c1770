"""Whether another block of waiting is worth more than it costs.

A batch that waits costs its results' delay, and saves the fixed gas of a transaction by sharing it
with more results. Waiting is over when a block of it costs more than a block of posting does on
average, the marginal value theorem (Charnov, "Optimal foraging", 1976):

    the next block's cost   results * delay_price * block - (price now - price expected) * gas
    the average of a block  (fixed_gas * price + delay cost so far) * block / time since the last
                            post, estimated as (age of the oldest + block) * (n + 1) / n

and at the latest when the delay so far has cost as much as the fixed gas, the rule of the TCP
acknowledgement problem, which alone costs at most twice the best choice in hindsight at a constant
gas price (Dooly, Goldman, Scott, "TCP dynamic acknowledgment delay", STOC 1998). Results that come
evenly meet both at the same time. Neither needs to know how fast they come. For the fall of the
base fee a batch waits at most until the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler.gas import expected_base_fee
from scheduler.model import PostingSnapshot, ReadyResult


@dataclass(frozen=True, slots=True)
class Worth:
    """The figures that decide whether a batch has waited long enough, in wei."""

    delay_wei: int
    """What the results' delay has cost so far."""
    fixed_wei: int
    """What a transaction costs however much is in it."""
    next_block_wei: int
    """What one more block costs: its delay, less what gas is expected to get cheaper."""
    fall_wei: int
    """What the batch's gas is expected to get cheaper with the next block; negative = dearer."""
    age_ms: int
    """Of the oldest result."""
    block_ms: int
    """Between two blocks; 0 = not known."""
    results: int

    @property
    def is_worth_it(self) -> bool:
        return self.has_accumulated or self.exceeds_average

    @property
    def has_accumulated(self) -> bool:
        return self.delay_wei >= self.fixed_wei

    @property
    def exceeds_average(self) -> bool:
        """Whether the next block costs more than a block costs on average if this is the post."""
        since_ms = (self.age_ms + self.block_ms) * (self.results + 1)
        average_ms_wei = (self.fixed_wei + self.delay_wei) * self.block_ms * self.results
        return self.block_ms > 0 and self.next_block_wei * since_ms >= average_ms_wei

    @property
    def awaits_fall(self) -> bool:
        """Whether it would be posted now if gas were not expected to get cheaper."""
        still = replace(self, next_block_wei=self.next_block_wei + self.fall_wei)
        return not self.is_worth_it and still.exceeds_average


def weigh(
    snapshot: PostingSnapshot, results: Sequence[ReadyResult], gas: int, now_s: float
) -> Worth:
    """Of results that would be posted together with that much gas; at least one."""
    rules, block = snapshot.rules, snapshot.block
    base_fee_wei = block.base_fee_wei
    ages_ms = [max(0, int((now_s - result.computed_at_s) * 1000)) for result in results]
    block_ms = int(snapshot.block_interval_s * 1000)
    fall_wei = 0
    if snapshot.recent_base_fees_wei:
        fees_wei = (*snapshot.recent_base_fees_wei, base_fee_wei)
        fall_wei = (base_fee_wei - expected_base_fee(fees_wei, block.gas_limit)) * gas
    fixed_gas, data_fee = snapshot.gas.fixed_gas, snapshot.data_fee
    block_wei = len(results) * block_ms * rules.delay_price_wei_per_s // 1000
    return Worth(
        delay_wei=sum(ages_ms) * rules.delay_price_wei_per_s // 1000,
        fixed_wei=fixed_gas * (base_fee_wei + rules.priority_fee_wei + data_fee.per_gas_wei)
        + data_fee.fixed_wei,
        next_block_wei=block_wei - fall_wei,
        fall_wei=fall_wei,
        age_ms=max(ages_ms),
        block_ms=block_ms,
        results=len(results),
    )
