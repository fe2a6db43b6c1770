"""Do the p90s hold? A trace is run in order, and each length and time predicted before it is seen.

Requests come and have their lengths as in the trace. What no trace holds is drawn:

- requesters: 12, the k-th with a share proportional to 1 / k;
- workers: 8, each request on one at random; base 20 ... 400 ms, time per token log-normal with the
  median 20 ms and sigma 0.5, an error of each time log-normal with sigma 0.05 ... 0.4, and one
  time in 200 ten times as long;
- drift of each worker's speed: a random walk of 1 % a request, a wave of +-30 % in 15 minutes, and
  every fourth worker 2.5 times slower from 70 % of the trace on.

An outcome is learnt when it would be known, at the end of its service. The first half of the trace
is not counted.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log, pi, sin

import numpy as np

from scheduler import predict_length, predict_service
from scheduler.calibration import LEVEL
from scheduler.predict_length import LengthHistory
from scheduler.predict_round import Size, p90_ms, size_of
from scheduler.predict_service import ServiceHistory, ServicePrior
from scheduler.reliability import Reliability
from scheduler.simulation.trace import TraceRow

WORKERS = 8
TENANTS = 12
COUNTED_CELL = 500
"""Held-out requests from which on a cell's coverage says something: one sigma is 1.3 %."""
TOLERANCE = 0.02
_PRIOR = ServicePrior.from_mean(3_000.0, 128.0)
_WAVE_S = 900.0

