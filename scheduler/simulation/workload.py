"""The requests of one simulation: a trace, and what no trace tells, drawn from stated laws.

From the trace (or its law) come arrivals and lengths. Drawn are, independently of each other:

- **fee**: log-normal with median `fee_median_wei` and `fee_sigma`; whole wei, at least 1.
- **tenant**: Zipf, P(tenant n) proportional to n ** -`zipf` for n = 1 ... `tenants`.
- **model**: uniform among `models`.
- **deadline**: the block it is first seen in + three blocks, at least `MIN_INCLUSION_MS`, + k *
  predicted service, k log-uniform in `slack`, predicted on the pool's average slot.
- **prediction**: what is known of the output's length before it is generated. The predicted mean m
  satisfies generated = m * exp(s * z - s * s / 2), z standard normal, s = `tokens_sigma`: unbiased
  in the mean, 0 = known. Never above max_tokens.
- **max_tokens**: generated tokens, rounded up to a quarter of an octave, as a requester who knows
  its task would allow.
- **factor** on the work, the same on every worker: log-normal with mean 1 and `noise_sigma`; what
  contexts and batches change, unknown to everybody.

Arrivals are stretched so that the work that arrives from the first to the last request is `load`
times what the pool's slots can do in that time. A request is seen in the first block from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log, log2

import numpy as np

from scheduler.model import ModelId, RequestKey, TenantId
from scheduler.simulation.trace import TraceRow
from scheduler.simulation.workers import SimWorker

INCLUSION_BLOCKS = 3
MIN_INCLUSION_MS = 4_000
"""Nobody asks for less, however quick the blocks are."""
START_S = 1_700_000_000
"""The time since the epoch at which every simulation begins."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The laws' parameters."""

    load: float
    """Work that arrives / work that the pool can do."""
    fee_median_wei: int = 10**15
    fee_sigma: float = 1.0
    tenants: int = 20
    zipf: float = 1.1
    slack: tuple[float, float] = (2.0, 12.0)
    tokens_sigma: float = 0.0
    noise_sigma: float = 0.1
    models: int = 1


@dataclass(frozen=True, slots=True)
class SimRequest:
    """A request, with what the scheduler cannot see: generated tokens, the factor, the dice."""

    key: RequestKey
    tenant: TenantId
    model: ModelId
    fee_wei: int
    seen_at_ms: int
    """The block that it comes with."""
    deadline_s: int
    """Since the epoch."""
    max_tokens: int
    context_tokens: int
    tokens_mean: float
    tokens_sigma: float
    generated_tokens: int
    factor: float
    die: float
    """Uniform in [0, 1): it fails on a worker whose failure share is above it, shifted by the
    worker."""


def model_id(number: int) -> ModelId:
    return ModelId(b"sim-model".ljust(31, b"\0") + bytes([number]))


def draw_requests(
    rows: Sequence[TraceRow],
    demand: Demand,
    workers: Sequence[SimWorker],
    block_ms: int,
    random: np.random.Generator,
) -> tuple[SimRequest, ...]:
    """One request a row, ids from 1 in order of arrival."""
    count = len(rows)
    models = [model_id(number) for number in range(demand.models)]
    fees = random.lognormal(log(demand.fee_median_wei), demand.fee_sigma, size=count)
    ranks = np.arange(1, demand.tenants + 1, dtype=np.float64) ** -demand.zipf
    tenants = random.choice(demand.tenants, size=count, p=ranks / ranks.sum())
    chosen_models = random.integers(0, demand.models, size=count)
    low, high = demand.slack
    slacks = np.exp(random.uniform(log(low), log(high), size=count))
    normals = random.standard_normal(count)
    factors = random.lognormal(-(demand.noise_sigma**2) / 2, demand.noise_sigma, size=count)
    dice = random.uniform(0.0, 1.0, size=count)

    slot = _average_slot(workers)
    spread = demand.tokens_sigma
    arrivals_ms = _stretched(rows, demand.load, slot, block_ms)
    inclusion_ms = max(INCLUSION_BLOCKS * block_ms, MIN_INCLUSION_MS)
    requests = []
    for n, row in enumerate(rows):
        generated = max(1, row.generated_tokens)
        max_tokens = ceil(2 ** (ceil(4 * log2(generated)) / 4))
        mean = generated * exp(spread * spread / 2 - spread * float(normals[n]))
        mean = min(max(1.0, mean), float(max_tokens))
        seen_ms = ceil(arrivals_ms[n] / block_ms) * block_ms
        predicted_ms = slot.base_ms + slot.per_token_ms * mean
        due_ms = seen_ms + inclusion_ms + float(slacks[n]) * predicted_ms
        requests.append(
            SimRequest(
                key=RequestKey(n + 1, (n + 1).to_bytes(20, "big")),
                tenant=TenantId(int(tenants[n]).to_bytes(20, "big")),
                model=models[int(chosen_models[n])],
                fee_wei=max(1, int(fees[n])),
                seen_at_ms=seen_ms,
                deadline_s=START_S + ceil(due_ms / 1000),
                max_tokens=max_tokens,
                context_tokens=row.context_tokens,
                tokens_mean=mean,
                tokens_sigma=spread,
                generated_tokens=generated,
                factor=float(factors[n]),
                die=float(dice[n]),
            )
        )
    return tuple(requests)


@dataclass(frozen=True, slots=True)
class _Slot:
    """The pool's average slot: as many slots of this kind do the same work."""

    slots: int
    base_ms: float
    per_token_ms: float


def _average_slot(workers: Sequence[SimWorker]) -> _Slot:
    """Harmonic means over the slots of the workers present from the start, at their mean speed."""
    present = [worker for worker in workers if worker.joins_at_ms == 0 and worker.service]
    slots = sum(worker.slots for worker in present)
    bases = tokens = 0.0
    for worker in present:
        speed = sum(worker.speeds) / len(worker.speeds)
        one = next(iter(worker.service.values()))
        bases += worker.slots * speed / one.base_ms
        tokens += worker.slots * speed / one.per_token_ms
    if not bases or not tokens:
        raise ValueError("the pool has no worker that is there from the start and does anything")
    return _Slot(slots, slots / bases, slots / tokens)


def _stretched(rows: Sequence[TraceRow], load: float, slot: _Slot, block_ms: int) -> list[float]:
    """Arrival times in ms from one block on, at that load."""
    work_ms = sum(slot.base_ms + slot.per_token_ms * row.generated_tokens for row in rows)
    length_ms = work_ms / (slot.slots * load)
    recorded_s = rows[-1].arrival_s if rows else 0.0
    stretch = length_ms / recorded_s if recorded_s > 0.0 else 0.0
    return [block_ms + row.arrival_s * stretch for row in rows]
