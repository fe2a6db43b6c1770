"""The gas of the contracts' transactions, against a budget and against what was recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from indexer.errors import ExitCode, OperatorError
from inferd.bench import scenarios
from inferd.bench.arena import Arena, steady_arena
from inferd.protocol.request import Delivery


class OverBudget(OperatorError):
    """A transaction takes more gas than it may."""

    code: ClassVar[str] = "over_budget"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured transaction."""

    key: str
    what: str
    measure: Callable[[Arena], Awaitable[int]]
    """The gas of the whole transaction."""
    shared_by: int = 1
    """How many requests or results the gas is divided by, rounded up."""
    budget: int | None = None


FIGURES = (
    Figure(
        "request_32b",
        "a request with 32 bytes of input",
        lambda arena: scenarios.request(arena, 32),
        budget=58_000,
    ),
    Figure(
        "request_1kb",
        "a request with 1,024 bytes of input",
        lambda arena: scenarios.request(arena, 1024),
    ),
    Figure(
        "request_batch50_each",
        "50 requests at once, each",
        lambda arena: scenarios.request_batch(arena, 50),
        shared_by=50,
    ),
    Figure("raise_fee", "a raised fee", scenarios.raise_fee),
    Figure(
        "result_single",
        "a single result, nothing to anchor",
        lambda arena: scenarios.result(arena, root=False),
        budget=60_000,
    ),
    Figure(
        "result_single_root",
        "a single result, with a decisions root",
        lambda arena: scenarios.result(arena, root=True),
    ),
    Figure(
        "event_n10_each",
        "10 results of one worker, each",
        lambda arena: scenarios.results_of_one(arena, 10),
        shared_by=10,
    ),
    Figure(
        "event_n100_w4_each",
        "100 results of 4 workers, each",
        lambda arena: scenarios.results_of_all(arena, 100, Delivery.EVENT),
        shared_by=100,
        budget=6_000,
    ),
    Figure(
        "stored_n100_w4_each",
        "100 stored results of 4 workers, each",
        lambda arena: scenarios.results_of_all(arena, 100, Delivery.STORED),
        shared_by=100,
        budget=9_000,
    ),
    Figure(
        "quorum3_n100_each",
        "100 results that 3 workers signed, each",
        lambda arena: scenarios.results_of_quorum(arena, 100, 3),
        shared_by=100,
    ),
    Figure(
        "callback_single_overhead",
        "a single callback on top of its result",
        lambda arena: scenarios.callbacks(arena, 1),
    ),
    Figure(
        "callback_n20_each",
        "20 callbacks on top of their results, each",
        lambda arena: scenarios.callbacks(arena, 20),
        shared_by=20,
        budget=40_000,
    ),
    Figure("withdraw", "a withdrawal", scenarios.withdraw),
    Figure("worker_register", "a worker's registration, without stake", scenarios.register),
    Figure("equivocation_proof", "a report of two signed answers", scenarios.equivocation),
    # The last: time passes for all.
    Figure(
        "refund_n50_each",
        "50 refunds, each",
        lambda arena: scenarios.refunds(arena, 50),
        shared_by=50,
    ),
)


async def measure() -> dict[str, int]:
    """Gas by key, on a fresh chain.

    Raises AnvilMissing, AnvilNotStarted, and what sending raises where a contract is broken.
    """
    measured = {}
    async with steady_arena() as arena:
        for figure in FIGURES:
            gas = await figure.measure(arena)
            measured[figure.key] = -(-gas // figure.shared_by)
    return measured


def check_budget(measured: Mapping[str, int]) -> None:
    """Raises OverBudget."""
    over = [
        f"{figure.key} takes {measured[figure.key]} of {figure.budget}"
        for figure in FIGURES
        if figure.budget is not None and measured[figure.key] > figure.budget
    ]
    if over:
        raise OverBudget(
            f"the gas budget is exceeded: {', '.join(over)}",
            help_text="docs/benchmarks.md says where the gas goes",
        )


def differences(
    measured: Mapping[str, int], recorded: Mapping[str, int], tolerance: float
) -> list[str]:
    """In words, what is not as recorded, in either direction; `tolerance` 0.01 = 1 %."""
    found = [f"{key} is not recorded" for key in measured if key not in recorded]
    found += [f"{key} is not measured any more" for key in recorded if key not in measured]
    found += [
        f"{key} is {measured[key]}, recorded {recorded[key]}"
        for key in measured
        if key in recorded and abs(measured[key] - recorded[key]) > tolerance * recorded[key]
    ]
    return found
