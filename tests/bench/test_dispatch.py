"""The benchmark of dispatch dispatches: what it times are whole jobs."""

from __future__ import annotations

import pytest

from indexer.database import Pool
from inferd.bench.dispatch.measure import Bench, slope


async def test_every_job_is_ended_written_counted_and_acknowledged(pool: Pool) -> None:
    bench = Bench(pool, workers=5)
    told: list[str] = []
    figures = await bench.run(400, 100, told.append)
    assert figures.jobs == 400
    assert len(told) == 4
    assert figures.dispatch_us > figures.reference_us > 0
    assert figures.ratio > 1
    states = await pool.fetch("SELECT state, count(*) FROM node.lease GROUP BY 1")
    ended = {row["state"]: row["count"] for row in states}
    assert sum(ended.values()) == 400
    assert set(ended) <= {"done", "failed"}, "failed are those turned down as busy"
    results = await pool.fetchval("SELECT count(*) FROM node.result")
    good = await pool.fetchval("SELECT sum(good) FROM node.reputation")
    assert results == good == ended["done"] == sum(one.told for one in bench.workers)
    assert ended["done"] > 350


class Hoards(Bench):
    """Keeps a few bytes of each job."""

    def __init__(self, db: Pool) -> None:
        super().__init__(db, workers=5)
        self.hoard: list[bytes] = []

    def _on_change(self, outcome: str) -> None:
        self.hoard.append(bytes(40))
        super()._on_change(outcome)


async def test_a_job_leaves_nothing_behind(pool: Pool) -> None:
    figures = await Bench(pool, workers=5).run(2_000, 200, lambda _: None)
    assert figures.bytes_per_job < 100
    assert figures.objects_per_job < 0.5


async def test_what_a_job_leaves_behind_is_seen(pool: Pool) -> None:
    figures = await Hoards(pool).run(1_000, 200, lambda _: None)
    assert figures.objects_per_job > 0.9


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], 0.0),
        ([(1, 5)], 0.0),
        ([(1, 5), (2, 7), (3, 9)], 2.0),
        ([(n, 3 * n + 1_000 * (n > 1)) for n in range(20)], 3.0),
    ],
)
def test_a_table_that_grows_once_is_no_slope(
    points: list[tuple[float, float]], expected: float
) -> None:
    assert slope(points) == expected
