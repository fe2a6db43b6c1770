"""Bands of age, which bound the wait under any order that is put inside them.

    score = floor(wait_s / W) + base,   W = max_wait_s, base in [0, 1)

The whole number in front is the *band*: a request whose wait is at least k * W is in a band of k or
more, above every request that has waited less than k * W, whatever it pays.

*Bound on the wait.* Let R be submitted at t. A request submitted at s can be ahead of R at any
later time T only if floor((T - s) / W) >= floor((T - t) / W), hence only if s < t + W. So the
requests that can ever be ahead of R are those pending at t and those submitted before t + W: a
finite number A, which nothing submitted later can raise. As each round serves in score order, a
slot that R could take goes to another request only if that one is ahead of R, and each of them
takes at most `max_attempts` slots. R, which has not been tried yet, is therefore assigned in the
round in which the (A * max_attempts + 1)-th slot it could take since t comes free, at the latest:
with c such slots a round, no later than ceil((A * max_attempts + 1) / c) rounds after t, however
rich the requests are that keep arriving.

*With several policies at once* the same bound holds, A counted over all of them: see
`scheduler.experiment`. *With fair shares* turns of tenants go before age, and the bound is one of
tokens: see `scheduler.fairness`.

What keeps R waiting for other reasons (gas too dear, a tenant's quota, no worker that is in time)
is outside of this bound, as it is of any order.
"""

from __future__ import annotations

import numpy as np

from scheduler.policies.protocol import Floats

_TOP = 1.0 - 2.0**-20
"""Largest base: less than a band, and the sum with a band below 2**32 is still exact enough."""


def banded(base: Floats, wait_s: Floats, max_wait_s: float) -> Floats:
    """Scores whose whole part is the band of the wait; `base` is cut to [0, 1)."""
    scores: Floats = bands_of_age(wait_s, max_wait_s) + np.clip(base, 0.0, _TOP)
    return scores


def bands_of_age(wait_s: Floats, max_wait_s: float) -> Floats:
    """How many times the longest wait each request has waited, rounded down."""
    bands: Floats = np.floor(wait_s / max(1.0, max_wait_s))
    return bands


def urgency(slack_s: Floats, max_wait_s: float) -> Floats:
    """1 without any slack, falling to 0 at a slack of `max_wait_s`."""
    falling: Floats = 1.0 - np.clip(slack_s / max(1.0, max_wait_s), 0.0, 1.0)
    return falling
