"""Fair shares: deficit round robin over tenants, laid over whatever order the policy gives.

A tenant's requests keep the policy's order among themselves. Let C(j) be the cost in tokens of a
request j and all of its tenant's before it, D the tenant's deficit (what it is still owed from
earlier rounds, in tokens), and Q its quantum (the operator's, times the tenant's weight). In
deficit round robin (Shreedhar and Varghese 1996) a queue gets Q at each visit and serves while what
it has covers the next request, hence j is served at visit

    band(j) = max(0, ceil((C(j) - D) / Q))

which needs no loop over visits. Requests go by band; within a band the policy's order decides, so
it rules whatever a quantum can bear. If the last visit of a round is V, then a tenant that still
waits for a slot takes over D + V * Q - (cost of what it was assigned), and one that does not starts
from zero: credit is for who is waiting, and cannot be saved up.

**Bound.** While tenants wait for the same slots, all bands below V are served out. So what a tenant
is owed is at most Q + L, L being its largest request, and it has got at least sum(V) * Q - Q - L.
All together have got at most sum(V) * (sum of all Q). So over any time in which all of them wait,

    service(t) >= Q(t) / sum(Q) * (service of all) - Q(t) - L(t)

that is, its share less a quantum and one request.

**The longest wait.** Let R be a request of a tenant with quantum Q and largest request L, and O the
cost of all its own requests that are ever ahead of R, each as often as it is tried. While R
waits, service(t) <= O. So R is assigned before all tenants that wait for its slots together
have got more than

    sum(Q) / Q * (O + Q + L)

tokens since R was submitted, and what they were owed before, however many and rich the requests
of others are. Its tenant's own cannot hold it back for ever either: under an order by bands of age
only those are ahead of it that were submitted before t + max_wait_s (`scheduler.policies.aging`).
But accounts cost nothing, and each that waits adds its quantum to the sum: against a flood from
ever new accounts turns give no bound, where the order alone does.

Where tenants wait for different workers there is
no common share; the deficit is cut at Q + L all the same, so nobody's claim grows without end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
Tokens = NDArray[np.float64]


def bands(order: Rows, tenant: Rows, cost: Tokens, deficit: Tokens, quantum: Tokens) -> Rows:
    """The visit at which each request is served, in tokens of cost, indexed as `tenant` is.

    `order` are row numbers as the policy ranks them; `tenant` and `cost` are per row, `deficit`
    (>= 0) and `quantum` (> 0) per tenant. Rows that are not in `order` get band 0.
    """
    by_tenant = order[np.argsort(tenant[order], kind="stable")]
    owner = tenant[by_tenant]
    total = np.cumsum(cost[by_tenant])
    starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if len(owner) else owner
    before = np.repeat(total[starts] - cost[by_tenant[starts]], np.diff(np.r_[starts, len(owner)]))
    visits = np.ceil((total - before - deficit[owner]) / quantum[owner])
    band = np.zeros(len(tenant), dtype=np.intp)
    band[by_tenant] = np.maximum(visits, 0.0).astype(np.intp)
    return band


def fair_order(order: Rows, band: Rows) -> Rows:
    """The policy's order, band by band."""
    return order[np.argsort(band[order], kind="stable")]


def carried(
    band: Rows,
    tenant: Rows,
    cost: Tokens,
    deficit: Tokens,
    quantum: Tokens,
    *,
    assigned: Rows,
    waiting: Rows,
) -> Tokens:
    """Each tenant's deficit after the round, see the module's text.

    `assigned` and `waiting` are row numbers: what was assigned, and what only lacked a free slot.
    """
    served = np.bincount(tenant[assigned], weights=cost[assigned], minlength=len(deficit))
    visits = band[assigned].max(initial=0)
    largest = np.zeros(len(deficit))
    np.maximum.at(largest, tenant[waiting], cost[waiting])
    owed = np.clip(deficit + visits * quantum - served, 0.0, quantum + largest)
    waits = np.zeros(len(deficit), dtype=np.bool_)
    waits[tenant[waiting]] = True
    return np.where(waits, owed, 0.0)
