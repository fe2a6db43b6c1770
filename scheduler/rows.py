"""The decisions of a round as columns; a decision is built when it is looked at.

A round decides on every pending request, and hardly any of these decisions is new. So what decided
stays in the round's arrays, and rows are picked, and names and exact amounts put together, only for
what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from scheduler.admission import CODES, REASONS
from scheduler.cover import Cover, joint_share_wei, poster_share_wei
from scheduler.decision import Decision
from scheduler.model import Moment, Numbers, PendingRequest, Reason, WorkerId

_WAITING = (Reason.NO_FREE_SLOT, Reason.NO_AVAILABLE_WORKER)
_LIMITS = (
    Reason.TENANT_IN_FLIGHT,
    Reason.TENANT_RATE,
    Reason.PROBATION_CAP,
    Reason.BUDGET_SPENT,
    Reason.POSTING_BEHIND,
)
_SERVED = (Reason.ASSIGNED, *_WAITING)
_OF_QUORUM = (Reason.QUORUM_SHORT, Reason.NO_AGREEMENT)
_PAID = (Reason.ASSIGNED, Reason.GAS_TOO_DEAR_NOW)

USES: dict[str, tuple[Reason, ...]] = {
    "fee_wei": _PAID,
    "revenue_wei": _PAID,
    "gas_need_wei": _PAID,
    "gas_price_wei": _PAID,
    "margin_ppm": _PAID,
    "horizon_blocks": _PAID,
    "delivery_gas": _PAID,
    "deadline_s": (Reason.EXPIRED, Reason.DEADLINE_INFEASIBLE),
    "now_s": (Reason.EXPIRED, Reason.DEADLINE_INFEASIBLE),
    "wait_s": (*_SERVED, *_LIMITS),
    "budget_ms": (*_SERVED, Reason.DEADLINE_INFEASIBLE),
    "inclusion_s": (Reason.DEADLINE_INFEASIBLE,),
    "p90_ms": (Reason.ASSIGNED, Reason.DEADLINE_INFEASIBLE),
    "completion_ms": (Reason.ASSIGNED,),
    "registered": (*_SERVED, Reason.MODEL_UNKNOWN),
    "available": _SERVED,
    "available_slots": _SERVED,
    "owned_only": _SERVED,
    "attempts": (Reason.ASSIGNED, Reason.ATTEMPTS_EXHAUSTED),
    "max_attempts": (Reason.ATTEMPTS_EXHAUSTED,),
    "tried": (Reason.NO_FREE_SLOT,),
    "memory_mb": (Reason.MEMORY_TOO_LARGE,),
    "largest_memory_mb": (Reason.MEMORY_TOO_LARGE,),
    "limit": _LIMITS,
    "used": _LIMITS,
    "detail": (
        Reason.MODEL_UNKNOWN,
        Reason.UNSUPPORTED,
        Reason.BAD_INPUT,
        Reason.INPUT_UNAVAILABLE,
        *_OF_QUORUM,
    ),
}
"""Which number plays a part in which reason."""
_USED_BY: dict[str, NDArray[np.bool_]] = {
    name: np.array([reason in reasons for reason in REASONS]) for name, reasons in USES.items()
}
"""The same by code."""


Column = Callable[[NDArray[np.int64]], NDArray[Any]]
"""The values of the round's requests at those positions, which are in the order of keys."""


@dataclass(frozen=True, slots=True)
class Context:
    """What all decisions of a round have in common. Nothing in it changes with later rounds."""

    moment: Moment
    cover: Cover
    requests: NDArray[np.object_]
    """All of the round, in the order of keys."""
    ids: NDArray[np.int64]
    commitments: NDArray[np.bytes_]
    columns: Mapping[str, Column]
    """What cannot be told from the requests and the moment."""


