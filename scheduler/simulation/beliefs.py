"""What the scheduler believes of simulated workers."""

from __future__ import annotations

from typing import Protocol

from scheduler.model import ModelId, ServiceEstimate
from scheduler.simulation.workers import SimWorker
from scheduler.simulation.workload import SimRequest


class Beliefs(Protocol):
    """How estimates come about; told of every lease that ends."""

    def estimate(self, worker: SimWorker, model: ModelId) -> ServiceEstimate:
        """What a round is told of a worker's service of a model."""

    def ended(self, worker: SimWorker, request: SimRequest, run_ms: int, *, valid: bool) -> None:
        """A lease of that length gave a valid result, or failed."""


class Informed:
    """Knows each worker's speed at the start and its share of failures, and learns nothing."""

    def __init__(self, sigma: float) -> None:
        self._sigma = sigma

    def estimate(self, worker: SimWorker, model: ModelId) -> ServiceEstimate:
        service = worker.service[model]
        return ServiceEstimate(
            base_ms=service.base_ms,
            per_token_ms=service.per_token_ms,
            sigma=self._sigma,
            samples=100,
            success_lower=1.0 - worker.failure,
            load_ms=worker.load_ms,
        )

    def ended(self, worker: SimWorker, request: SimRequest, run_ms: int, *, valid: bool) -> None:
        """Nothing is learnt."""
