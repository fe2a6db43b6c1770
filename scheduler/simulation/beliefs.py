"""What the scheduler believes of simulated workers, and of the outputs of requests."""

from __future__ import annotations

from typing import Protocol

from scheduler.model import ModelId, ServiceEstimate
from scheduler.predict_length import TokensPrediction
from scheduler.simulation.leases import LeaseEnd
from scheduler.simulation.workers import SEGMENT_MS, SimWorker
from scheduler.simulation.workload import SimRequest


class Beliefs(Protocol):
    """How predictions come about; told of every lease that ends. Times are ms since the start."""

    def tokens(self, request: SimRequest) -> TokensPrediction:
        """What is predicted of the request's output when it becomes pending."""

    def estimate(self, worker: SimWorker, model: ModelId, now_ms: int) -> ServiceEstimate:
        """What a round is told of a worker's service of a model."""

    def slots(self, worker: SimWorker, now_ms: int) -> int:
        """How many slots a round may use; 0 = the worker is not available."""

    def ended(self, lease: LeaseEnd) -> None:
        """A lease has ended."""


class Informed:
    """Knows each worker's speed at the start, its share of failures and its outages; learns
    nothing. What learning lacks against it is what not knowing costs."""

    def __init__(self, sigma: float) -> None:
        """`sigma` is the spread of requests' factors, which is known too."""
        self._sigma = sigma

    def tokens(self, request: SimRequest) -> TokensPrediction:
        return TokensPrediction(request.tokens_mean, request.tokens_sigma)

    def estimate(self, worker: SimWorker, model: ModelId, now_ms: int) -> ServiceEstimate:
        service = worker.service[model]
        return ServiceEstimate(
            base_ms=service.base_ms,
            per_token_ms=service.per_token_ms,
            sigma=self._sigma,
            samples=100,
            success_lower=1.0 - worker.failure,
            load_ms=worker.load_ms,
        )

    def slots(self, worker: SimWorker, now_ms: int) -> int:
        return worker.slots if worker.speed(now_ms // SEGMENT_MS) > 0.0 else 0

    def ended(self, lease: LeaseEnd) -> None:
        """Nothing is learnt."""
