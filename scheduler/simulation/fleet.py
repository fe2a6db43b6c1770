"""The pool in virtual time: slots taken, models loaded, and workers as a round sees them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from scheduler.model import ModelId, WorkerId, WorkerView
from scheduler.simulation.beliefs import Beliefs
from scheduler.simulation.leases import LeaseEnd, lease_end
from scheduler.simulation.workers import SimWorker
from scheduler.simulation.workload import SimRequest


class Fleet:
    """The workers of one simulation, and what is believed of them."""

    def __init__(self, workers: Sequence[SimWorker], beliefs: Beliefs) -> None:
        self._workers = {worker.id: worker for worker in workers}
        self._beliefs = beliefs
        self._used: dict[WorkerId, int] = defaultdict(int)
        self._fees_wei: dict[WorkerId, int] = defaultdict(int)
        """Of the requests in hand."""
        self._loaded: dict[WorkerId, ModelId] = {}
        self._views: dict[WorkerId, WorkerView] = {}
        """As they were last told."""

    def begin(
        self, request: SimRequest, worker_id: WorkerId, now_ms: int, lease_ms: int
    ) -> LeaseEnd:
        """A lease begins. Raises ValueError if the worker has no slot for it."""
        worker = self._workers[worker_id]
        if self._used[worker_id] >= worker.slots:
            raise ValueError(f"the plan takes more slots of worker {worker_id.hex()} than it has")
        self._used[worker_id] += 1
        self._fees_wei[worker_id] += request.fee_wei
        cold = worker.load_ms > 0.0 and self._loaded.get(worker_id) != request.model
        self._loaded[worker_id] = request.model
        return lease_end(request, worker, now_ms, lease_ms, worker.load_ms if cold else 0.0)

    def end(self, lease: LeaseEnd) -> None:
        """The lease has ended: its slot is free, and something is learnt."""
        self._used[lease.worker.id] -= 1
        self._fees_wei[lease.worker.id] -= lease.request.fee_wei
        self._beliefs.ended(lease)

    def changed(self, now_ms: int) -> list[WorkerView]:
        """The workers of which anything is different from the last time."""
        changed = []
        for worker in self._workers.values():
            if worker.joins_at_ms > now_ms:
                continue
            view = self._view(worker, now_ms)
            if self._views.get(worker.id) != view:
                self._views[worker.id] = view
                changed.append(view)
        return changed

    def _view(self, worker: SimWorker, now_ms: int) -> WorkerView:
        slots = self._beliefs.slots(worker, now_ms)
        return WorkerView(
            id=worker.id,
            slots=slots or worker.slots,
            in_flight=self._used[worker.id],
            memory_mb=worker.memory_mb,
            available=slots > 0,
            service={
                model: self._beliefs.estimate(worker, model, now_ms) for model in worker.service
            },
            owned=worker.owned,
            loaded=self._loaded_models(worker),
            stake_wei=worker.stake_wei,
            fees_in_hand_wei=self._fees_wei[worker.id],
        )

    def _loaded_models(self, worker: SimWorker) -> frozenset[ModelId] | None:
        if worker.load_ms == 0.0:
            return None
        loaded = self._loaded.get(worker.id)
        return frozenset() if loaded is None else frozenset({loaded})
