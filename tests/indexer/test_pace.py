"""How long a backfill still takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexer.database import Pool
from indexer.pace import Pace
from tests.indexer.world import World


def test_nothing_is_said_before_there_is_a_speed() -> None:
    pace = Pace()
    assert pace.left_s(100) is None
    pace.reached(10, 0.0)
    assert pace.left_s(100) is None
    pace.reached(10, 1.0)
    assert pace.left_s(100) is None


@given(st.integers(1, 1_000), st.integers(1, 60), st.integers(0, 10**9))
def test_at_a_steady_speed_it_is_exact(blocks_per_s: int, seconds: int, left: int) -> None:
    pace = Pace()
    for second in range(seconds + 1):
        pace.reached(second * blocks_per_s, float(second))
    left_s = pace.left_s(seconds * blocks_per_s + left)
    assert left_s is not None
    assert abs(left_s - left / blocks_per_s) <= 1e-9 * left + 1e-9


def test_what_was_slow_long_ago_does_not_count() -> None:
    pace = Pace()
    pace.reached(0, 0.0)
    pace.reached(10, 100.0)
    for second in range(1, 60):
        pace.reached(10 + 100 * second, 100.0 + second)
    assert pace.left_s(10 + 100 * 59 + 1_000) == 10.0


def test_a_target_that_is_reached_takes_no_time() -> None:
    pace = Pace()
    pace.reached(0, 0.0)
    pace.reached(50, 1.0)
    assert pace.left_s(40) == 0.0


async def test_backfill__says_how_long_it_takes__and_nothing_at_the_head(
    world: World, pool: Pool
) -> None:
    await world.mine(500)
    indexer = world.indexer(pool)
    await indexer.prepare()
    said = []
    while await indexer._step():
        said.append(indexer.status.left_s)
    await indexer._ranges.close()
    assert any(left_s is not None and left_s > 0 for left_s in said)
    assert said[-1] is None
