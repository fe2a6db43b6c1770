"""Beliefs that are learnt, by the functions a node learns with.

Speed and its p90 (`scheduler.predict_service`), success (`scheduler.reliability`), what a newcomer
is taken for, and the pause of a worker that fails again and again are those of a node. Outages are
not known: leases given to a worker in one expire, and its circuit opens.

A node that runs has a past. So the workers that are there from the start begin with `PAST` leases:
of lengths that the world asks for, at the speed of the start, with the law's error, and failing as
often as they do. Who joins later begins with nothing.

What is predicted of an output is what the world drew with its request, or is learnt too
(`scheduler.predict_length`), from nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from scheduler import predict_length, predict_service, reliability
from scheduler.model import ModelId, ServiceEstimate, TenantId
from scheduler.predict_length import LengthHistory, TokensPrediction
from scheduler.predict_round import Size, p90_ms, size_of
from scheduler.predict_service import ServiceHistory, ServicePrior
from scheduler.reliability import Reliability
from scheduler.simulation.leases import LeaseEnd, Verdict
from scheduler.simulation.scenario import World
from scheduler.simulation.workers import SimWorker
from scheduler.simulation.workload import START_S, SimRequest

PAST = 100
"""Leases that a worker has behind it; a memory of them is a third as long."""
GUESS = ServicePrior.from_mean(3_000.0, 64.0)
"""What an operator would say of a worker that nobody has seen yet."""
_OPEN, _HALF_OPEN = "open", "half_open"


class Breaker(Protocol):
    """The circuit of one worker."""

    @property
    def circuit(self) -> str:
        """`open`: it gets nothing; `half_open`: one request, to try."""

    def record(self, *, success: bool) -> None:
        """A lease has ended."""


MakeBreaker = Callable[[Callable[[], float]], Breaker]
"""From a clock of seconds."""


class Learning:
    """What a node would believe; times are ms since the start."""

    def __init__(
        self, world: World, noise_sigma: float, make_breaker: MakeBreaker, *, lengths: bool = False
    ) -> None:
        """`noise_sigma` is the spread of requests' factors in the past; `lengths`: whether outputs
        are predicted from those that were seen."""
        self._now_s = float(START_S)
        self._breakers = {worker.id: make_breaker(lambda: self._now_s) for worker in world.workers}
        self._service: dict[tuple[bytes, ModelId], ServiceHistory] = {}
        self._reliable: dict[tuple[bytes, ModelId], Reliability] = {}
        self._priors: dict[ModelId, ServicePrior] = {}
        """Until a history of the model changes."""
        self._lengths: dict[tuple[ModelId, TenantId | None], LengthHistory] | None = (
            {} if lengths else None
        )
        random = np.random.default_rng(len(world.requests))
        for worker in world.workers:
            if worker.joins_at_ms == 0 and world.requests:
                self._remember(worker, world, noise_sigma, random)

    def tokens(self, request: SimRequest) -> TokensPrediction:
        if self._lengths is None:
            return TokensPrediction(request.tokens_mean, request.tokens_sigma)
        keys = self._length_keys(request)
        known = [self._lengths[key] for key in keys if key in self._lengths]
        return predict_length.law(known).predict(request.max_tokens)

    def estimate(self, worker: SimWorker, model: ModelId, now_ms: int) -> ServiceEstimate:
        key = (worker.id, model)
        return predict_service.estimate(
            self._service.get(key, ServiceHistory()),
            self._prior(model),
            self._reliable.get(key, Reliability()),
            now_s=START_S + now_ms / 1000,
            load_ms=worker.load_ms,
        )

    def slots(self, worker: SimWorker, now_ms: int) -> int:
        self._now_s = START_S + now_ms / 1000
        circuit = self._breakers[worker.id].circuit
        if circuit == _OPEN:
            return 0
        return min(worker.slots, 1) if circuit == _HALF_OPEN else worker.slots

    def ended(self, lease: LeaseEnd) -> None:
        self._now_s = START_S + lease.at_ms / 1000
        valid = lease.verdict is Verdict.VALID
        self._breakers[lease.worker.id].record(success=valid)
        size = size_of(*self.tokens(lease.request))
        self._learn(lease, size)
        if valid and self._lengths is not None:
            self._learn_length(lease.request, self._lengths)

    def _learn(self, lease: LeaseEnd, size: Size) -> None:
        """One lease more of its worker with its model."""
        key = (lease.worker.id, lease.request.model)
        history, prior = self._service.get(key, ServiceHistory()), self._prior(key[1])
        at_s = START_S + lease.at_ms / 1000
        # The p90 does not depend on success.
        known = predict_service.estimate(history, prior, Reliability(), now_s=at_s)
        predicted_ms = p90_ms(known, size)
        if lease.verdict is Verdict.VALID:
            self._service[key] = predict_service.observed(
                history,
                prior,
                tokens=lease.request.generated_tokens,
                service_ms=float(lease.run_ms),
                at_s=at_s,
                p90_ms=predicted_ms,
            )
        elif lease.verdict is Verdict.TIMEOUT:
            self._service[key] = predict_service.overdue(
                history, waited_ms=float(lease.run_ms), at_s=at_s, p90_ms=predicted_ms
            )
        if lease.verdict is not Verdict.FAILED:
            self._priors.pop(key[1], None)
        before = self._reliable.get(key, Reliability())
        self._reliable[key] = reliability.outcome(before, success=lease.verdict is Verdict.VALID)

    def _learn_length(
        self, request: SimRequest, known: dict[tuple[ModelId, TenantId | None], LengthHistory]
    ) -> None:
        """The model's law and its requester's, each judged by what it had predicted."""
        histories: list[LengthHistory] = []
        for key in self._length_keys(request):
            factor = histories[-1].log_factor if histories else 0.0
            histories.append(known.get(key, LengthHistory.empty(factor)))
        for depth, key in enumerate(self._length_keys(request)):
            predicted = predict_length.law(histories[: depth + 1]).predict(request.max_tokens)
            known[key] = predict_length.observed(
                histories[depth],
                tokens=request.generated_tokens,
                max_tokens=request.max_tokens,
                p90_tokens=size_of(*predicted).p90_tokens,
            )

    def _length_keys(self, request: SimRequest) -> tuple[tuple[ModelId, TenantId | None], ...]:
        return (request.model, None), (request.model, request.tenant)

    def _prior(self, model: ModelId) -> ServicePrior:
        found = self._priors.get(model)
        if found is None:
            known = [
                history
                for (_, served), history in self._service.items()
                if served == model and history.count > 0.0
            ]
            found = self._priors[model] = predict_service.newcomer_prior(known, GUESS)
        return found

    def _remember(
        self, worker: SimWorker, world: World, noise_sigma: float, random: np.random.Generator
    ) -> None:
        """Leases from before the start, one a second."""
        for model in worker.service:
            asked = random.choice(np.arange(len(world.requests)), PAST)
            factors = random.lognormal(-(noise_sigma**2) / 2, noise_sigma, PAST)
            fails = random.uniform(0.0, 1.0, PAST) < worker.failure
            for n, (at, factor, failed) in enumerate(zip(asked, factors, fails, strict=True)):
                request = world.requests[int(at)]
                work_ms = worker.service[model].work_ms(request.generated_tokens, float(factor))
                end_ms = (n - PAST) * 1000
                took_ms = round(work_ms / (worker.speed(0) or 1.0))
                self._learn(
                    LeaseEnd(
                        replace(request, model=model),
                        worker,
                        end_ms - took_ms,
                        end_ms,
                        Verdict.FAILED if failed else Verdict.VALID,
                    ),
                    size_of(request.tokens_mean, request.tokens_sigma),
                )
