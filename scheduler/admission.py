"""Which requests take part in a round, and why the others do not.

The checks run from "never, whatever happens" to "not at this gas price" and "not yet": unsupported,
bad input, lost input, expired, model unknown, memory, attempts, answers that do not agree,
deadline, gas, owners that a quorum lacks, awaited input. The first that fails is recorded; so an
input is fetched for what would be served, and nothing else.

Deadlines are chain time (`Moment.clock_s`); expired is what the block's own time has passed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.cells import MEMORY_TOO_LARGE, MODEL_UNKNOWN, Cells
from scheduler.cover import EDGE, Cover, joint_share_wei, poster_share_wei
from scheduler.kinds import Floats, Ints
from scheduler.model import Moment, PendingRequest, Reason
from scheduler.pending import (
    BAD_INPUT,
    INPUT_AWAITED,
    INPUT_LOST,
    UNSUPPORTED,
    PendingTable,
)
from scheduler.quorum import Owners
from scheduler.workers import WorkerTable

REASONS: tuple[Reason, ...] = tuple(Reason)
CODES: dict[Reason, int] = {reason: code for code, reason in enumerate(REASONS)}
"""How columns write a reason."""

_ADMITTED = CODES[Reason.ASSIGNED]
"""In admission's column: nothing speaks against it."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What was found out about each pending request, in the order of keys: one element each."""

    slots: Ints
    """In the table of pending requests."""
    reason: NDArray[np.uint8]
    """A code; that of ASSIGNED where the request takes part."""
    cell: Ints
    budget_ms: Ints
    """How long the computation may take: until the deadline, less the time for inclusion."""
    p90_ms: Floats
    """The best one of the registered workers that it may go to; infinite if there is none. Of a
    quorum, that of the slowest owner whom it cannot do without."""
    owned_only: NDArray[np.bool_]
    """Whether only the operator's own workers make it worth its gas."""
    owned_in_time: NDArray[np.bool_]
    """Whether one of the operator's own workers could make it."""
    horizon: Ints
    """Index of its margin: of the own workers where the others are not worth it."""
    own_signers: Ints
    """Of a quorum, how many of its workers are the operator's own, whoever they are; else 0."""

    @property
    def admitted(self) -> Ints:
        """The positions of the requests that take part."""
        return np.flatnonzero(self.reason == _ADMITTED)


def admit(
    table: PendingTable, cells: Cells, workers: WorkerTable, cover: Cover, moment: Moment
) -> Admission:
    """All checks of all pending requests."""
    slots, rules = table.order(), moment.rules
    cell = table.cell[slots]
    served = cell >= 0
    at = np.where(served, cell, 0)
    deadline_s = table.deadline_s[slots]
    left_s = (deadline_s - rules.inclusion_s) - moment.clock_s
    budget_ms = np.floor(left_s * 1000.0).astype(np.int64)
    p90_ms = _facts(cells.p90_ms, at, served)
    owned_p90_ms = _facts(cells.owned_p90_ms, at, served)
    quorum, own_signers = table.quorum[slots], np.zeros(len(slots), np.int64)
    is_short = np.zeros(len(slots), np.bool_)
    joint: list[int] = np.flatnonzero((quorum > 1) & served).tolist()
    owners = Owners(cells, workers) if joint else None
    for row in joint:
        asked: PendingRequest = table.request[slots[row]]
        answering = owners.of(asked, int(cell[row]))  # type: ignore[union-attr]
        is_short[row], own_signers[row] = answering.is_short, answering.own_signers
        if not answering.is_short:
            p90_ms[row] = answering.p90_ms
        owned_p90_ms[row] = np.inf  # It cannot be left to the own workers alone.

    # The operator's own workers may be slower, and their results be posted later.
    horizon, own_horizon = cover.horizon(p90_ms), cover.horizon(owned_p90_ms)
    delivery_gas = cover.delivery_gas(table, slots)
    batchable = table.batchable[slots]
    fee_wei = table.fee_wei[slots]
    share = rules.poster_bps / 10_000.0
    pays_any, edge = _pays(fee_wei * share, cover.needs(horizon, delivery_gas, batchable))
    pays_own, own_edge = _pays(fee_wei, cover.needs(own_horizon, delivery_gas, batchable))
    for row in np.flatnonzero((edge | own_edge) & served).tolist():
        request: PendingRequest = table.request[slots[row]]
        need_wei, own_need_wei = (
            cover.need_wei(
                int(one[row]), cover.delivery_gas_of(request), batchable=request.batchable
            )
            for one in (horizon, own_horizon)
        )
        pays_any[row] = poster_share_wei(request.fee_wei, rules) >= need_wei
        pays_own[row] = request.fee_wei >= own_need_wei
    for row in joint:
        asked = table.request[slots[row]]
        earned_wei = joint_share_wei(asked.fee_wei, asked.quorum, int(own_signers[row]), rules)
        gas, batched = cover.delivery_gas_of(asked), asked.batchable
        pays_any[row] = earned_wei >= cover.need_wei(int(horizon[row]), gas, batchable=batched)
    owned_in_time = owned_p90_ms <= budget_ms
    owned_only = ~pays_any & pays_own & owned_in_time

    reason = np.full(len(slots), _ADMITTED, np.uint8)
    closed = table.closed[slots]
    for fails, why in (
        (closed == INPUT_AWAITED, Reason.INPUT_AWAITED),
        (is_short, Reason.QUORUM_SHORT),
        (~pays_any & ~owned_only, Reason.GAS_TOO_DEAR_NOW),
        (p90_ms > budget_ms, Reason.DEADLINE_INFEASIBLE),
        (
            (quorum > 1) & (table.answers[slots] >= quorum + rules.max_attempts),
            Reason.NO_AGREEMENT,
        ),
        (table.attempts[slots] >= rules.max_attempts, Reason.ATTEMPTS_EXHAUSTED),
        (cell == MEMORY_TOO_LARGE, Reason.MEMORY_TOO_LARGE),
        (cell == MODEL_UNKNOWN, Reason.MODEL_UNKNOWN),
        (moment.block.timestamp_s > deadline_s, Reason.EXPIRED),
        (closed == INPUT_LOST, Reason.INPUT_UNAVAILABLE),
        (closed == BAD_INPUT, Reason.BAD_INPUT),
        (closed == UNSUPPORTED, Reason.UNSUPPORTED),
    ):
        reason[fails] = CODES[why]
    return Admission(
        slots,
        reason,
        cell,
        budget_ms,
        np.where(owned_only, owned_p90_ms, p90_ms),
        owned_only,
        owned_in_time,
        np.where(~pays_any & owned_in_time, own_horizon, horizon),
        own_signers,
    )


def _pays(earned_wei: Floats, need_wei: Floats) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether that much is enough, and where floats cannot tell."""
    return earned_wei >= need_wei, np.abs(earned_wei - need_wei) <= EDGE * need_wei + 2.0


def _facts(column: Floats, at: Ints, served: NDArray[np.bool_]) -> Floats:
    if not len(column):
        return np.full(len(at), np.inf)
    facts: Floats = np.where(served, column[at], np.inf)
    return facts
