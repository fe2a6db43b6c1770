"""Facts about kinds of requests: those of a look at every worker."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cells import FACTS, Cells
from scheduler.model import ServiceEstimate
from scheduler.openings import least_p90
from scheduler.pending import PendingTable
from scheduler.workers import WorkerTable
from tests.scheduler.make import model, p90_of, request, worker


@st.composite
def _crowds(draw: st.DrawFn):
    """Enough workers for some to be surpassed, of few values for many ties."""
    rng = Random(draw(st.integers(0, 2**32)))  # more draws than hypothesis would make
    number = draw(st.sampled_from([1, 3, 40, 150]))
    availability = draw(st.sampled_from([0.1, 0.9]))
    return [
        worker(
            n,
            memory_mb=rng.choice((1_000, 2_000, 3_000)),
            slots=rng.randint(0, 3),
            in_flight=rng.randint(0, 2),
            available=rng.random() < availability,
            owned=rng.random() < 0.3,
            service={
                model(): ServiceEstimate(
                    rng.choice((50.0, 400.0, rng.uniform(0, 1_000))),
                    rng.choice((1.0, 5.0, rng.uniform(0, 20))),
                    rng.choice((0.0, 0.2, rng.uniform(0, 1.5))),
                    success_lower=rng.random(),
                    p90_factor=rng.choice((1.0, rng.uniform(0.5, 3.0))),
                )
            },
        )
        for n in range(number)
    ]


_ASKED = [
    request(n, memory_mb=memory_mb, tokens_mean=tokens, tokens_sigma=sigma)
    for n, (memory_mb, tokens, sigma) in enumerate(
        (memory_mb, tokens, sigma)
        for memory_mb in (0, 1_500, 3_000)
        for tokens in (0.0, 20.0, 1_500.0)
        for sigma in (0.0, 0.6)
    )
]


def _least(workers, one, suits=lambda _: True) -> float:
    fitting = (w for w in workers if w.memory_mb >= one.memory_mb and suits(w))
    return min((max(1.0, p90_of(w.service[model()], one)) for w in fitting), default=np.inf)


@given(_crowds())
@settings(max_examples=60, deadline=None)
def test_facts_are_those_of_a_look_at_every_worker(crowd):
    table, pool, cells = PendingTable(), WorkerTable(), Cells()
    table.add(_ASKED)
    pool.put(crowd)
    pool.settle()
    cells.settle(table, pool)
    open_ = pool.available & (pool.in_flight < pool.slots)
    open_seats = np.flatnonzero(open_[pool.all_seats.rank])
    free = [w for w in crowd if w.available and w.in_flight < w.slots]
    for slot in table.order().tolist():
        one, cell = table.request[slot], int(table.cell[slot])
        fitting = [w for w in crowd if w.memory_mb >= one.memory_mb]
        if not fitting:
            assert cell < 0
            continue
        assert cells.registered[cell] == len(fitting)
        assert cells.available[cell] == sum(w.available for w in fitting)
        assert cells.available_slots[cell] == sum(w.slots for w in fitting if w.available)
        for suits, fact in (
            (lambda _: True, cells.p90_ms),
            (lambda w: w.owned, cells.owned_p90_ms),
            (lambda w: w.available, cells.available_p90_ms),
            (lambda w: w.available and w.owned, cells.available_owned_p90_ms),
        ):
            np.testing.assert_allclose(fact[cell], _least(crowd, one, suits), rtol=1e-12)
        any_open, own_open = least_p90(
            cells, np.array([cell]), np.zeros(len(cells), np.int64), pool, open_seats
        )
        np.testing.assert_allclose(any_open[0], _least(free, one), rtol=1e-12)
        owned = _least(free, one, lambda w: w.owned)
        np.testing.assert_allclose(own_open[0], owned, rtol=1e-12)


@given(_crowds())
@settings(max_examples=30, deadline=None)
def test_the_quickest_available_worker_tells_mean_and_success(crowd):
    table, pool, cells = PendingTable(), WorkerTable(), Cells()
    table.add(_ASKED)
    pool.put(crowd)
    pool.settle()
    cells.settle(table, pool)
    for slot in table.order().tolist():
        one, cell = table.request[slot], int(table.cell[slot])
        fitting = [w for w in crowd if w.memory_mb >= one.memory_mb]
        if not fitting:
            continue
        chosen = [w for w in fitting if w.available] or fitting
        kind = table.kind[slot : slot + 1]
        tokens = 0.0 if one.tokens_mean == 0 else 2 ** (np.ceil(8 * np.log2(one.tokens_mean)) / 8)
        assert len(kind) == 1
        means = {
            w.id: max(1.0, w.service[model()].base_ms + w.service[model()].per_token_ms * tokens)
            for w in chosen
        }
        least = min(means.values())
        np.testing.assert_allclose(cells.service_ms[cell], least, atol=1e-3)
        assert cells.success_lower[cell] in {
            w.service[model()].success_lower for w in chosen if means[w.id] <= least + 1e-3
        }


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_facts_that_were_kept_are_those_of_a_new_look(data: st.DataObject):
    crowd = data.draw(_crowds())
    table, pool, cells = PendingTable(), WorkerTable(), Cells()
    table.add(_ASKED[:6])
    pool.put(crowd)
    pool.settle()
    cells.settle(table, pool)
    for _ in range(3):
        others = data.draw(_crowds())
        some = data.draw(st.sets(st.integers(0, len(crowd) - 1), max_size=4))
        for n in some & set(range(len(others))):
            crowd[n] = replace(others[n], memory_mb=crowd[n].memory_mb)
        asked = data.draw(st.lists(st.sampled_from(_ASKED), min_size=1, unique_by=id))
        table.remove([one.key for one in _ASKED])
        table.add(asked)
        pool.put(crowd)
        pool.settle()
        cells.settle(table, pool)
        anew, new_cells = WorkerTable(), Cells()
        new_table = PendingTable()
        new_table.add(asked)
        anew.put(crowd)
        anew.settle()
        new_cells.settle(new_table, anew)
        kept, new = table.cell[table.order()], new_table.cell[new_table.order()]
        np.testing.assert_array_equal(kept < 0, new < 0)
        served = kept >= 0
        for name in FACTS:
            np.testing.assert_array_equal(
                getattr(cells, name)[kept[served]], getattr(new_cells, name)[new[served]], name
            )


def test_one_whose_p90_is_measured_to_be_near_its_mean_decides_on_the_p90():
    erratic = ServiceEstimate(1_000.0, p90_factor=3.0)
    steady = ServiceEstimate(1_001.0, p90_factor=1.0)
    crowd = [worker(n, service={model(): erratic}) for n in range(80)]
    table, pool, cells = PendingTable(), WorkerTable(), Cells()
    table.add([request(1)])
    pool.put([*crowd, worker(80, service={model(): steady})])
    pool.settle()
    cells.settle(table, pool)
    assert cells.p90_ms[table.cell[table.order()]] == [1_001.0]
