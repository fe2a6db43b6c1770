"""In which order admitted requests are served: the scores of the policies.

Scores are floats without a unit, higher first; equal scores are ordered by request key.

**Balanced.** Three terms, each in [0, 1], so that the weights mean what they say:

    base = 0.6 * fee + 0.3 * wait + 0.1 * urgency
    fee      quantile of the fee in the recent window (ties in the middle of their range)
    wait     wait_s / max_wait_s, at most 1
    urgency  1 - slack_s / max_wait_s, between 0 and 1
    score    = floor(wait_s / max_wait_s) + base,   base kept just below 1

The whole number in front is the *band*: a request whose wait is at least k * max_wait_s is in a
band of k or more, above every request that has waited less than k * max_wait_s, whatever it pays.

*Bound on the wait.* Let R be submitted at t. A request submitted at s can be ahead of R at any
later time T only if floor((T - s) / W) >= floor((T - t) / W), with W = max_wait_s, hence only if
s < t + W. So the requests that can ever be ahead of R are those pending at t and those submitted
before t + W: a finite number A, which nothing submitted later can raise. As each round serves in
score order, a slot that R could take goes to another request only if that one is ahead of R, and
each of them takes at most `max_attempts` slots. R, which has not been tried yet, is therefore
assigned in the round in which the (A * max_attempts + 1)-th slot it could take since t comes free,
at the latest: with c such slots a round, no later than ceil((A * max_attempts + 1) / c) rounds
after t, however rich the requests are that keep arriving.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log2

import numpy as np

from scheduler.admission import Admitted
from scheduler.model import Snapshot

FEE_WEIGHT = 0.6
WAIT_WEIGHT = 0.3
URGENCY_WEIGHT = 0.1
_BAND_TOP = 1.0 - 2.0**-20
"""Largest base: less than a band, and the sum with a band below 2**32 is still exact enough."""

_RAW_FEE_UNIT_WEI = 10**16
_RAW_URGENT_S = 30.0


def balanced_scores(snapshot: Snapshot, admitted: Sequence[Admitted]) -> list[float]:
    """The balanced score of each admitted request (see the module's text)."""
    if not admitted:
        return []
    window_wei = snapshot.recent_fees_wei or tuple(r.fee_wei for r in snapshot.requests)
    # As floats, fees above 2**53 wei can tie with a neighbour: good enough to rank, never to pay.
    window = np.sort(np.array(window_wei, dtype=np.float64))
    fees = np.array([one.request.fee_wei for one in admitted], dtype=np.float64)
    below = np.searchsorted(window, fees, side="left")
    not_above = np.searchsorted(window, fees, side="right")
    fee = (below + not_above) / (2.0 * len(window))

    max_wait_s = float(max(1, snapshot.rules.max_wait_s))
    waited = np.array([one.wait_s for one in admitted]) / max_wait_s
    slack = np.array([one.slack_s for one in admitted]) / max_wait_s
    wait = np.minimum(waited, 1.0)
    urgency = 1.0 - np.clip(slack, 0.0, 1.0)

    base = FEE_WEIGHT * fee + WAIT_WEIGHT * wait + URGENCY_WEIGHT * urgency
    scores: list[float] = (np.floor(waited) + np.minimum(base, _BAND_TOP)).tolist()
    return scores


def weighted_raw(fee_wei: int, age_s: float, slack_s: float) -> float:
    """The published formula, kept as a baseline (DESIGN.md section 4).

    0.6 * fee / 0.01 ETH + 0.3 * log2(1 + age_s) + 0.1 * f, with f = exp((30 - slack_s) / 30) when
    the slack is under 30 s and 1 otherwise. Its terms have no common scale and no upper bound.
    """
    under = slack_s < _RAW_URGENT_S
    pressure = exp((_RAW_URGENT_S - slack_s) / _RAW_URGENT_S) if under else 1.0
    return 0.6 * (fee_wei / _RAW_FEE_UNIT_WEI) + 0.3 * log2(1.0 + age_s) + 0.1 * pressure


def weighted_raw_scores(_: Snapshot, admitted: Sequence[Admitted]) -> list[float]:
    """The raw formula for each admitted request."""
    return [weighted_raw(one.request.fee_wei, one.wait_s, one.slack_s) for one in admitted]


def fifo_scores(_: Snapshot, admitted: Sequence[Admitted]) -> list[float]:
    """Oldest first."""
    return [-float(one.request.submitted_at_s) for one in admitted]


def edf_scores(_: Snapshot, admitted: Sequence[Admitted]) -> list[float]:
    """Earliest deadline first."""
    return [-float(one.request.deadline_s) for one in admitted]
