"""One simulated world: requests, workers, blocks and base fees, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from scheduler.allowance import Limits, Probation
from scheduler.model import GasModel, Rules
from scheduler.posting_model import PostingRules
from scheduler.simulation.trace import TraceRow
from scheduler.simulation.workers import NOMINAL_SLOTS, SEGMENT_MS, TYPICAL, SimWorker
from scheduler.simulation.workers import Pool as WorkerPool
from scheduler.simulation.workload import START_S, Demand, SimRequest, draw_requests, model_id

GAS = GasModel(fixed_gas=45_000, per_group_gas=14_000, per_result_gas=5_500)
"""Of the contracts' posts, as a node assumes it before its first receipt."""
GAS_LIMIT = 60_000_000
GWEI = 10**9
PROBATION = Probation(success=0.8, in_flight=2, stake_bps=10_000)
"""As a node has it by default."""

Rows = Callable[[int, np.random.Generator], Sequence[TraceRow]]
"""That many rows of a trace, or of its law."""
BaseFees = Callable[[int, np.random.Generator], Sequence[int]]
"""Base fees of that many consecutive blocks, wei per gas."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a world is drawn from."""

    name: str
    demand: Demand
    pool: WorkerPool
    block_ms: int = 12_000
    requests: int = 500
    gas: GasModel = GAS
    rules: Rules = field(
        default_factory=lambda: Rules(
            poster_bps=1_000,
            max_wait_s=300,
            expected_batch=8,
            max_attempts=3,
            limits=Limits(probation=PROBATION),
        )
    )
    posting: PostingRules = field(
        default_factory=lambda: PostingRules(
            delay_price_wei_per_s=5_000 * GWEI,
            max_results=240,
            max_gas=15_000_000,
            guard_s=6.0,
            priority_fee_wei=0,
            max_fee_per_gas_wei=500 * GWEI,
        )
    )


@dataclass(frozen=True, slots=True)
class World:
    """What a policy is let loose on. Times are ms since the start, blocks are at multiples."""

    requests: tuple[SimRequest, ...]
    workers: tuple[SimWorker, ...]
    block_ms: int
    base_fees_wei: tuple[int, ...]
    """Of block 0, 1, ...; long enough for every deadline."""
    gas: GasModel
    rules: Rules
    posting: PostingRules

    def block_timestamp_s(self, number: int) -> int:
        return START_S + number * self.block_ms // 1000


def draw_world(setting: Setting, rows: Rows, base_fees: BaseFees, seed: int) -> World:
    """The world of a seed. Each part has a stream of its own, so that none moves the others."""
    streams = np.random.SeedSequence(seed).spawn(4)
    of_rows, of_pool, of_requests, of_fees = (np.random.default_rng(stream) for stream in streams)
    trace = rows(setting.requests, of_rows)
    models = [model_id(number) for number in range(setting.demand.models)]
    workers = setting.pool(models, _segments(trace, setting.demand.load), of_pool)
    requests = draw_requests(trace, setting.demand, workers, setting.block_ms, of_requests)
    last_s = max((request.deadline_s for request in requests), default=START_S) - START_S
    blocks = last_s * 1000 // setting.block_ms + 4
    return World(
        requests=requests,
        workers=workers,
        block_ms=setting.block_ms,
        base_fees_wei=tuple(base_fees(blocks, of_fees)),
        gas=setting.gas,
        rules=inclusive(setting.rules, setting.block_ms),
        posting=setting.posting,
    )


def inclusive(rules: Rules, block_ms: int) -> Rules:
    """The rules as the daemon applies them on this chain: two blocks are kept for the post."""
    return replace(rules, inclusion_s=max(rules.inclusion_s, 2 * block_ms / 1000))


def _segments(trace: Sequence[TraceRow], load: float) -> int:
    """About how many segments of constant speed the arrivals of a world last, at least one."""
    work_ms = sum(TYPICAL.work_ms(row.generated_tokens, 1.0) for row in trace)
    return max(1, ceil(work_ms / (NOMINAL_SLOTS * load * SEGMENT_MS)))
