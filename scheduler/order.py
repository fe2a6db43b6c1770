"""The admitted requests as a policy sees them, and their order."""

from __future__ import annotations

import numpy as np

from scheduler.admission import Admission
from scheduler.cells import Cells
from scheduler.cover import Cover
from scheduler.experiment import Split, places, turns
from scheduler.kinds import Floats, Ints, model_of, tokens_of
from scheduler.model import Moment
from scheduler.pending import PendingTable
from scheduler.policies.aging import bands_of_age
from scheduler.policies.protocol import OrderView, Policy

_EXACT = 2.0**53
"""Whole numbers below it are exact as floats."""


class InvalidScores(ValueError):
    """A policy returned something else than one finite number a request."""


def order_view(
    table: PendingTable, cells: Cells, cover: Cover, admission: Admission, moment: Moment
) -> OrderView:
    """The columns of the admitted requests, in the order of keys."""
    rows = admission.admitted
    slots, cell = admission.slots[rows], admission.cell[rows]
    owned_only, budget_ms = admission.owned_only[rows], admission.budget_ms[rows]
    quorum = table.quorum[slots]
    delivery_gas = cover.delivery_gas(table, slots)
    batchable = table.batchable[slots]
    fee_wei, kinds = table.fee_wei[slots], table.kind[slots]
    submitted_at_s, p90_ms = table.submitted_at_s[slots], admission.p90_ms[rows]
    to_poster = moment.rules.poster_bps / 10_000.0
    of_workers = np.where(owned_only, 1.0, admission.own_signers[rows] / quorum)
    share = to_poster + (1.0 - to_poster) * of_workers
    return OrderView(
        fee_wei=fee_wei,
        revenue_wei=fee_wei * share,
        gas_need_wei=cover.needs(admission.horizon[rows], delivery_gas, batchable),
        gas_cost_wei=cover.costs(delivery_gas, batchable),
        submitted_at_s=submitted_at_s,
        deadline_s=table.deadline_s[slots],
        wait_s=np.maximum(moment.clock_s - submitted_at_s, 0.0),
        slack_s=(budget_ms - p90_ms) / 1000.0,
        budget_ms=budget_ms,
        service_ms=np.where(owned_only, cells.owned_service_ms[cell], cells.service_ms[cell]),
        p90_ms=p90_ms,
        success_lower=np.where(
            owned_only, cells.owned_success_lower[cell], cells.success_lower[cell]
        ),
        tokens=tokens_of(kinds),
        tenant=_by_appearance(table.tenant[slots]),
        model=_by_appearance(model_of(kinds)),
        attempts=table.attempts[slots],
        max_wait_s=float(max(1, moment.rules.max_wait_s)),
        recent_fees_wei=np.sort(np.array(moment.recent_fees_wei, np.float64)),
        block_number=moment.block.number,
        now_s=moment.clock_s,
    )


def scores_of(view: OrderView, policy: Policy) -> Floats:
    """One finite score a request. Raises InvalidScores."""
    scores = np.asarray(policy.scores(view), np.float64)
    if scores.shape != (len(view),):
        raise InvalidScores(
            f"policy {policy.name} gave scores of shape {scores.shape} for {len(view)} requests"
        )
    if not np.isfinite(scores).all():
        raise InvalidScores(f"policy {policy.name} gave a score that is not finite")
    return scores


def ranking(view: OrderView, policy: Policy) -> tuple[Floats, Floats]:
    """The scores, and a key for each request: the least is served first, equal ones in the order of
    keys of requests. Raises InvalidScores."""
    scores = scores_of(view, policy)
    return scores, -scores


def merged(view: OrderView, split: Split, arm: Ints) -> tuple[Floats, Floats]:
    """The same where each request is ranked by the policy of its arm, and the arms take turns.

    What has aged at the head of an arm goes first, see `scheduler.experiment`. Raises
    InvalidScores.
    """
    scores, place, age = np.zeros(len(view)), np.zeros(len(view)), np.zeros(len(view))
    begin = turns(split.experiment, len(split.shares), view.block_number, view.now_s)
    bands = bands_of_age(view.wait_s, view.max_wait_s)
    for one, policy in enumerate(split.policies):
        rows = np.flatnonzero(arm == one)
        theirs = scores_of(view.take(rows), policy)
        scores[rows] = theirs
        ordered = rows[stable_order(-theirs)]
        place[ordered] = places(np.arange(len(rows)), arm[rows], split.shares, begin)
        age[ordered] = np.minimum.accumulate(bands[ordered])
    return scores, oldest_first(age, place)


def oldest_first(age: Floats, place: Floats) -> Floats:
    """A key for each request by falling age, then by rising place; whole numbers of at least 0."""
    span = place.max(initial=0.0) + 1.0
    keys: Floats = place - age * span
    if (age.max(initial=0.0) + 1.0) * span < _EXACT:
        return keys
    keys[np.lexsort((place, -age))] = np.arange(len(age))
    return keys


def stable_order(keys: Floats) -> Ints:
    """Positions by rising key, equal ones as they stand.

    What `argsort(kind="stable")` gives, in a third of the time where few keys are equal.
    """
    order: Ints = np.argsort(keys)
    ordered = keys[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(same):
        return order
    if 8 * len(same) > len(keys):
        return np.argsort(keys, kind="stable")
    # Equal keys stand in runs: within each, by position.
    inside = np.unique(np.concatenate((same, same + 1)))
    run = np.cumsum(np.diff(ordered[inside], prepend=-np.inf) > 0)
    order[inside] = order[inside][np.lexsort((order[inside], run))]
    return order


def _by_appearance(indexes: Ints) -> Ints:
    """The same grouping with indexes in the order of first appearance: what stood in the table
    before must not show."""
    if not len(indexes):
        return indexes
    first = np.full(int(indexes.max()) + 1, -1, np.int64)
    first[indexes[::-1]] = np.arange(len(indexes) - 1, -1, -1)
    present = np.flatnonzero(first >= 0)
    renamed = np.empty_like(first)
    renamed[present[np.argsort(first[present])]] = np.arange(len(present))
    return renamed[indexes]
