"""How the level of gas prices wanders from hour to hour."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HOURLY_COLUMN = "avg_gas_price_gwei"
_FEWEST_HOURS = 48
_LARGEST_SLOPE = 0.999


@dataclass(frozen=True, slots=True)
class _State:
    """One state's law: next deviation = intercept + slope * deviation + sd * normal."""

    intercept: float
    slope: float
    sd: float


@dataclass(frozen=True, slots=True)
class Regime:
    """A threshold autoregression of hourly log prices (Tong, "Threshold Models", 1983).

    Deviations are of the logarithm of an hour's price from its median. Cheap hours, below it, and
    dear ones each have a law of their own by which the next hour follows.
    """

    cheap: _State
    dear: _State

    def draw(self, rng: np.random.Generator, hours: NDArray[np.float64]) -> NDArray[np.float64]:
        """The deviation at each of these times in hours, ascending from 0: 0 at first, then one an
        hour, linear between."""
        whole = int(np.ceil(hours[-1])) + 1 if len(hours) else 0
        noise = rng.normal(size=whole)
        deviations = [0.0]
        for shock in noise:
            state = self.dear if deviations[-1] >= 0.0 else self.cheap
            deviations.append(
                state.intercept + state.slope * deviations[-1] + state.sd * float(shock)
            )
        return np.interp(hours, np.arange(len(deviations)), deviations)


def read_hourly(lines: Iterable[str]) -> list[float]:
    """Hourly gas prices in gwei from the lines of a CSV file, in order.

    Raises ValueError, in one line, where the column is missing or a value is no positive number.
    """
    reader = csv.DictReader(lines)
    if HOURLY_COLUMN not in (reader.fieldnames or ()):
        raise ValueError(f"an hourly series needs the column {HOURLY_COLUMN}")
    prices = []
    for row in reader:
        try:
            price = float(row[HOURLY_COLUMN])
        except (TypeError, ValueError):
            price = 0.0
        if not 0.0 < price < float("inf"):
            raise ValueError(f"line {reader.line_num} of the hourly series has no positive price")
        prices.append(price)
    return prices


def fit_regime(prices_gwei: Sequence[float]) -> Regime:
    """Each state's law by least squares on the hours that follow one of it.

    Raises ValueError with fewer than 48 hours, or where a state has too few to fit a line to.
    """
    if len(prices_gwei) < _FEWEST_HOURS:
        raise ValueError(f"an hourly series needs at least {_FEWEST_HOURS} hours")
    logs = np.log(np.array(prices_gwei, dtype=float))
    deviations = logs - np.median(logs)
    before, after = deviations[:-1], deviations[1:]
    return Regime(_fit(before, after, before < 0.0), _fit(before, after, before >= 0.0))


def _fit(
    before: NDArray[np.float64], after: NDArray[np.float64], chosen: NDArray[np.bool_]
) -> _State:
    x, y = before[chosen], after[chosen]
    if len(np.unique(x)) < 3:
        raise ValueError("the prices of an hourly series hardly differ")
    slope = float(np.clip(np.cov(x, y)[0, 1] / np.var(x, ddof=1), -_LARGEST_SLOPE, _LARGEST_SLOPE))
    intercept = float(y.mean() - slope * x.mean())
    return _State(intercept, slope, float(np.std(y - intercept - slope * x)))