class DecisionRows(Sequence[Decision]):
    """Decisions, each equal to what its row says; two are equal if all their decisions are."""

    def __init__(
        self,
        at: NDArray[np.int64],
        reasons: NDArray[np.uint8],
        context: Context,
        own: Mapping[str, NDArray[Any]] | None = None,
        workers: Sequence[WorkerId] | None = None,
        news: NDArray[np.bool_] | None = None,
    ) -> None:
        """`at` are positions among the round's requests; `own` holds columns, one element a
        decision, that stand for the context's."""
        self._at = at
        self.reasons = reasons
        """Codes, see `scheduler.admission.REASONS`."""
        self.news = news
        """Whether another reason, or none, was given for the request in the last round."""
        self._context = context
        self._own = own or {}
        self._workers = workers
        self._requests: NDArray[np.object_] | None = None
        self._columns: dict[str, list[Any]] = {}

    @property
    def requests(self) -> NDArray[np.object_]:
        """What is decided on."""
        if self._requests is None:
            self._requests = self._context.requests[self._at]
        return self._requests

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, at: int) -> Decision: ...
    @overload
    def __getitem__(self, at: slice) -> DecisionRows: ...
    def __getitem__(self, at: int | slice) -> Decision | DecisionRows:
        if isinstance(at, slice):
            return self.take(np.arange(len(self))[at])
        return self._decision(range(len(self))[at])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"DecisionRows({list(self)!r})"

    def take(self, at: NDArray[np.int64]) -> DecisionRows:
        """The decisions at those positions."""
        return DecisionRows(
            self._at[at],
            self.reasons[at],
            self._context,
            {name: column[at] for name, column in self._own.items()},
            None if self._workers is None else [self._workers[one] for one in at.tolist()],
            None if self.news is None else self.news[at],
        )

    def column(self, name: str) -> list[Any]:
        """One field of all decisions: `request_id`, `commitment`, `reason`, `worker`, `score`,
        `lease_ms` or a number's name.

        None where the decision has none.
        """
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._make(name)
        return column

    def _decision(self, at: int) -> Decision:
        request: PendingRequest = self.requests[at]
        reason = REASONS[self.reasons[at]]
        numbers = {
            name: self.column(name)[at] for name, reasons in USES.items() if reason in reasons
        }
        return Decision(
            request.key,
            reason,
            self.column("worker")[at],
            self.column("score")[at],
            self.column("lease_ms")[at],
            Numbers(**numbers),
        )

    def _make(self, name: str) -> list[Any]:
        if name == "request_id":
            ids: list[Any] = self._context.ids[self._at].tolist()
            return ids
        if name == "commitment":
            # As bytes of the S type they would lose zeros at their end.
            commitments: list[Any] = self._context.commitments[self._at].view("V20").tolist()
            return commitments
        if name == "reason":
            return [REASONS[code] for code in self.reasons.tolist()]
        if name == "worker":
            return [None] * len(self) if self._workers is None else list(self._workers)
        if name in ("score", "lease_ms"):
            column = self._raw(name, slice(None))
            if column is None:
                return [None] * len(self)
            known = ~np.isnan(column)
            return column.tolist() if known.all() else _sparse(column, known)
        uses = _USED_BY[name][self.reasons]
        if not uses.any():
            return [None] * len(self)
        if uses.all():
            return self._values(name, slice(None))
        column = np.full(len(self), None, np.object_)
        column[uses] = self._values(name, uses)
        listed: list[Any] = column.tolist()
        return listed

    def _raw(self, name: str, rows: NDArray[np.bool_] | slice) -> NDArray[Any] | None:
        if name in self._own:
            return self._own[name][rows]
        column = self._context.columns.get(name)
        return None if column is None else column(self._at[rows])

    def _values(self, name: str, rows: NDArray[np.bool_] | slice) -> list[Any]:
        values = self._raw(name, rows)
        if values is not None:
            if name in ("tried", "used", "limit") and not (known := values >= 0).all():
                return _sparse(values, known)
            listed: list[Any] = values.tolist()
            return listed
        if name == "detail":
            reasons = self.reasons[rows].tolist()
            return list(map(_detail, reasons, self.requests[rows].tolist()))
        if name in _OF_REQUEST:
            return list(map(_OF_REQUEST[name], self.requests[rows].tolist()))
        if name in ("revenue_wei", "gas_need_wei", "margin_ppm", "horizon_blocks"):
            return self._money(name, rows)
        if name == "delivery_gas":
            return list(map(self._context.cover.delivery_gas_of, self.requests[rows].tolist()))
        moment = self._context.moment
        count = len(self._at[rows])
        if name == "now_s":
            expired = self.reasons[rows] == CODES[Reason.EXPIRED]
            head_s = float(moment.block.timestamp_s)
            clock_s: list[Any] = np.where(expired, head_s, moment.clock_s).tolist()
            return clock_s
        return [
            {
                "gas_price_wei": self._context.cover.price_wei,
                "inclusion_s": moment.rules.inclusion_s,
                "max_attempts": moment.rules.max_attempts,
            }[name]
        ] * count

    def _money(self, name: str, rows: NDArray[np.bool_] | slice) -> list[Any]:
        cover, rules = self._context.cover, self._context.moment.rules
        at = self._at[rows]
        horizons: list[int] = self._context.columns["horizon"](at).tolist()
        if name == "margin_ppm":
            return [cover.margins_ppm[horizon] for horizon in horizons]
        if name == "horizon_blocks":
            measured = bool(rules.base_fee_quantiles_ppm)
            return [horizon + 1 if measured else None for horizon in horizons]
        requests: list[PendingRequest] = self.requests[rows].tolist()
        if name == "gas_need_wei":
            asked = [
                (horizon, cover.delivery_gas_of(one), one.batchable)
                for horizon, one in zip(horizons, requests, strict=True)
            ]
            needs = {
                each: cover.need_wei(each[0], each[1], batchable=each[2]) for each in set(asked)
            }
            return [needs[each] for each in asked]
        whole: list[bool] = self._context.columns["whole_fee"](at).tolist()
        signers: list[int] = self._context.columns["own_signers"](at).tolist()
        return [
            one.fee_wei
            if own
            else joint_share_wei(one.fee_wei, one.quorum, signed, rules)
            if signed
            else poster_share_wei(one.fee_wei, rules)
            for own, signed, one in zip(whole, signers, requests, strict=True)
        ]


def _sparse(values: NDArray[Any], known: NDArray[np.bool_]) -> list[Any]:
    """The values, None where they are not known."""
    if not known.any():
        return [None] * len(values)
    column = np.full(len(values), None, np.object_)
    column[known] = values[known].tolist()
    listed: list[Any] = column.tolist()
    return listed


def _detail(code: int, request: PendingRequest) -> str:
    if REASONS[code] in _OF_QUORUM:
        of = request
        return f"a quorum of {of.quorum}; {of.answers} have answered, {of.agreeing} of them alike"
    said = (request.unsupported, request.bad_input, request.input_lost)
    return next((words for words in said if words is not None), "0x" + request.model.hex())


_OF_REQUEST: dict[str, Callable[[PendingRequest], Any]] = {
    "fee_wei": lambda one: one.fee_wei,
    "deadline_s": lambda one: one.deadline_s,
    "attempts": lambda one: one.attempts,
    "memory_mb": lambda one: one.memory_mb,
}
