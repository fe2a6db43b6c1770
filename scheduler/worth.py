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
evenly meet both at the same time. Neither needs to know how fast they come.

Where the base fee is above what it usually is, a batch waits beyond both as long as that saves
something on average (`scheduler.stopping`), and at the latest until the delay so far has cost as
much as the fixed gas and what a fall to the usual fee would save: so no forecast, however wrong,
makes a batch pay more for its delay than it could have saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler.gas import expected_base_fee
from scheduler.posting_model import PostingSnapshot, ReadyResult
from scheduler.stopping import usual_base_fee_wei, waiting_saves_wei


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
    wait_saves_wei: int
    """What waiting for a dear base fee to come down saves on average, its delay taken off."""
    excess_wei: int
    """What the batch's gas costs more than at the usual base fee."""

    @property
    def is_worth_it(self) -> bool:
        return self._has_waited_enough and not self._awaits_usual

    @property
    def _has_waited_enough(self) -> bool:
        return self.has_accumulated or self.exceeds_average

    @property
    def _awaits_usual(self) -> bool:
        return self.wait_saves_wei > 0 and self.delay_wei < self.fixed_wei + self.excess_wei

    @property
    def awaits_usual(self) -> bool:
        """Whether it would be posted now if the base fee were not above what it usually is."""
        return self._has_waited_enough and self._awaits_usual

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
        """Whether it would be posted now if the next block were not expected to be cheaper."""
        still = replace(self, next_block_wei=self.next_block_wei + self.fall_wei)
        return not self._has_waited_enough and still.exceeds_average


def weigh(
    snapshot: PostingSnapshot,
    results: Sequence[ReadyResult],
    gas: int,
    now_s: float,
    spare_blocks: int,
) -> Worth:
    """Of results that would be posted together with that much gas; at least one.

    `spare_blocks` is for how many blocks more their nearest deadline lets them wait.
    """
    rules, block = snapshot.rules, snapshot.block
    base_fee_wei = block.base_fee_wei
    ages_ms = [max(0, int((now_s - result.computed_at_s) * 1000)) for result in results]
    block_ms = int(snapshot.block_interval_s * 1000)
    fall_wei = wait_saves_wei = excess_wei = 0
    block_wei = len(results) * block_ms * rules.delay_price_wei_per_s // 1000
    if snapshot.recent_base_fees_wei:
        fees_wei = (*snapshot.recent_base_fees_wei, base_fee_wei)
        fall_wei = (base_fee_wei - expected_base_fee(fees_wei, block.gas_limit)) * gas
        wait_saves_wei = waiting_saves_wei(fees_wei, spare_blocks, gas, block_wei)
        excess_wei = max(base_fee_wei - usual_base_fee_wei(fees_wei), 0) * gas
    fixed_gas, data_fee = snapshot.gas.fixed_gas, snapshot.data_fee
    return Worth(
        delay_wei=sum(ages_ms) * rules.delay_price_wei_per_s // 1000,
        fixed_wei=fixed_gas * (base_fee_wei + rules.priority_fee_wei + data_fee.per_gas_wei)
        + data_fee.fixed_wei,
        next_block_wei=block_wei - fall_wei,
        fall_wei=fall_wei,
        age_ms=max(ages_ms),
        block_ms=block_ms,
        results=len(results),
        wait_saves_wei=wait_saves_wei,
        excess_wei=excess_wei,
    )
