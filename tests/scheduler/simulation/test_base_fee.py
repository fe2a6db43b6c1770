"""Series of base fees: what is read, what is drawn, and that both obey the rule."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.gas import next_base_fee
from scheduler.simulation.base_fee import BaseFeeSeries, draw_series, read_series
from scheduler.simulation.regime import Regime, fit_regime, read_hourly

GWEI = 10**9
HEAD = "number,timestamp,base_fee_per_gas_wei,gas_used,gas_limit,avg_priority_fee_wei"
ROWS = (
    "100,1000,1000000000,60000000,60000000,5",
    "101,1012,1125000000,15000000,60000000,5",
    "102,1036,1054687500,30000000,60000000,5",
    "103,1048,1054687500,30000000,60000000,5",
)


def _correlation(values, lag=1) -> float:
    return float(np.corrcoef(values[:-lag], values[lag:])[0, 1])


def _hours(number=400, seed=3) -> list[float]:
    """Cheap hours are calm, dear ones wild and soon over."""
    rng = np.random.default_rng(seed)
    logs = [0.0]
    for _ in range(number - 1):
        dear = logs[-1] >= 0.0
        slope, sd = (0.5, 0.6) if dear else (0.9, 0.2)
        logs.append(slope * logs[-1] + sd * float(rng.normal()))
    return [20.0 * float(np.exp(log)) for log in logs]


def test_a_recorded_series_is_read_by_the_names_of_its_columns():
    series = read_series([HEAD, *ROWS])
    assert series.base_fees_wei == (10**9, 1_125_000_000, 1_054_687_500, 1_054_687_500)
    assert series.gas_used == (60_000_000, 15_000_000, 30_000_000, 30_000_000)
    assert (len(series), series.interval_s) == (4, 12.0)
    assert list(series.fullness) == [1.0, 0.25, 0.5, 0.5]
    turned = [",".join(reversed(line.split(","))) for line in (HEAD, *ROWS)]
    assert read_series(turned) == series


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([], "needs the columns number, timestamp"),
        (["number,timestamp,base_fee_per_gas_wei,gas_used", *ROWS], "needs the columns gas_limit"),
        ([HEAD, ROWS[0]], "at least two blocks"),
        ([HEAD, ROWS[0], ROWS[2]], "block 102 follows block 100"),
        ([HEAD, ROWS[0], "101,1012,,1,2,3"], "line 3 of the series: invalid literal"),
        ([HEAD, ROWS[0], "101,1012"], "line 3 of the series"),
        ([HEAD, ROWS[0], "101,1012,7,3,2,1"], "gas used 3 and gas limit 2 are of no block"),
    ],
)
def test_what_is_no_series_is_refused_in_one_line(lines, wrong):
    with pytest.raises(ValueError, match=wrong) as error:
        read_series(lines)
    assert "\n" not in str(error.value)


@given(
    st.integers(0, 2**32),
    st.integers(2, 300),
    st.sampled_from([0, 1, 7, GWEI, 10**15]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.1]),
)
@settings(max_examples=60, deadline=None)
def test_every_drawn_series_obeys_the_rule(seed, blocks, start_wei, bootstraps, wanders, spikes):
    record = draw_series(1, 40, start_wei=GWEI) if bootstraps else None
    regime = fit_regime(_hours(60)) if wanders else None

    def draw() -> BaseFeeSeries:
        return draw_series(
            seed,
            blocks,
            start_wei=start_wei,
            record=record,
            regime=regime,
            spikes_per_block=spikes,
        )

    series = draw()
    assert len(series) == len(series.gas_used) == len(series.gas_limits) == blocks
    transitions = zip(series.base_fees_wei, series.gas_used, series.gas_limits, strict=True)
    predicted = [next_base_fee(*block) for block in transitions]
    assert tuple(predicted[:-1]) == series.base_fees_wei[1:]
    assert all(fee_wei > 0 for fee_wei in series.base_fees_wei)
    assert draw() == series


@pytest.mark.parametrize("bootstraps", [False, True])
def test_drawn_series_have_the_statistics_of_the_record(bootstraps):
    """Of fullness: mean 0.506, standard deviation 0.22, correlation -0.22 with the block before;
    of fees: less than half the variance over ten blocks that independent steps would give."""
    record = draw_series(99, 1_000, start_wei=GWEI) if bootstraps else None
    for seed in range(3):
        series = draw_series(seed, 4_000, start_wei=GWEI, record=record)
        fullness = series.fullness
        assert fullness.mean() == pytest.approx(0.506, abs=0.02)
        assert fullness.std() == pytest.approx(0.22, abs=0.02)
        assert -0.30 < _correlation(fullness) < -0.15
        fees = np.array(series.base_fees_wei, dtype=float)
        ratios = fees[1:] / fees[:-1]
        assert 0.875 - 1e-6 <= ratios.min() < 0.9
        assert 1.1 < ratios.max() <= 1.125 + 1e-6
        steps = np.diff(np.log(fees))
        tens = np.log(fees[10:]) - np.log(fees[:-10])
        assert 0.3 < tens.var() / (10 * steps.var()) < 0.55


def test_a_bootstrap_keeps_runs_of_the_record():
    """Of a record that alternates, so does what is drawn, but where two runs meet."""
    record = BaseFeeSeries((7,) * 100, (18, 42) * 50, (60,) * 100, 12.0)
    series = draw_series(5, 500, start_wei=2**200, record=record)
    full = [share > 0.5 for share in series.fullness]
    assert sum(one == other for one, other in pairwise(full)) <= 500 // 25


def test_spikes_fill_blocks_and_fees_come_back():
    calm = draw_series(11, 2_000, start_wei=GWEI)
    wild = draw_series(11, 2_000, start_wei=GWEI, spikes_per_block=0.005)
    assert max(calm.base_fees_wei) < 3 * GWEI < max(wild.base_fees_wei)
    full = np.convolve(wild.fullness == 1.0, np.ones(5), "valid")
    assert full.max() == 5
    assert np.median(wild.base_fees_wei) < 2 * GWEI


def test_the_level_follows_the_hours():
    """Hours that are far apart make levels that are; without them the level stays."""
    regime = fit_regime(_hours())
    logs = [
        np.log(draw_series(seed, 3_000, start_wei=GWEI, regime=with_hours).base_fees_wei).std()
        for with_hours in (None, regime)
        for seed in range(4)
    ]
    assert min(logs[4:]) > max(logs[:4])


def test_each_state_gets_its_own_law():
    # The median is above the threshold that the hours were drawn with, so the states mix a little.
    regime = fit_regime(_hours(20_000))
    assert 0.8 < regime.cheap.slope < 1.0
    assert 0.4 < regime.dear.slope < 0.6
    assert regime.dear.sd > 1.4 * regime.cheap.sd > 0.25
    hours = regime.draw(np.random.default_rng(1), np.arange(5_000.0))
    assert hours[0] == 0.0
    dear, cheap = hours[hours >= 0.0], hours[hours < 0.0]
    assert dear.std() > cheap.std()
    between = regime.draw(np.random.default_rng(1), np.array([0.0, 0.5, 1.0]))
    assert between[1] == pytest.approx(between[2] / 2)
    assert len(regime.draw(np.random.default_rng(1), np.array([]))) == 0


def test_hourly_prices_are_read():
    lines = ["hour_index,date,avg_gas_price_gwei", "0,2022/4/26 13:00,46.67", "1,x,78.15"]
    assert read_hourly(lines) == [46.67, 78.15]


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([], "needs the column avg_gas_price_gwei"),
        (["avg_gas_price_gwei", "1.0", "0"], "line 3 of the hourly series has no positive price"),
        (["avg_gas_price_gwei", "x"], "line 2 of the hourly series"),
        (["avg_gas_price_gwei", "inf"], "line 2 of the hourly series"),
        (["a,avg_gas_price_gwei", "1"], "line 2 of the hourly series"),
    ],
)
def test_what_are_no_hourly_prices_is_refused(lines, wrong):
    with pytest.raises(ValueError, match=wrong):
        read_hourly(lines)


def test_too_few_or_equal_hours_make_no_regime():
    with pytest.raises(ValueError, match="at least 48 hours"):
        fit_regime([1.0] * 47)
    with pytest.raises(ValueError, match="hardly differ"):
        fit_regime([1.0] * 48)
    assert isinstance(fit_regime(_hours(48)), Regime)
