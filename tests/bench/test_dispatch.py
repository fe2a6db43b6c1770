"""The benchmark of dispatch dispatches: what it times are whole jobs."""

from __future__ import annotations

from indexer.database import Pool
from inferd.bench.dispatch.measure import Bench


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
