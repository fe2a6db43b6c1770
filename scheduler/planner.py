"""The scheduler between rounds: what is pending and who could serve it, and a round over both.

A round costs what has changed, plus a few passes over columns: the state keeps requests, workers,
the order of keys and the facts about kinds of requests. It holds nothing that a plan
depends on beyond the snapshot it stands for: `plan` gives what a planner that was just filled with
the same requests and workers would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler import flow
from scheduler.admission import CODES, Admission, admit
from scheduler.assignment import NOTHING_GIVEN, Assigner, Assignments
from scheduler.cells import Cells
from scheduler.cover import Cover
from scheduler.decision import Plan
from scheduler.experiment import Split, arms_of
from scheduler.kinds import Floats, Ints
from scheduler.lease import lease_ms
from scheduler.limited import Limited
from scheduler.model import (
    Moment,
    PendingRequest,
    Reason,
    RequestKey,
    Snapshot,
    WorkerId,
    WorkerView,
)
from scheduler.order import merged, order_view, ranking
from scheduler.pending import PendingTable
from scheduler.policies import DEFAULT, Policy
from scheduler.policies.choices import slowdown
from scheduler.probation import caps_of
from scheduler.rows import Column, Context, DecisionRows
from scheduler.workers import WorkerTable

KEPT = (
    Reason.NO_FREE_SLOT,
    Reason.NO_AVAILABLE_WORKER,
    Reason.GAS_TOO_DEAR_NOW,
    Reason.TENANT_IN_FLIGHT,
    Reason.TENANT_RATE,
    Reason.PROBATION_CAP,
    Reason.BUDGET_SPENT,
    Reason.QUORUM_SHORT,
    Reason.INPUT_AWAITED,
    Reason.POSTING_BEHIND,
)
"""Reasons for which a request stays pending; ASSIGNED aside, all others are for good."""
_IS_KEPT: NDArray[np.bool_] = np.isin(np.arange(len(CODES)), [CODES[reason] for reason in KEPT])


@dataclass(frozen=True, slots=True)
class Changes:
    """What is different from the last round."""

    added: Sequence[PendingRequest] = ()
    """New requests, and those of which anything has changed."""
    removed: Sequence[RequestKey] = ()
    """No longer pending: assigned, answered, refused, or undone by a reorganisation."""
    workers: Sequence[WorkerView] = ()
    """New workers, and those of which anything has changed."""
    workers_gone: Sequence[WorkerId] = ()


class Planner:
    """Keeps state between rounds. Not for use by several threads at once."""

    def __init__(self) -> None:
        self._table = PendingTable()
        self._workers = WorkerTable()
        self._cells = Cells()

    @property
    def pending(self) -> int:
        """How many requests are pending."""
        return len(self._table)

    def snapshot(self, moment: Moment) -> Snapshot:
        """All that a plan at that moment depends on, for one from scratch."""
        return Snapshot(
            block=moment.block,
            now_s=moment.now_s,
            requests=tuple(self._table.request[self._table.order()].tolist()),
            workers=self._workers.views(),
            gas=moment.gas,
            rules=moment.rules,
            recent_fees_wei=moment.recent_fees_wei,
            taken=moment.taken,
        )

    def apply(self, changes: Changes) -> None:
        """Removals first. Raises ValueError if a request is added twice."""
        self._table.remove(changes.removed)
        self._table.add(changes.added)
        self._workers.remove(changes.workers_gone)
        self._workers.put(changes.workers)
        self._workers.settle()

    def plan(self, moment: Moment, policy: Policy | Split = DEFAULT) -> Plan:
        """What to do with every pending request: assign, keep or refuse, each with a reason.

        Raises InvalidScores or InvalidKeys, and what the policy raises; the state stays usable.
        """
        table, workers, cells = self._table, self._workers, self._cells
        cells.settle(table, workers)
        cover = Cover(moment, len(workers))
        admission = admit(table, cells, workers, cover, moment)
        view = order_view(table, cells, cover, admission, moment)
        limited = Limited(table, admission, cover, moment, view)
        arm = None
        if isinstance(policy, Split):
            commitment = table.commitment[admission.slots[admission.admitted]]
            rows = commitment.view(np.uint8).reshape(len(commitment), 20)
            arm = arms_of(rows, policy.experiment, policy.shares)
            scores, keys = merged(view, policy, arm)
        else:
            scores, keys = ranking(view, policy)
        assigner = Assigner(
            table,
            cells,
            workers,
            admission,
            policy.policies if isinstance(policy, Split) else (policy,),
            moment.block,
            arm=arm,
            gate=limited.gate,
            caps=caps_of(workers, moment.rules.limits.probation),
        )
        given = (
            NOTHING_GIVEN
            if limited.holds_all
            else assigner.run(limited.order(keys), moment.rules.flow_arcs)
        )
        limited.keep(assigner, self._reasons(admission, admission.admitted, given), given)
        return self._plan(moment, policy, cover, admission, scores, given, limited)

    def _plan(
        self,
        moment: Moment,
        policy: Policy | Split,
        cover: Cover,
        admission: Admission,
        scores: Floats,
        given: Assignments,
        limited: Limited,
    ) -> Plan:
        slots, reasons = admission.slots, limited.reasons
        context = Context(
            moment,
            cover,
            self._table.request[slots],
            self._table.id[slots],
            self._table.commitment[slots],
            self._columns(moment, admission, scores, given, limited),
        )
        is_kept = _IS_KEPT[reasons]
        is_assigned = reasons == CODES[Reason.ASSIGNED]
        kept = np.flatnonzero(is_kept)
        refused = np.flatnonzero(~(is_kept | is_assigned))
        kept_reasons = reasons[kept]
        news = self._table.told[slots[kept]] != kept_reasons + 1
        self._table.told[slots] = np.where(is_kept, reasons + 1, 0)
        return Plan(
            moment.block,
            policy.name,
            policy.version + (flow.VERSION_SUFFIX if given.exact else ""),
            self._assigned(admission, context, given),
            DecisionRows(kept, kept_reasons, context, news=news),
            DecisionRows(
                refused,
                reasons[refused],
                context,
                {"largest_memory_mb": self._largest_mb(admission, refused, reasons[refused])},
            ),
            limited.deficits,
        )

    def _reasons(
        self, admission: Admission, admitted: Ints, given: Assignments
    ) -> NDArray[np.uint8]:
        cells, reasons = self._cells, admission.reason.copy()
        cell, owned_only = admission.cell[admitted], admission.owned_only[admitted]
        best_ms = np.where(
            owned_only, cells.available_owned_p90_ms[cell], cells.available_p90_ms[cell]
        )
        busy = best_ms <= admission.budget_ms[admitted]
        reasons[admitted] = np.where(
            busy, CODES[Reason.NO_FREE_SLOT], CODES[Reason.NO_AVAILABLE_WORKER]
        )
        reasons[admitted[list(given.waiting)]] = CODES[Reason.NO_FREE_SLOT]
        reasons[admitted[given.rows]] = CODES[Reason.ASSIGNED]
        return reasons

    def _assigned(self, admission: Admission, context: Context, given: Assignments) -> DecisionRows:
        at, ranks = admission.admitted[given.rows], given.ranks
        return DecisionRows(
            at,
            np.full(len(at), CODES[Reason.ASSIGNED], np.uint8),
            context,
            {
                "p90_ms": given.p90_ms,
                "completion_ms": given.mean_ms * slowdown(self._workers.slots[ranks], given.used),
                "lease_ms": lease_ms(given.p90_ms, admission.budget_ms[at]),
            },
            [self._workers.ids[one] for one in ranks.tolist()],
        )

    def _columns(
        self,
        moment: Moment,
        admission: Admission,
        scores: Floats,
        given: Assignments,
        limited: Limited,
    ) -> dict[str, Column]:
        """What decided, for all requests of the round."""
        cells, admitted = self._cells, admission.admitted
        submitted_at_s = self._table.submitted_at_s[admission.slots]
        place = np.full(len(admission.slots), -1)
        place[admitted] = np.arange(len(admitted))

        def of_cell(column: Ints, otherwise: int) -> Column:
            known = np.append(column[: len(cells)], otherwise)
            return lambda at: known[np.maximum(admission.cell[at], -1)]

        def of_admitted(column: Floats | Ints, otherwise: float) -> Column:
            known = np.append(column, otherwise)
            return lambda at: known[place[at]]

        tried = np.full(len(admitted), -1)
        tried[list(given.waiting)] = list(given.waiting.values())

        return {
            "budget_ms": lambda at: admission.budget_ms[at],
            "wait_s": lambda at: np.maximum(moment.clock_s - submitted_at_s[at], 0.0),
            "p90_ms": lambda at: admission.p90_ms[at],
            "registered": of_cell(cells.registered, len(self._workers)),
            "available": of_cell(cells.available, 0),
            "available_slots": of_cell(cells.available_slots, 0),
            "owned_only": lambda at: admission.owned_only[at],
            "horizon": lambda at: admission.horizon[at],
            "own_signers": lambda at: admission.own_signers[at],
            "whole_fee": lambda at: (
                admission.owned_only[at]
                | admission.owned_in_time[at]
                & (admission.reason[at] == CODES[Reason.GAS_TOO_DEAR_NOW])
            ),
            "score": of_admitted(scores, np.nan),
            "tried": of_admitted(tried, -1),
            "used": of_admitted(limited.used, -1.0),
            "limit": of_admitted(limited.limit, -1.0),
        }

    def _largest_mb(self, admission: Admission, rows: Ints, reasons: NDArray[np.uint8]) -> Ints:
        largest = np.zeros(len(rows), np.int64)
        for at in np.flatnonzero(reasons == CODES[Reason.MEMORY_TOO_LARGE]).tolist():
            request: PendingRequest = self._table.request[admission.slots[rows[at]]]
            largest[at] = self._workers.seats[request.model].memories_mb[-1]
        return largest
