"""Which worker computes which request, within the free slots of one round.

Requests come in the order of the policy. Each takes the worker with the earliest predicted
completion among those that serve its model, have its memory, a free slot, and finish in time at p90
(see `scheduler.seats`). Load is this router's own: in flight at the start of the round plus
what the round has reserved, never a polled figure.

A worker whose lease on the request failed is passed over while another one can still do it: one
that is merely busy is waited for as long as the deadline allows, then a tried one is used again.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduler.admission import Admitted
from scheduler.model import Block, Decision, ModelId, Reason
from scheduler.pool import ModelPool, Pool, Seat
from scheduler.seats import Candidates, Loads
from scheduler.words import count, short

LEASE_P90S = 3.0
"""A lease is this many times the p90: beyond it, a lost worker is likelier than a slow one."""
MIN_LEASE_MS = 5_000
"""A shorter lease would expire on network delays alone."""


def lease_ms(p90_ms: float, budget_ms: int) -> int:
    """How long the worker may take: 3 x p90, at least 5 s, never past deadline - inclusion."""
    return min(max(int(LEASE_P90S * p90_ms), MIN_LEASE_MS), budget_ms)


class _Waiting(NamedTuple):
    """A seat that may be busy, and how long the request would take if it waited for it."""

    waited_p90_ms: float
    seat: Seat


class Assigner:
    """The assignments of one round; call `decide` with each request in the policy's order."""

    def __init__(self, pool: Pool, block: Block) -> None:
        self._pool = pool
        self._base_fee_wei = block.base_fee_wei
        self._loads = Loads(pool.workers)
        self._candidates: dict[tuple[ModelId, int, bool], Candidates] = {}
        self._waiting: dict[ModelId, list[_Waiting]] = {}

    def decide(self, one: Admitted, score: float) -> Decision:
        """The request's assignment, or why it stays."""
        request = one.request
        candidates = self._candidates_of(one)
        found = candidates.first(one.budget_ms, request.memory_mb, request.tried)
        if found is None and request.tried:
            if self._worth_waiting(one):
                return self._kept_for_untried(one, score)
            found = candidates.first(one.budget_ms, request.memory_mb, ())
        if found is None:
            return self._kept(one, score)
        seat, completion_ms = found
        self._loads.reserve(seat)
        return self._assigned(one, score, seat, completion_ms)

    def _model(self, model: ModelId) -> ModelPool:
        return self._pool.models[model]

    def _candidates_of(self, one: Admitted) -> Candidates:
        model = self._model(one.request.model)
        memory_mb = model.memory_class_mb(one.request.memory_mb)
        group = (one.request.model, memory_mb, one.owned_only)
        candidates = self._candidates.get(group)
        if candidates is None:
            seats = [
                seat
                for seat in model.seats
                if seat.worker.memory_mb >= memory_mb and (seat.worker.owned or not one.owned_only)
            ]
            candidates = self._candidates[group] = Candidates(seats, self._loads)
        return candidates

    def _worth_waiting(self, one: Admitted) -> bool:
        """Whether an untried worker that is busy now could still finish before the deadline.

        A slot of a busy worker comes free after mean / slots on average.
        """
        request = one.request
        waiting = self._waiting.get(request.model)
        if waiting is None:
            waiting = self._waiting[request.model] = sorted(
                (
                    _Waiting(seat.p90_ms + seat.mean_ms / seat.worker.slots, seat)
                    for seat in self._model(request.model).seats
                    if seat.worker.available and seat.worker.slots > 0
                ),
                key=lambda item: (item.waited_p90_ms, item.seat.rank),
            )
        for waited_p90_ms, seat in waiting:
            if waited_p90_ms > one.budget_ms:
                return False
            worker = seat.worker
            if (
                worker.memory_mb >= request.memory_mb
                and worker.id not in request.tried
                and (worker.owned or not one.owned_only)
            ):
                return True
        return False

    def _assigned(self, one: Admitted, score: float, seat: Seat, completion_ms: float) -> Decision:
        request, p90_ms = one.request, seat.p90_ms
        candidates = one.facts.available
        return Decision(
            request.key,
            Reason.ASSIGNED,
            f"Worker {short(seat.worker.id)} is expected to finish first, in "
            f"{completion_ms / 1000:.2f} s (p90 {p90_ms / 1000:.2f} s) of the "
            f"{one.budget_ms / 1000:.1f} s left; {count(candidates, 'available worker')} "
            f"can serve it.",
            seat.worker.id,
            score,
            lease_ms(p90_ms, one.budget_ms),
            {
                "fee_wei": request.fee_wei,
                "revenue_wei": one.revenue_wei,
                "gas_need_wei": one.gas_need_wei,
                "base_fee_wei": self._base_fee_wei,
                "wait_s": one.wait_s,
                "budget_ms": one.budget_ms,
                "completion_ms": completion_ms,
                "p90_ms": p90_ms,
                "candidates": candidates,
                "attempts": request.attempts,
            },
        )

    def _kept_for_untried(self, one: Admitted, score: float) -> Decision:
        tried = len(one.request.tried)
        return Decision(
            one.request.key,
            Reason.NO_FREE_SLOT,
            f"{count(tried, 'worker')} failed on it; the others that can serve it are busy, and "
            f"the {one.budget_ms / 1000:.1f} s left allow to wait for one.",
            score=score,
            inputs={"budget_ms": one.budget_ms, "tried": tried, "wait_s": one.wait_s},
        )

    def _kept(self, one: Admitted, score: float) -> Decision:
        facts = one.facts
        best_p90_ms = facts.available_owned_p90_ms if one.owned_only else facts.available_p90_ms
        own = "of the operator's own " if one.owned_only else ""
        inputs: dict[str, int | float | str] = {
            "budget_ms": one.budget_ms,
            "wait_s": one.wait_s,
            "registered": facts.registered,
            "available": facts.available,
            "available_slots": facts.available_slots,
        }
        if best_p90_ms <= one.budget_ms:
            reason = Reason.NO_FREE_SLOT
            sentence = (
                f"No slot is free on any {own}worker that can finish within the "
                f"{one.budget_ms / 1000:.1f} s left; {count(facts.available, 'available worker')} "
                f"with {count(facts.available_slots, 'slot')} can serve it."
            )
        elif facts.available == 0:
            reason = Reason.NO_AVAILABLE_WORKER
            sentence = (
                f"No worker that can serve it is available "
                f"({count(facts.registered, 'worker')} registered)."
            )
        else:
            reason = Reason.NO_AVAILABLE_WORKER
            sentence = (
                f"{count(facts.available, 'worker')} of {facts.registered} that can serve it are "
                f"available, but none {own}can finish within the {one.budget_ms / 1000:.1f} s left."
            )
        return Decision(one.request.key, reason, sentence, score=score, inputs=inputs)
