"""The scheduler between rounds: what is pending and who could serve it, and a round over both.

A round costs what has changed, plus a few passes over columns: the state keeps requests, workers,
the order of keys and the facts about kinds of requests. It holds nothing that a plan
depends on beyond the snapshot it stands for: `plan` gives what a planner that was just filled with
the same requests and workers would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from scheduler import flow
from scheduler.admission import CODES, Admission, admit
from scheduler.assignment import Assigner, Assignments
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
from scheduler.rows import Context, DecisionRows
from scheduler.workers import WorkerTable

KEPT = (
    Reason.NO_FREE_SLOT,
    Reason.NO_AVAILABLE_WORKER,
    Reason.GAS_TOO_DEAR_NOW,
    Reason.TENANT_IN_FLIGHT,
    Reason.TENANT_RATE,
    Reason.PROBATION_CAP,
    Reason.BUDGET_SPENT,
)
"""Reasons for which a request stays pending; ASSIGNED aside, all others are for good."""
_KEPT_CODES = np.array([CODES[reason] for reason in KEPT], np.uint8)


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
        admission = admit(table, cells, cover, moment)
        view = order_view(table, cells, cover, admission, moment)
        limited = Limited(table, admission, cover, moment, view)
        arm = None
        if isinstance(policy, Split):
            commitment = table.commitment[admission.slots[admission.admitted]]
            rows = commitment.view(np.uint8).reshape(len(commitment), 20)
            arm = arms_of(rows, policy.experiment, policy.shares)
            scores, ranked = merged(view, policy, arm)
        else:
            scores, ranked = ranking(view, policy)
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
        given = assigner.run(limited.order(ranked), moment.rules.flow_arcs)
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
        admitted = admission.admitted
        reasons = limited.reasons
        context = Context(moment, cover, len(self._workers))
        score = np.full(len(reasons), np.nan)
        score[admitted] = scores
        kept = np.flatnonzero(np.isin(reasons, _KEPT_CODES))
        refused = np.flatnonzero(
            (reasons != CODES[Reason.ASSIGNED]) & ~np.isin(reasons, _KEPT_CODES)
        )
        assigned = admitted[np.array([row for row, *_ in given.taken], np.int64)]
        tried, used, limit = (np.full(len(reasons), -1.0) for _ in range(3))
        for row, failed in given.waiting.items():
            tried[admitted[row]] = failed
        used[admitted], limit[admitted] = limited.used, limited.limit

        slots = admission.slots
        told = self._table.told[slots[kept]]
        news = told != reasons[kept] + 1
        self._table.told[slots] = 0
        self._table.told[slots[kept]] = reasons[kept] + 1
        kept_raw = self._raw(admission, kept, moment) | {
            "score": score[kept],
            "tried": tried[kept].astype(np.int64),
            "used": used[kept],
            "limit": limit[kept],
        }
        return Plan(
            moment.block,
            policy.name,
            policy.version + (flow.VERSION_SUFFIX if given.exact else ""),
            self._assigned(admission, assigned, score, moment, context, given),
            DecisionRows(
                self._table.request[slots[kept]], reasons[kept], context, kept_raw, news=news
            ),
            DecisionRows(
                self._table.request[slots[refused]],
                reasons[refused],
                context,
                self._raw(admission, refused, moment)
                | self._refused_raw(admission, refused, reasons[refused]),
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
        taken = [row for row, *_ in given.taken]
        reasons[admitted[taken]] = CODES[Reason.ASSIGNED]
        return reasons

    def _assigned(
        self,
        admission: Admission,
        rows: Ints,
        score: Floats,
        moment: Moment,
        context: Context,
        given: Assignments,
    ) -> DecisionRows:
        columns = zip(*given.taken, strict=True) if given.taken else repeat((), 5)
        _, rank, used, mean_ms, p90_ms = (np.array(column, np.float64) for column in columns)
        ranks = rank.astype(np.int64)
        raw = self._raw(admission, rows, moment) | {
            "score": score[rows],
            "p90_ms": p90_ms,
            "completion_ms": mean_ms * slowdown(self._workers.slots[ranks], used.astype(np.int64)),
            "lease_ms": lease_ms(p90_ms, admission.budget_ms[rows]),
        }
        slots = admission.slots[rows]
        return DecisionRows(
            self._table.request[slots],
            np.full(len(rows), CODES[Reason.ASSIGNED], np.uint8),
            context,
            raw,
            [self._workers.ids[one] for one in ranks.tolist()],
        )

    def _raw(
        self, admission: Admission, rows: Ints, moment: Moment
    ) -> dict[str, NDArray[np.generic]]:
        cells, cell = self._cells, admission.cell[rows]
        known = cell >= 0
        at = np.where(known, cell, 0)

        def facts(column: NDArray[np.int64], otherwise: int) -> NDArray[np.int64]:
            if not len(column):
                return np.full(len(at), otherwise, np.int64)
            return np.where(known, column[at], otherwise)

        owned_only = admission.owned_only[rows]
        return {
            "budget_ms": admission.budget_ms[rows],
            "wait_s": np.maximum(
                moment.clock_s - self._table.submitted_at_s[admission.slots[rows]], 0.0
            ),
            "p90_ms": admission.p90_ms[rows],
            "registered": facts(cells.registered, len(self._workers)),
            "available": facts(cells.available, 0),
            "available_slots": facts(cells.available_slots, 0),
            "owned_only": owned_only,
            "horizon": admission.horizon[rows],
            "whole_fee": owned_only
            | admission.owned_in_time[rows]
            & (admission.reason[rows] == CODES[Reason.GAS_TOO_DEAR_NOW]),
        }

    def _refused_raw(
        self, admission: Admission, rows: Ints, reasons: NDArray[np.uint8]
    ) -> dict[str, NDArray[np.generic]]:
        largest = np.zeros(len(rows), np.int64)
        for at in np.flatnonzero(reasons == CODES[Reason.MEMORY_TOO_LARGE]).tolist():
            request: PendingRequest = self._table.request[admission.slots[rows[at]]]
            largest[at] = self._workers.seats[request.model].memories_mb[-1]
        return {"largest_memory_mb": largest}