Pair = tuple[float, float]
"""A predicted p90, and what came."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Held-out predictions of one kind."""

    predicted: str
    """"length" or "service"."""
    of: str
    requests: int
    coverage: float
    """The share of outcomes that were not above their p90."""
    loss_ratio: float
    """Pinball loss at 90 % over that of the best constant, which is known only afterwards."""

    @property
    def counts(self) -> bool:
        return self.requests >= COUNTED_CELL


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a trace showed."""

    requests: int
    held_out: int
    cells: tuple[Cell, ...]

    @property
    def worst_error(self) -> float:
        """The largest distance from 90 % of a cell that is large enough to say something."""
        return max((abs(c.coverage - LEVEL) for c in self.cells if c.counts), default=0.0)

    @property
    def holds(self) -> bool:
        return self.worst_error <= TOLERANCE


@dataclass(slots=True)
class _Worker:
    base_ms: float
    per_token_ms: float
    sigma: float
    slows_down: bool
    walk: float = 0.0

    def service_ms(self, tokens: int, at_s: float, *, late: bool, rng: random.Random) -> float:
        self.walk += rng.gauss(0.0, 0.01)
        drift = exp(self.walk + 0.3 * sin(2.0 * pi * at_s / _WAVE_S + self.base_ms))
        slower = 2.5 if self.slows_down and late else 1.0
        outlier = 10.0 if rng.random() < 1.0 / 200.0 else 1.0
        error = rng.lognormvariate(0.0, self.sigma)
        return (self.base_ms + self.per_token_ms * tokens) * drift * slower * outlier * error


@dataclass(slots=True)
class _Learner:
    """What the node keeps in its tables."""

    service: list[ServiceHistory] = field(default_factory=lambda: [ServiceHistory()] * WORKERS)
    model: LengthHistory = field(default_factory=LengthHistory.empty)
    tenants: dict[int, LengthHistory] = field(default_factory=dict)

    def size(self, tenant: int) -> Size:
        histories = [self.model]
        if tenant in self.tenants:
            histories.append(self.tenants[tenant])
        return size_of(*predict_length.law(histories).predict(0))

    def service_p90_ms(self, worker: int, size: Size, now_s: float) -> float:
        known = predict_service.estimate(self.service[worker], _PRIOR, Reliability(), now_s=now_s)
        return p90_ms(known, size)

    def learn(self, one: _Running) -> None:
        self.service[one.worker] = predict_service.observed(
            self.service[one.worker],
            _PRIOR,
            tokens=one.tokens,
            service_ms=one.service_ms,
            at_s=one.ends_s,
            p90_ms=one.p90_ms,
        )
        before = self.tenants.get(one.tenant, LengthHistory.empty(self.model.log_factor))
        self.model, self.tenants[one.tenant] = (
            predict_length.observed(
                history, tokens=one.tokens, max_tokens=0, p90_tokens=one.p90_tokens
            )
            for history in (self.model, before)
        )


@dataclass(frozen=True, slots=True, order=True)
class _Running:
    ends_s: float
    number: int
    worker: int
    tenant: int
    tokens: int
    service_ms: float
    p90_tokens: float
    p90_ms: float


def calibration_of(trace: Sequence[TraceRow], seed: int = 1) -> Calibration:
    """Runs the trace once; the same trace and seed give the same figures."""
    rng = random.Random(seed)  # noqa: S311 - a simulation
    workers = [
        _Worker(
            rng.uniform(20, 400),
            rng.lognormvariate(log(20), 0.5),
            rng.uniform(0.05, 0.4),
            n % 4 == 1,
        )
        for n in range(WORKERS)
    ]
    learner = _Learner()
    running: list[_Running] = []
    held_out: list[_Running] = []
    half, late = len(trace) // 2, len(trace) * 7 // 10
    tenants = rng.choices(range(TENANTS), [1 / (k + 1) for k in range(TENANTS)], k=len(trace))
    for number, (row, tenant) in enumerate(zip(trace, tenants, strict=True)):
        while running and running[0].ends_s <= row.arrival_s:
            learner.learn(heapq.heappop(running))
        worker, tokens = rng.randrange(WORKERS), row.generated_tokens
        size = learner.size(tenant)
        expected_ms = learner.service_p90_ms(worker, size, row.arrival_s)
        took_ms = workers[worker].service_ms(tokens, row.arrival_s, late=number >= late, rng=rng)
        one = _Running(
            row.arrival_s + took_ms / 1000.0,
            number,
            worker,
            tenant,
            tokens,
            took_ms,
            size.p90_tokens,
            expected_ms,
        )
        heapq.heappush(running, one)
        if number >= half:
            held_out.append(one)
    return Calibration(len(trace), len(held_out), tuple(_cells(held_out)))


def _cells(held_out: Sequence[_Running]) -> list[Cell]:
    lengths = [(one.p90_tokens, float(one.tokens)) for one in held_out]
    times = [(one.p90_ms, one.service_ms) for one in held_out]
    tenants = _cells_by("length", "requester", lengths, [one.tenant for one in held_out], TENANTS)
    workers = _cells_by("service", "worker", times, [one.worker for one in held_out], WORKERS)
    return [_cell("length", "all", lengths), *tenants, _cell("service", "all", times), *workers]


def _cells_by(
    predicted: str, kind: str, pairs: Sequence[Pair], groups: Sequence[int], count: int
) -> list[Cell]:
    return [
        _cell(
            predicted,
            f"{kind} {group + 1}",
            [pair for pair, its in zip(pairs, groups, strict=True) if its == group],
        )
        for group in range(count)
    ]


def _cell(predicted: str, of: str, pairs: Sequence[Pair]) -> Cell:
    if not pairs:
        return Cell(predicted, of, 0, LEVEL, 1.0)
    p90, outcomes = np.array(pairs).T
    constant = np.full(len(pairs), np.quantile(outcomes, LEVEL))
    best = _pinball(constant, outcomes)
    ratio = _pinball(p90, outcomes) / best if best > 0.0 else 1.0
    return Cell(predicted, of, len(pairs), float(np.mean(outcomes <= p90)), float(ratio))


def _pinball(predicted: predict_length.Floats, outcomes: predict_length.Floats) -> float:
    over = outcomes - predicted
    return float(np.mean(np.maximum(LEVEL * over, (LEVEL - 1.0) * over)))
