"""What checks take of the workers before new work does.

A check needs a free slot, and rounds fill every slot with what waits: so they see a slot less of as
many workers as there are checks that wait for one. And who is new gets no more work than can be
checked: else most of a backlog would be posted before the first result is found wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from indexer.database import Connection
from indexer.types import Address
from inferd.workers.checks.rules import MOST_OPEN, is_new
from inferd.workers.checks.verdict import MOST_ANSWERS
from scheduler.model import ModelId, RequestKey, WorkerView

_MOST_LOOKED_AT = 500
_MOST_WAITING = 32
"""Checks that slots are kept for at a time: some more than run at a time."""
_KEPT_SHARE = 4
"""Of a worker's slots, one of so many is kept at most, and one in any case."""
_USUAL_TOKENS = 64


@dataclass(frozen=True, slots=True)
class OpenCheck:
    """One for which a result is held back."""

    key: RequestKey
    worker: Address
    """Whose result it is."""
    model: ModelId
    memory_mb: int
    """What computing the request takes."""
    spoken: frozenset[bytes]
    """Owners whose workers have answered already."""
    undecided: bool
    """Whether answers contradict each other: it holds until the deadline."""
    holds: bool
    """Whether it holds apart from that."""


async def load_open(connection: Connection) -> list[OpenCheck]:
    """Those whose time is over first come first."""
    rows = await connection.fetch(
        """
        SELECT k.request_id, k.commitment, k.worker, k.model_id, k.undecided, r.memory_mb,
               coalesce(k.held_until > clock_timestamp(), false) AS holds,
               ARRAY(SELECT DISTINCT coalesce(o.owner, n.worker)
                     FROM node.result n LEFT JOIN chain.worker o ON o.signer = n.worker
                     WHERE n.request_id = k.request_id AND n.commitment = k.commitment) AS spoken
        FROM node.spot_check k
        JOIN chain.request r ON r.id = k.request_id AND r.commitment = k.commitment
        WHERE k.undecided OR k.held_until > clock_timestamp()
        ORDER BY k.held_until LIMIT $1
        """,
        _MOST_LOOKED_AT,
    )
    return [
        OpenCheck(
            key=RequestKey(row["request_id"], row["commitment"]),
            worker=Address(row["worker"]),
            model=ModelId(row["model_id"]),
            memory_mb=row["memory_mb"],
            spoken=frozenset(row["spoken"]),
            undecided=row["undecided"],
            holds=row["holds"],
        )
        for row in rows
    ]


def with_room(
    views: Sequence[WorkerView],
    checks: Collection[OpenCheck],
    *,
    proved: float,
    under_way: Collection[RequestKey] = (),
) -> tuple[WorkerView, ...]:
    """The workers as rounds are to see them; none has fewer slots than it has in hand. `proved` is
    how surely a worker must succeed to be off probation, `under_way` are checks that have their
    slots already. Pure."""
    if not checks:
        return tuple(views)
    most = _of_new(views, checks, proved)
    kept = _kept(views, [one for one in checks if one.key not in under_way])
    return tuple(
        replace(
            view,
            slots=max(
                min(view.in_flight, view.slots),
                min(view.slots - kept[view.id], most.get(view.id, view.slots)),
            ),
        )
        for view in views
    )


def _of_new(
    views: Sequence[WorkerView], checks: Iterable[OpenCheck], proved: float
) -> dict[bytes, int]:
    """How many slots those have whose checks are open; a check that nobody can do counts for
    nothing, unless answers contradict each other."""
    by_id = {view.id: view for view in views}
    number: Counter[bytes] = Counter()
    for check in checks:
        view = by_id.get(check.worker)  # type: ignore[call-overload]
        if view is None or view.owned:
            continue
        if not is_new(view.service.get(check.model), proved=proved):
            continue
        if check.undecided or any(_can(other, check) for other in views):
            number[view.id] += 1
    return {worker: max(0, MOST_OPEN - open_checks) for worker, open_checks in number.items()}


def _kept(views: Sequence[WorkerView], checks: Sequence[OpenCheck]) -> Counter[bytes]:
    """Slots that each worker keeps for checks: free ones, else those that are free soonest."""
    kept: Counter[bytes] = Counter()
    waiting = [one for one in checks if one.holds and len(one.spoken) < MOST_ANSWERS]
    for check in waiting[:_MOST_WAITING]:
        able = [
            view
            for view in views
            if _can(view, check) and kept[view.id] < max(1, view.slots // _KEPT_SHARE)
        ]
        if able:
            kept[min(able, key=lambda view: _order(view, check.model, kept[view.id])).id] += 1
    return kept


def _order(view: WorkerView, model: ModelId, kept: int) -> tuple[bool, bool, float, bytes]:
    offer = view.service[model]
    is_free = view.in_flight + kept < view.slots
    if is_free:
        return False, not view.owned, -offer.success_lower, view.id
    mean_ms = offer.base_ms + offer.per_token_ms * _USUAL_TOKENS
    return True, False, mean_ms * (1 + kept) / max(1, view.in_flight), view.id


def _can(view: WorkerView, check: OpenCheck) -> bool:
    return (
        view.available
        and view.slots > 0
        and check.model in view.service
        and view.memory_mb >= check.memory_mb
        and bool(view.owner)
        and view.owner not in check.spoken
    )
