"""The policies a node can serve requests by, and the protocol that new ones keep to.

Built in, by name:

    value                 net value per slot-second, slack boost, aging (the default)
    balanced              fee, wait and slack on one scale, 60/30/10, aging
    weighted-raw          the published formula, as a baseline
    fifo, edf, fee-first  oldest, earliest deadline, highest fee first
    round-robin, weighted-round-robin, least-requests, p2c, peak-ewma
                          oldest first; they differ in which worker a request takes
"""

from __future__ import annotations

from scheduler.policies.balanced import Balanced
from scheduler.policies.choices import (
    LeastRequests,
    PeakEwma,
    RoundRobin,
    TwoChoices,
    WeightedRoundRobin,
)
from scheduler.policies.orders import EarliestDeadline, FeeFirst, Fifo, WeightedRaw
from scheduler.policies.protocol import Floats, Ints, LoadsView, OrderView, Policy, SeatsView
from scheduler.policies.value import Value

__all__ = ["DEFAULT", "POLICIES", "Floats", "Ints", "LoadsView", "OrderView", "Policy", "SeatsView"]

DEFAULT: Policy = Value()

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        DEFAULT,
        Balanced(),
        WeightedRaw(),
        Fifo(),
        EarliestDeadline(),
        FeeFirst(),
        RoundRobin(),
        WeightedRoundRobin(),
        LeastRequests(),
        TwoChoices(),
        PeakEwma(),
    )
}


def policy_named(name: str) -> Policy:
    """The built-in policy of that name; ValueError with the known names if there is none."""
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(
            f"unknown policy {name!r}; the known ones are {', '.join(sorted(POLICIES))}"
        ) from None
