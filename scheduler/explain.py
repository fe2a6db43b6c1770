"""Each reason and its numbers as one sentence.

Sentences are made when they are read, from what is stored of a decision, and may be worded better
later. A number that is not there is shown as a question mark: rows may be older than this code.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.model import Numbers, Reason, WorkerId
from scheduler.words import count, eth, short

_PPM = 1_000_000


def sentence(reason: Reason, numbers: Numbers, worker: WorkerId | None = None) -> str:
    """The decision in words, with the numbers that decided."""
    if reason is Reason.ASSIGNED:
        return _assigned(numbers, worker)
    return _WORDS[reason](numbers)


def _assigned(of: Numbers, worker: WorkerId | None) -> str:
    who = "a worker" if worker is None else f"worker {short(worker)}"
    return (
        f"Chosen is {who}, expected to finish in {_s(of.completion_ms, 2)} "
        f"(p90 {_s(of.p90_ms, 2)}) of the {_s(of.budget_ms, 1)} left; "
        f"{_count(of.available, 'available worker')} can serve it."
    )


def _no_free_slot(of: Numbers) -> str:
    if of.tried:
        return (
            f"{_count(of.tried, 'worker')} failed on it; the others that can serve it are busy, "
            f"and the {_s(of.budget_ms, 1)} left allow to wait for one."
        )
    return (
        f"No slot is free on any {_own(of)}worker that can finish within the "
        f"{_s(of.budget_ms, 1)} left; {_count(of.available, 'available worker')} with "
        f"{_count(of.available_slots, 'slot')} can serve it."
    )


def _no_available_worker(of: Numbers) -> str:
    if not of.available:
        return (
            f"No worker that can serve it is available "
            f"({_count(of.registered, 'worker')} registered)."
        )
    return (
        f"{_count(of.available, 'worker')} of {_number(of.registered)} that can serve it are "
        f"available, but none {_own(of)}can finish within the {_s(of.budget_ms, 1)} left."
    )


def _gas_too_dear(of: Numbers) -> str:
    delivery = " and its delivery" if of.delivery_gas else ""
    margin = "?" if of.margin_ppm is None else f"{of.margin_ppm / _PPM:g}"
    horizon = "" if of.horizon_blocks is None else f", within {count(of.horizon_blocks, 'block')}"
    return (
        f"Serving it earns {_eth(of.revenue_wei)} of its fee of {_eth(of.fee_wei)}; at "
        f"{_number(of.gas_price_wei)} wei per gas it would have to earn {_eth(of.gas_need_wei)} "
        f"({margin} times its share of the post's gas{delivery}{horizon})."
    )


def _expired(of: Numbers) -> str:
    late = "?" if of.now_s is None or of.deadline_s is None else f"{of.now_s - of.deadline_s:g}"
    return f"Its deadline {_number(of.deadline_s)} passed {late} s before the head's time."


def _infeasible(of: Numbers) -> str:
    known = of.now_s is not None and of.deadline_s is not None
    left = f"{of.deadline_s - of.now_s:.1f}" if known else "?"  # type: ignore[operator]
    inclusion = "?" if of.inclusion_s is None else f"{of.inclusion_s:.1f}"
    return (
        f"Its deadline is {left} s away; the fastest worker that serves it needs "
        f"{_s(of.p90_ms, 1)} (p90), and the post {inclusion} s more."
    )


def _tenant_in_flight(of: Numbers) -> str:
    return (
        f"Its requester has {_number(of.used)} requests in work; the limit is {_number(of.limit)}."
    )


def _tenant_rate(of: Numbers) -> str:
    return (
        f"It costs {_number(of.used)} tokens, and its requester may take {_number(of.limit)} now; "
        f"more come with time."
    )


def _probation_cap(of: Numbers) -> str:
    return (
        f"All that are free for it are on probation ({_number(of.used)} in number) and have as "
        f"much in hand as they may: {_number(of.limit)} at a time, and fees by their stake."
    )


def _budget_spent(of: Numbers) -> str:
    return (
        f"Its gas does not fit into the spending budget, of which {_number(of.used)} of "
        f"{_number(of.limit)} wei are spent or committed to."
    )


def _posting_behind(of: Numbers) -> str:
    return (
        f"{_number(of.used)} results wait for room in a post; from {_number(of.limit)} on, no "
        f"request is begun."
    )


_WORDS: dict[Reason, Callable[[Numbers], str]] = {
    Reason.NO_FREE_SLOT: _no_free_slot,
    Reason.NO_AVAILABLE_WORKER: _no_available_worker,
    Reason.GAS_TOO_DEAR_NOW: _gas_too_dear,
    Reason.TENANT_IN_FLIGHT: _tenant_in_flight,
    Reason.TENANT_RATE: _tenant_rate,
    Reason.PROBATION_CAP: _probation_cap,
    Reason.BUDGET_SPENT: _budget_spent,
    Reason.POSTING_BEHIND: _posting_behind,
    Reason.EXPIRED: _expired,
    Reason.DEADLINE_INFEASIBLE: _infeasible,
    Reason.MODEL_UNKNOWN: lambda of: (
        f"No registered worker serves model {of.detail or '?'} "
        f"({_count(of.registered, 'worker')} registered)."
    ),
    Reason.MEMORY_TOO_LARGE: lambda of: (
        f"It asks for {_number(of.memory_mb)} MB of memory; the largest worker that serves its "
        f"model has {_number(of.largest_memory_mb)} MB."
    ),
    Reason.UNSUPPORTED: lambda of: f"This node cannot serve it: {of.detail or '?'}.",
    Reason.ATTEMPTS_EXHAUSTED: lambda of: (
        f"It was tried {_count(of.attempts, 'time')} without a result; "
        f"the limit is {_number(of.max_attempts)}."
    ),
    Reason.QUORUM_SHORT: lambda of: (
        f"Too few owners have workers that could serve it and have not yet: {of.detail or '?'}."
    ),
    Reason.NO_AGREEMENT: lambda of: f"Its workers do not agree: {of.detail or '?'}.",
    Reason.INPUT_AWAITED: lambda of: "Its input is at a URI, from which it is being fetched.",
    Reason.INPUT_UNAVAILABLE: lambda of: (
        f"The input that its URI names cannot be had: {of.detail or '?'}."
    ),
    Reason.BAD_INPUT: lambda of: f"A worker could not read its input: {of.detail or '?'}.",
}


def _own(of: Numbers) -> str:
    return "of the operator's own " if of.owned_only else ""


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _count(value: int | None, noun: str) -> str:
    return f"? {noun}s" if value is None else count(value, noun)


def _s(value_ms: float | None, digits: int) -> str:
    return "? s" if value_ms is None else f"{value_ms / 1000:.{digits}f} s"


def _eth(wei: int | None) -> str:
    return "? ETH" if wei is None else eth(wei)
