"""The workers this node can reach, what each has in hand, and how far each is trusted."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from indexer.backoff import Backoff
from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.protocol.typed_data import CompactSignature
from inferd.workers.beside import able_beside, company_of
from inferd.workers.breaker import Circuit, CircuitBreaker
from inferd.workers.concurrency import AdaptiveLimit
from inferd.workers.job import Job, SignedResult
from inferd.workers.standings import Offer, Presence, views_of
from scheduler import model as scheduling

_FIRST_REST_S = 0.25
_LONGEST_REST_S = 30.0


class UnknownWorker(Exception):
    """The pool has no worker with this address."""


class Worker(Protocol):
    """Whatever computes and signs: `LocalWorker` here, `RemoteWorker` elsewhere."""

    @property
    def address(self) -> Address: ...

    @property
    def name(self) -> str: ...

    @property
    def models(self) -> Mapping[ModelId, Offer]: ...

    @property
    def slots(self) -> int: ...

    @property
    def memory_mb(self) -> int: ...

    async def compute(self, job: Job) -> SignedResult: ...

    async def sign_group(self, items: bytes) -> CompactSignature: ...


class Elsewhere(ABC):
    """What a worker on another machine can do beside: it keeps its answers until it is told."""

    @abstractmethod
    async def late(self, job: Job) -> SignedResult:
        """The answer to a job whose lease ran out, however long it takes; asked for seldom.

        Raises JobError where there will be none. Cancelling it cancels nothing at the worker.
        """

    @abstractmethod
    async def drop(self, job: Job) -> None:
        """Nobody waits for the answer any more, since it is stored or not needed: what runs is
        cancelled, what is kept may be forgotten. Never raises."""


@dataclass
class _Member:
    worker: Worker
    breaker: CircuitBreaker
    limit: AdaptiveLimit | None = None
    """None for embedded workers: their slots are this machine's own."""
    held: str | None = None
    """Why it gets no new work, in words."""
    leaving: bool = False
    in_flight: int = 0
    rests_until_s: float = 0.0
    refused_at_s: float = float("-inf")
    rests: Backoff = field(default_factory=lambda: Backoff(_FIRST_REST_S, _LONGEST_REST_S))

    def most_at_once(self, slots: int, now_s: float) -> int:
        """Of a worker with so many slots by registry and settings; while it rests, not more than it
        has in hand."""
        if self.breaker.circuit is not Circuit.OPEN:  # which makes it unavailable as a whole
            slots = self.breaker.most_at_once(slots)
        if self.limit is not None:
            slots = self.limit.of(slots)
        return min(slots, self.in_flight) if now_s < self.rests_until_s else slots


@dataclass(frozen=True, slots=True)
class Standing:
    """How a worker does, beside what is learnt of its speed."""

    in_flight: int
    circuit: Circuit
    opens_in_s: float
    """Seconds until an open circuit lets calls try."""
    failure_share: float
    slow_share: float
    limit: int | None
    """Requests it bears at a time, as far as is known; None where its slots are the limit."""
    rests_s: float
    """Seconds until it is given work again, after it said that it is busy."""
    held: str | None


