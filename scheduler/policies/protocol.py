"""The protocol of policies: in which order requests are served, and by which worker.

A policy sees columns of numbers and returns numbers; it does no I/O, and depends on nothing but its
arguments. Admission, capacity and deadlines are the same for all policies: none can
break a limit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OrderView:
    """The admitted requests of a round, in the order of their keys: one element a request."""

    fee_wei: Floats
    """Amounts are rounded to floats here: good enough to rank, never to pay."""
    revenue_wei: Floats
    """What it earns this operator on the workers it may go to."""
    gas_need_wei: Floats
    """What it has to earn at least: its share of gas times the margin."""
    gas_cost_wei: Floats
    """Its expected share of gas, without the margin."""
    submitted_at_s: Floats
    deadline_s: Floats
    wait_s: Floats
    """Since it was submitted; not negative."""
    slack_s: Floats
    """What is left until the deadline after the best worker's p90 and inclusion; not negative."""
    budget_ms: Ints
    """How long its computation may take."""
    service_ms: Floats
    """Mean time on the fastest available worker; on a registered one if none is available."""
    p90_ms: Floats
    """The least p90 among the registered workers that it may go to."""
    success_lower: Floats
    """Of the worker that `service_ms` is about."""
    tokens: Floats
    """Predicted mean of output tokens, rounded up to its size class."""
    tenant: Ints
    """Index of the requester, in the order of first appearance."""
    model: Ints
    """Index of the model, in the order of first appearance."""
    attempts: Ints
    max_wait_s: float
    recent_fees_wei: Floats
    """Fees of the recent window, sorted; may be empty."""
    block_number: int
    now_s: float

    def __len__(self) -> int:
        return len(self.fee_wei)

    def take(self, rows: Ints) -> OrderView:
        """The same of some requests only."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        picked = {
            name: column[rows]
            for name, column in columns.items()
            if isinstance(column, np.ndarray) and name != "recent_fees_wei"
        }
        return OrderView(**(columns | picked))


@dataclass(frozen=True, slots=True)
class SeatsView:
    """Workers as servers of one kind of request: one element a worker, in the order of ids."""

    slots: Ints
    mean_ms: Floats
    p90_ms: Floats
    ewma_ms: Floats
    """Peak-sensitive moving average of its latest times; the mean where there is none."""
    success_lower: Floats


@dataclass(frozen=True, slots=True)
class LoadsView:
    """Workers by their load, whatever they serve: one element a worker, in the order of ids."""

    slots: Ints
    in_flight: Ints
    """Slots taken when the round began."""
    turn: Ints
    """Position in the order of all ids, counted from the worker whose turn it is at this block."""
    workers: int
    """How many workers there are."""


class Policy(Protocol):
    """How admitted requests are ordered, and which worker each one takes.

    A request takes the worker with the least `work * load` among those that suit it, of equal ones
    the smallest id.
    """

    @property
    def name(self) -> str:
        """What the operator writes in the settings, and what each plan records."""

    @property
    def version(self) -> str:
        """Changes with the policy's behaviour; each plan records it."""

    @property
    def sampled(self) -> int:
        """0: the best of all workers that suit. d: the best of d that are drawn by a hash of block
        and request (power of d choices)."""

    def scores(self, view: OrderView) -> Floats:
        """One finite score a request; the highest goes first, equal ones in the order of keys."""

    def work(self, seats: SeatsView) -> Floats:
        """What a request of this kind costs each worker: finite and at least 0.

        Elementwise: a worker's figure depends on no other worker.
        """

    def load(self, workers: LoadsView, used: Ints) -> Floats:
        """How loaded each worker is with `used` of its slots taken: finite and at least 0.

        Elementwise, and must not fall when `used` rises.
        """
