"""Posting over a path of base fees: the daemon's own `decide`, and simpler rules beside it.

Time goes in steps of one block. At a step the head's successor has a known base fee, what arrived
since the step before is ready, and what is posted is mined in the successor. Results earn more than
they cost, so that only the time of posting is measured: the gas paid, the delay, and what missed
its deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scheduler.batching import decide
from scheduler.gas import FORECAST_BLOCKS
from scheduler.model import Block, GasModel, RequestKey, WorkerId
from scheduler.posting_model import PostingRules, PostingSnapshot, ReadyResult
from scheduler.simulation.base_fee import BaseFeeSeries
from scheduler.simulation.clairvoyant import least_cost_wei

MEASURED_GAS = GasModel(fixed_gas=60_000, per_group_gas=0, per_result_gas=35_000)
"""Of the measurement this one is compared with: a post of its own for the results of one worker,
each with its share of a callback."""

_START_S = 1_700_000_000
_WORKER = WorkerId(bytes(20))
_NO_LIMIT = 2**256
_WINDOW_BLOCKS = 200


@dataclass(frozen=True, slots=True)
class World:
    """What a rule is tried on."""

    series: BaseFeeSeries
    arrivals: NDArray[np.int64]
    """Results that become ready at each step, of which there are one less than blocks: the last
    has no successor."""
    deadline_blocks: int
    """Steps after the one it became ready at in which a result can still be posted."""
    delay_price_wei_per_s: int
    gas: GasModel = MEASURED_GAS

    @property
    def prices_wei(self) -> tuple[int, ...]:
        """The gas price that each step pays: the next block's base fee."""
        return self.series.base_fees_wei[1:]


@dataclass(frozen=True)
class View:
    """What a rule sees at one step."""

    world: World
    step: int
    waiting: Sequence[int]
    """The steps at which the results that wait became ready, oldest first; at least one."""

    @property
    def price_wei(self) -> int:
        return self.world.prices_wei[self.step]

    @property
    def age_blocks(self) -> int:
        """Of the oldest."""
        return self.step - self.waiting[0]

    @cached_property
    def recent_wei(self) -> tuple[int, ...]:
        """Base fees of some two hundred blocks up to the head."""
        return self.world.series.base_fees_wei[max(self.step - _WINDOW_BLOCKS, 0) : self.step + 1]


Rule = Callable[[View], int]
"""How many of the oldest waiting results to post now; at the last step in time all that are."""


def at_once(view: View) -> int:
    """All, always."""
    return len(view.waiting)


def fixed_size(size: int) -> Rule:
    """All as soon as there are `size`."""
    return lambda view: len(view.waiting) if len(view.waiting) >= size else 0


def price_by_age(view: View) -> int:
    """All where the price is among the lowest of the recent blocks; how low, falls with age."""
    rank = sum(fee_wei < view.price_wei for fee_wei in view.recent_wei) / len(view.recent_wei)
    return len(view.waiting) if rank <= view.age_blocks / view.world.deadline_blocks else 0


def as_daemon(view: View) -> int:
    """What the daemon does."""
    return len(decide(snapshot_of(view)).results)


def snapshot_of(view: View) -> PostingSnapshot:
    """The view as `decide` takes it."""
    world, step = view.world, view.step
    series, interval_s = world.series, world.series.interval_s
    results = tuple(
        ReadyResult(
            RequestKey(number, b""),
            _WORKER,
            _NO_LIMIT,
            _NO_LIMIT,
            deadline_s=_time_s(ready + world.deadline_blocks + 1, interval_s),
            computed_at_s=float(_time_s(ready, interval_s)),
            batchable=True,
        )
        for number, ready in enumerate(view.waiting)
    )
    return PostingSnapshot(
        block=Block(step, b"", _time_s(step, interval_s), view.price_wei, series.gas_limits[step]),
        now_s=float(_time_s(step, interval_s)),
        ready=results,
        gas=world.gas,
        rules=PostingRules(
            delay_price_wei_per_s=world.delay_price_wei_per_s,
            max_results=_NO_LIMIT,
            max_gas=_NO_LIMIT,
            guard_s=0.0,
            priority_fee_wei=0,
            max_fee_per_gas_wei=_NO_LIMIT,
        ),
        block_interval_s=interval_s,
        recent_base_fees_wei=series.base_fees_wei[max(step - FORECAST_BLOCKS, 0) : step + 1],
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule's posts cost."""

    gas_wei: int
    delay_wei: float
    results: int
    posts: int
    mean_delay_blocks: float
    missed: int
    """Results that were not posted within their deadline, and so never."""

    @property
    def cost_wei(self) -> float:
        return self.gas_wei + self.delay_wei


def simulate(world: World, rule: Rule, *, hard_deadline: bool = True) -> Outcome:
    """Follows the rule to the end. With `hard_deadline` all that waits is posted where the oldest
    can wait no longer, whatever the rule says: the daemon's own needs no such help."""
    delay_wei_per_block = delay_of_block_wei(world)
    waiting: list[int] = []
    gas_wei = delay_blocks = posts = missed = posted = 0
    for step, price_wei in enumerate(world.prices_wei):
        while waiting and waiting[0] + world.deadline_blocks < step:
            waiting.pop(0)
            missed += 1
        waiting += [step] * int(world.arrivals[step])
        if not waiting:
            continue
        number = rule(View(world, step, waiting))
        if hard_deadline and waiting[0] + world.deadline_blocks == step:
            number = len(waiting)
        if number:
            gas_wei += world.gas.of(1, number) * price_wei
            delay_blocks += sum(step - ready for ready in waiting[:number])
            posts += 1
            posted += number
            del waiting[:number]
    missed += len(waiting)
    return Outcome(
        gas_wei,
        delay_blocks * delay_wei_per_block,
        posted,
        posts,
        delay_blocks / posted if posted else 0.0,
        missed,
    )


def clairvoyant_wei(world: World, *, delay_counts: bool = True) -> float:
    """The least that posting all in time could have cost; of gas alone if delay does not count."""
    return least_cost_wei(
        np.array(world.prices_wei, dtype=np.float64),
        world.arrivals,
        world.deadline_blocks,
        delay_of_block_wei(world) if delay_counts else 0.0,
        world.gas,
    )


def delay_of_block_wei(world: World) -> float:
    """What one result's waiting for one block is worth."""
    return world.delay_price_wei_per_s * world.series.interval_s


def poisson_arrivals(
    seed: int, blocks: int, per_block: float, deadline_blocks: int
) -> NDArray[np.int64]:
    """Arrivals of each step, none so late that its window would not be whole."""
    arrivals = np.random.default_rng(seed).poisson(per_block, blocks - 1).astype(np.int64)
    arrivals[max(len(arrivals) - deadline_blocks, 0) :] = 0
    return arrivals


def _time_s(step: int, interval_s: float) -> int:
    return _START_S + round(step * interval_s)