class WorkerPool:
    """In-flight counts, limits and circuit breakers are kept here, at dispatch. Workers of other
    machines join and leave while it is in use; those it is made with stay."""

    def __init__(
        self, workers: Iterable[Worker], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` gives monotonic seconds. Raises ValueError where two workers share a key."""
        self._clock = clock
        self._members: dict[Address, _Member] = {}
        for worker in workers:
            if worker.address in self._members:
                raise ValueError(f"two workers have the key of 0x{worker.address.hex()}")
            self._members[worker.address] = _Member(worker, CircuitBreaker(clock))
        self._seen: dict[Address, scheduling.WorkerView] = {}
        """As the scheduler saw them last."""
        self.own_accounts: frozenset[Address] = frozenset()
        """Whose money is this operator's, as views were asked for last."""

    @property
    def workers(self) -> tuple[Worker, ...]:
        return tuple(member.worker for member in self._members.values())

    def __contains__(self, address: Address) -> bool:
        return address in self._members

    def worker(self, address: Address) -> Worker:
        """Raises UnknownWorker."""
        return self._member(address).worker

    def join(self, worker: Worker, *, held: str | None) -> None:
        """A worker of another machine, which gets no new work as long as it is `held`. One that is
        there keeps its place, unless it is on its way out: then the new one takes it over."""
        member = self._members.get(worker.address)
        if member is None:
            made = _Member(worker, CircuitBreaker(self._clock), AdaptiveLimit())
            member = self._members[worker.address] = made
        elif member.leaving:
            member.worker, member.leaving = worker, False
        member.held = held

    def hold(self, address: Address, why: str | None) -> None:
        """No new work for it, for that reason; or work again. Raises UnknownWorker."""
        self._member(address).held = why

    def leave(self, address: Address) -> None:
        """No new work for it; it is gone once it has nothing in hand."""
        member = self._members.get(address)
        if member is not None:
            member.leaving, member.held = True, "it has left"
            self._drop_if_idle(address, member)

    def standing(self, address: Address) -> Standing:
        """Raises UnknownWorker."""
        member = self._member(address)
        breaker, slots = member.breaker, member.worker.slots
        return Standing(
            in_flight=member.in_flight,
            circuit=breaker.circuit,
            opens_in_s=breaker.opens_in_s,
            failure_share=breaker.failure_share,
            slow_share=breaker.slow_share,
            limit=None if member.limit is None else member.limit.of(slots),
            rests_s=max(0.0, member.rests_until_s - self._clock()),
            held=member.held,
        )

    def in_flight(self, address: Address) -> int:
        """Computations dispatched and not ended. Raises UnknownWorker."""
        return self._member(address).in_flight

    def circuit(self, address: Address) -> Circuit:
        """Raises UnknownWorker."""
        return self._member(address).breaker.circuit

    def reserve(self, address: Address) -> Worker:
        """Counts one computation more. Raises UnknownWorker."""
        member = self._member(address)
        member.in_flight += 1
        return member.worker

    def release(self, address: Address) -> None:
        """Counts one computation less."""
        member = self._members[address]
        member.in_flight -= 1
        self._drop_if_idle(address, member)

    def answered(self, address: Address, *, slow: bool = False) -> None:
        """A result came, before it is released; `slow` where 99 of 100 would have been quicker."""
        member = self._members.get(address)
        if member is None:
            return
        member.breaker.record(success=True, slow=slow)
        member.rests.reset()
        if member.limit is not None and not slow:
            member.limit.answered(in_flight=member.in_flight)

    def failed(self, address: Address) -> None:
        """It gave no result, and is to blame."""
        member = self._members.get(address)
        if member is not None:
            member.breaker.record(success=False)

    def congested(self, address: Address, *, begun_at_s: float) -> None:
        """What began then, by the pool's clock, was too much for it, or came late."""
        member = self._members.get(address)
        if member is not None and member.limit is not None:
            member.limit.congested(begun_at_s=begun_at_s, now_s=self._clock())

    def busy(self, address: Address, *, begun_at_s: float, retry_after_s: float) -> None:
        """It had no room, which is no failure: it rests as long as it asks for, and at least for a
        while that grows with each refusal: one that asks for an instant would have every lease.

        Of what was asked before its last refusal, another one tells nothing new.
        """
        member = self._members.get(address)
        if member is None or member.limit is None:
            return
        self.congested(address, begun_at_s=begun_at_s)
        now_s, pause_s = self._clock(), min(_LONGEST_REST_S, retry_after_s)
        if begun_at_s >= member.refused_at_s:
            pause_s = max(pause_s, member.rests.next_s())
            member.refused_at_s = now_s
        member.rests_until_s = max(member.rests_until_s, now_s + pause_s)

    def second(
        self, first: Address, model: ModelId, tokens: int, *, proved: float
    ) -> tuple[Address, float] | None:
        """Who else could answer a request soonest, and what its mean time is as a part of that of
        `first`. None where nobody could.

        Only who has a free slot, its circuit closed, as much memory as `first`, and who is ours or
        succeeds with a probability of at least `proved`.
        """
        best = min(self._able(first, model, tokens, proved), default=None)
        return None if best is None else (best[1], best[0])

    def company(
        self,
        first: Address,
        model: ModelId,
        tokens: int,
        number: int,
        excluded: Collection[Address],
        *,
        proved: float,
        slowest: float,
    ) -> list[Address]:
        """So many who could answer the same request beside `first`, or as many as there are, as
        `second` finds them: none of them excluded, each of another owner, none that takes `slowest`
        times as long."""
        able = self._able(first, model, tokens, proved)
        return company_of(self._seen, first, able, number, excluded, slowest)

    def _able(
        self, first: Address, model: ModelId, tokens: int, proved: float
    ) -> list[tuple[float, Address]]:
        def is_free(address: Address, view: scheduling.WorkerView) -> bool:
            member = self._members.get(address)
            return member is not None and self._is_free(member, view)

        return able_beside(self._seen, first, model, tokens, proved=proved, is_free=is_free)

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
        self.own_accounts = frozenset(own_accounts)
        views = await views_of(connection, self.presences(), own_accounts)
        self._seen = {Address(view.id): view for view in views}
        return views

    def presences(self) -> list[Presence]:
        """How each of them stands here."""
        clock_s = self._clock()
        return [
            Presence(
                address=address,
                slots=member.worker.slots,
                most_at_once=member.most_at_once(member.worker.slots, clock_s),
                in_flight=member.in_flight,
                memory_mb=member.worker.memory_mb,
                available=member.held is None and member.breaker.circuit is not Circuit.OPEN,
                models=member.worker.models,
            )
            for address, member in self._members.items()
        ]

    def usable(self) -> list[Address]:
        """Those that may be given work here and now, as far as this pool knows."""
        return [
            address
            for address, member in self._members.items()
            if member.held is None and member.breaker.circuit is not Circuit.OPEN
        ]

    @property
    def seen(self) -> Mapping[Address, scheduling.WorkerView]:
        """The workers as the scheduler saw them last."""
        return self._seen

    def is_free(self, address: Address) -> bool:
        """Whether it could begin something now: a free slot, its circuit closed."""
        member, view = self._members.get(address), self._seen.get(address)
        return member is not None and view is not None and self._is_free(member, view)

    def _is_free(self, member: _Member, view: scheduling.WorkerView) -> bool:
        return (
            view.available
            and member.held is None
            and member.breaker.circuit is Circuit.CLOSED
            and member.in_flight < member.most_at_once(view.slots, self._clock())
        )

    def _member(self, address: Address) -> _Member:
        try:
            return self._members[address]
        except KeyError:
            raise UnknownWorker(f"0x{address.hex()}") from None

    def _drop_if_idle(self, address: Address, member: _Member) -> None:
        if member.leaving and member.in_flight <= 0:
            del self._members[address]
            self._seen.pop(address, None)
