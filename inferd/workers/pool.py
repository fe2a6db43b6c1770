"""The workers this node can reach, what each has in hand, and how far each is trusted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.protocol.typed_data import CompactSignature
from inferd.workers.backends.base import Backend
from inferd.workers.breaker import Circuit, CircuitBreaker
from inferd.workers.job import Job, SignedResult
from inferd.workers.service_stats import Priors, ServiceStat, estimate, read_all
from scheduler import model as scheduling


class UnknownWorker(Exception):
    """The pool has no worker with this address."""


class Worker(Protocol):
    """Whatever computes and signs: `LocalWorker`, or its like elsewhere."""

    @property
    def address(self) -> Address: ...

    @property
    def name(self) -> str: ...

    @property
    def models(self) -> Mapping[ModelId, Backend]: ...

    @property
    def slots(self) -> int: ...

    @property
    def memory_mb(self) -> int: ...

    async def compute(self, job: Job) -> SignedResult: ...

    async def sign_group(self, items: bytes) -> CompactSignature: ...


class WorkerPool:
    """In-flight counts and circuit breakers are kept here, at dispatch; nobody is polled."""

    def __init__(
        self, workers: Iterable[Worker], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` gives monotonic seconds. Raises ValueError where two workers share a key."""
        self._workers: dict[Address, Worker] = {}
        for worker in workers:
            if worker.address in self._workers:
                raise ValueError(f"two workers have the key of 0x{worker.address.hex()}")
            self._workers[worker.address] = worker
        self._in_flight = dict.fromkeys(self._workers, 0)
        self._breakers = {address: CircuitBreaker(clock) for address in self._workers}

    @property
    def workers(self) -> tuple[Worker, ...]:
        return tuple(self._workers.values())

    def worker(self, address: Address) -> Worker:
        """Raises UnknownWorker."""
        try:
            return self._workers[address]
        except KeyError:
            raise UnknownWorker(f"0x{address.hex()}") from None

    def in_flight(self, address: Address) -> int:
        """Computations dispatched and not ended. Raises UnknownWorker."""
        self.worker(address)
        return self._in_flight[address]

    def circuit(self, address: Address) -> Circuit:
        """Raises UnknownWorker."""
        self.worker(address)
        return self._breakers[address].circuit

    def reserve(self, address: Address) -> Worker:
        """Counts one computation more. Raises UnknownWorker."""
        worker = self.worker(address)
        self._in_flight[address] += 1
        return worker

    def release(self, address: Address) -> None:
        """Counts one computation less."""
        self._in_flight[address] -= 1

    def record(self, address: Address, *, success: bool) -> None:
        """One computation's outcome, for the circuit breaker. "Busy" is no outcome."""
        self._breakers[address].record(success=success)

    async def sign_group(self, worker: Address, items: bytes) -> CompactSignature:
        """That worker's signature over packed items. Raises UnknownWorker and what it raises."""
        return await self.worker(worker).sign_group(items)

    async def views(
        self, connection: Connection, own_accounts: Collection[Address] = ()
    ) -> tuple[scheduling.WorkerView, ...]:
        """The pool's workers as the scheduler sees them, by the registry's rows of now.

        A worker is paid through its owner: where that is one of `own_accounts`, its share of a fee
        is this operator's money. One that is not registered is listed but not available, so that
        its requests wait instead of being turned away.
        """
        rows = await connection.fetch(
            """
            SELECT w.*, (SELECT coalesce(sum(r.fee_wei), 0) FROM node.lease l
                         JOIN chain.request r ON r.id = l.request_id AND r.commitment = l.commitment
                         WHERE l.worker = w.signer AND l.state = 'active') AS fees_in_hand_wei
            FROM chain.worker w WHERE w.signer = ANY($1::bytea[])
            """,
            list(self._workers),
        )
        registered = {Address(row["signer"]): row for row in rows}
        stats = await read_all(connection)
        priors, now_s = Priors(stats), time.time()
        views: list[scheduling.WorkerView] = []
        for address, worker in self._workers.items():
            row = registered.get(address)
            slots, memory_mb, served = worker.slots, worker.memory_mb, set(worker.models)
            if row is not None:
                slots = min(slots, row["slots"])
                memory_mb = min(memory_mb, row["memory_mb"])
                served &= {ModelId(model) for model in row["models"]}
            circuit = self._breakers[address].circuit
            views.append(
                scheduling.WorkerView(
                    id=scheduling.WorkerId(address),
                    slots=min(slots, 1) if circuit is Circuit.HALF_OPEN else slots,
                    in_flight=self._in_flight[address],
                    memory_mb=memory_mb,
                    available=row is not None
                    and row["enabled"]
                    and row["staked"]
                    and circuit is not Circuit.OPEN,
                    service=_service(worker, served, stats, priors, now_s),
                    owned=row is not None and row["owner"] in own_accounts,
                    loaded=frozenset(
                        scheduling.ModelId(model) for model in served if worker.models[model].loaded
                    ),
                    stake_wei=0 if row is None else row["stake_wei"],
                    fees_in_hand_wei=0 if row is None else int(row["fees_in_hand_wei"]),
                )
            )
        return tuple(views)


def _service(
    worker: Worker,
    served: Collection[ModelId],
    stats: Mapping[tuple[Address, ModelId], ServiceStat],
    priors: Priors,
    now_s: float,
) -> dict[scheduling.ModelId, scheduling.ServiceEstimate]:
    return {
        scheduling.ModelId(model): estimate(
            stats.get((worker.address, model)),
            priors.of(model, backend.prior_ms),
            now_s,
            load_ms=backend.load_ms,
        )
        for model, backend in worker.models.items()
        if model in served
    }
