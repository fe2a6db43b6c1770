"""What a fee has to cover in rounds on real tables, where the base fee is volatile."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from indexer.database import Connection, Pool
from inferd.node.base_fee_rises import BaseFeeRises
from inferd.node.snapshot import RoundInputs
from inferd.node.views import one_request
from inferd.node.why import why
from scheduler.policies import policy_named
from scheduler.replay import replayed
from tests.node.house import House, house
from tests.node.test_recorded import recorded

__all__ = ["house"]

GWEI = 10**9
POST_GAS = 64_500  # of the house's gas model, for one result of one worker


async def blocks(pool: Pool, *fees_gwei: int, first: int = 1) -> None:
    """Indexed blocks of 12 s."""
    await pool.execute(
        "INSERT INTO chain.block SELECT $1 + n, '', '', 1700000000 + 12 * ($1 + n), fee, 1, 1"
        " FROM unnest($2::numeric[]) WITH ORDINALITY AS fees (fee, n)",
        first - 1,
        [fee * GWEI for fee in fees_gwei],
    )


def measuring(house: House, **changes: float) -> None:
    """From now on rounds measure the base fee; `changes` are of the rules."""
    before, rises = house.rounds.inputs, BaseFeeRises()

    async def inputs(connection: Connection) -> RoundInputs:
        found = await before(connection)
        measured = await rises.quantiles_ppm(connection, 0.9)
        rules = replace(found.rules, base_fee_quantiles_ppm=measured, **changes)
        return replace(found, rules=rules)

    house.rounds.inputs = inputs


async def test_a_long_way_to_the_post_takes_a_margin_for_what_the_base_fee_does_meanwhile(
    house: House,
) -> None:
    await blocks(house.db, *([1] * 20 + [3] * 20) * 6)
    measuring(house, inclusion_s=360.0)
    house.rounds.record_up_to = 100
    await house.request(1, fee_wei=2 * POST_GAS * GWEI)
    await house.request(2, fee_wei=3 * POST_GAS * GWEI)
    decided = await house.rounds.round()
    assert await house.decisions(1) == [("keep", "gas_too_dear_now")]
    assert await house.decisions(2) == [("assign", "assigned")]

    async with house.db.acquire() as connection:
        view = await one_request(connection, {}, 1)
    assert view is not None
    told = why(view)
    assert "(3 times its share of the post's gas, within 31 blocks)" in told.sentence
    assert (told.numbers["margin_ppm"], told.numbers["horizon_blocks"]) == ("3000000", "31")

    seen = await recorded(house)
    for one in (*decided.assigned, *decided.kept):
        assert replayed(seen, policy_named(seen.policy), one.key) == one


async def test_a_short_way_takes_what_the_rule_allows_within_it(house: House) -> None:
    await blocks(house.db, *([1] * 4 + [3] * 4) * 30)
    measuring(house, gas_margin=1.0)
    await house.request(1, fee_wei=142 * POST_GAS * GWEI // 100)
    await house.request(2, fee_wei=143 * POST_GAS * GWEI // 100)
    await house.rounds.round()
    assert await house.decisions(1) == [("keep", "gas_too_dear_now")]
    assert await house.decisions(2) == [("assign", "assigned")], "1.125^3 = 1.424"


async def test_without_enough_blocks_the_floor_stands_alone(house: House) -> None:
    await blocks(house.db, *[1, 3] * 15)
    measuring(house, inclusion_s=360.0)
    await house.request(1, fee_wei=2 * POST_GAS * GWEI)
    await house.rounds.round()
    assert await house.decisions(1) == [("assign", "assigned")]


async def test_it_is_measured_anew_after_some_blocks_and_where_the_level_changes(
    pool: Pool,
) -> None:
    rises = BaseFeeRises()
    async with pool.acquire() as connection:
        measured = partial(rises.quantiles_ppm, connection)
        assert await measured(0.9) == ()
        await blocks(pool, *[1] * 40)
        calm = await measured(0.9)
        assert set(calm) == {1_000_000}
        await blocks(pool, *[2] * 7, first=41)
        assert await measured(0.9) == calm
        assert (await measured(0.999))[0] == 2_000_000
        assert (await measured(0.9))[6] == 2_000_000
        before = await measured(0.9)
        await blocks(pool, *[4] * 8, first=48)
        assert await measured(0.9) != before


@pytest.mark.parametrize("gap", [60, 100])
async def test_blocks_before_a_gap_are_left_out(pool: Pool, gap: int) -> None:
    await blocks(pool, *[9] * 50)
    await blocks(pool, *[1] * 40, first=gap)
    async with pool.acquire() as connection:
        assert set(await BaseFeeRises().quantiles_ppm(connection, 0.999)) == {1_000_000}
