"""Deficit round robin over a policy's order: the share each tenant gets, and what it is owed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.fairness import bands, carried, fair_order


def drr_by_visits(
    order: list[int], tenant: list[int], cost: list[int], deficit: list[float], quantum: list[float]
) -> list[int]:
    """The textbook loop: the visit at which each row is served."""
    queues = [[row for row in order if tenant[row] == one] for one in range(len(deficit))]
    credit, band, visit = list(deficit), [0] * len(tenant), 0
    while any(queues):
        for one, queue in enumerate(queues):
            while queue and cost[queue[0]] <= credit[one]:
                credit[one] -= cost[queue[0]]
                band[queue.pop(0)] = visit
        credit = [had + more for had, more in zip(credit, quantum, strict=True)]
        visit += 1
    return band


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    tenants = draw(st.integers(1, 4))
    rows = draw(st.integers(0, 20))
    return (
        draw(st.permutations(range(rows))),
        [draw(st.integers(0, tenants - 1)) for _ in range(rows)],
        [draw(st.integers(1, 30)) for _ in range(rows)],
        [draw(st.integers(0, 40)) for _ in range(tenants)],
        [draw(st.integers(1, 20)) for _ in range(tenants)],
    )


def arrays(*lists: list[int]) -> tuple[np.ndarray, ...]:
    order, tenant, cost, deficit, quantum = lists
    return (
        np.array(order, dtype=np.intp),
        np.array(tenant, dtype=np.intp),
        np.array(cost, dtype=np.float64),
        np.array(deficit, dtype=np.float64),
        np.array(quantum, dtype=np.float64),
    )


@given(backlogs())
def test_bands_are_the_visits_of_the_textbook_loop(case: tuple[list[int], ...]) -> None:
    assert bands(*arrays(*case)).tolist() == drr_by_visits(*case)


@given(backlogs())
def test_a_tenants_own_requests_keep_the_policys_order(case: tuple[list[int], ...]) -> None:
    order, tenant, *_ = arrays(*case)
    ranked = fair_order(order, bands(*arrays(*case)))
    assert sorted(ranked.tolist()) == sorted(order.tolist())
    for one in set(tenant.tolist()):
        mine = [row for row in ranked.tolist() if tenant[row] == one]
        assert mine == [row for row in order.tolist() if tenant[row] == one]


@given(
    data=st.data(),
    quanta=st.lists(st.integers(1, 60), min_size=2, max_size=5),
    capacity=st.lists(st.integers(0, 12), min_size=1, max_size=30),
    largest=st.integers(1, 50),
)
def test_no_tenant_gets_less_than_its_share_less_a_quantum_and_a_request(
    data: st.DataObject, quanta: list[int], capacity: list[int], largest: int
) -> None:
    """All tenants wait all the time; the policy ranks them at random, the richest always first."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    count = len(quanta)
    quantum = np.array(quanta, dtype=np.float64)
    deficit = np.zeros(count)
    served = np.zeros(count)
    queue = int(sum(capacity)) + 1
    tenant = np.repeat(np.arange(count), queue)
    cost = random.integers(1, largest + 1, count * queue).astype(np.float64)
    rank = random.random(count * queue) + 10 * (tenant == 0)
    pending = np.arange(count * queue)
    for slots in capacity:
        order = pending[np.argsort(-rank[pending], kind="stable")]
        band = bands(order, tenant, cost, deficit, quantum)
        ranked = fair_order(order, band)
        assigned, waiting = ranked[:slots], ranked[slots:]
        deficit = carried(band, tenant, cost, deficit, quantum, assigned=assigned, waiting=waiting)
        assert (deficit >= 0).all()
        assert (deficit <= quantum + largest).all()
        served += np.bincount(tenant[assigned], weights=cost[assigned], minlength=count)
        share = quantum / quantum.sum() * served.sum()
        assert (served >= share - quantum - largest - 1e-6).all()
        pending = waiting


def test_credit_is_for_who_waits() -> None:
    tenant, cost = np.array([0, 1, 1]), np.array([5.0, 5.0, 5.0])
    deficit, quantum = np.array([3.0, 0.0]), np.array([10.0, 10.0])
    band = bands(np.arange(3), tenant, cost, deficit, quantum)
    none = np.array([], dtype=np.intp)
    after = carried(
        band, tenant, cost, deficit, quantum, assigned=np.array([0, 1]), waiting=np.array([2])
    )
    assert after.tolist() == [0.0, 5.0]
    nobody = carried(band, tenant, cost, deficit, quantum, assigned=none, waiting=none)
    assert nobody.tolist() == [0.0, 0.0]


def test_what_nobody_can_serve_earns_no_endless_claim() -> None:
    tenant, cost = np.array([0] + [1] * 50), np.full(51, 10.0)
    deficit, quantum = np.zeros(2), np.array([10.0, 10.0])
    for _, _ in pairwise(range(20)):
        band = bands(np.arange(51), tenant, cost, deficit, quantum)
        deficit = carried(
            band,
            tenant,
            cost,
            deficit,
            quantum,
            assigned=np.arange(1, 51),
            waiting=np.array([0]),
        )
        assert deficit.tolist() == [20.0, 0.0]
