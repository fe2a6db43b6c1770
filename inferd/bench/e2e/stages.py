"""How long each stage of a request's way took: pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

STAGES = ("indexed", "leased", "computed", "posted", "mined")
"""What each stage ends with; the first begins when the request is sent."""


class Moment(NamedTuple):
    """When something was the case."""

    at_s: float
    """Seconds since the epoch."""
    height: int
    """The newest block by then, or the one in which it happened."""


Way = Sequence[Moment]
"""A request's moments: sent, and the end of each stage."""


def stage_figures(ways: Sequence[Way]) -> dict[str, dict[str, float]]:
    """Percentiles of each stage in ms and in blocks, and of the whole way."""
    found = {
        stage: _figures([tuple(pairwise(way))[number] for way in ways])
        for number, stage in enumerate(STAGES)
    }
    return {**found, "whole": _figures([(way[0], way[-1]) for way in ways])}


def _figures(spans: Iterable[tuple[Moment, Moment]]) -> dict[str, float]:
    """Notifications and polls cross on their way: what seems to end before it begins took no
    time."""
    ends = list(spans)
    took_ms = [max(0.0, 1000 * (end.at_s - start.at_s)) for start, end in ends]
    blocks = [max(0, end.height - start.height) for start, end in ends]
    return {
        f"p{percent}_{unit}": round(percentile(values, percent / 100), 1)
        for unit, values in (("ms", took_ms), ("blocks", blocks))
        for percent in (50, 95, 99)
    }


def percentile(values: Sequence[float], share: float) -> float:
    """What a share of the values, 0 to 1, is within: an observed one; 0.0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def sustained_per_s(
    results: Mapping[int, int], when_s: Mapping[int, float], until_s: float
) -> float:
    """Results per second, by their number in each block, from the first block with one to the last
    that was there by `until_s`, which is when nothing more was sent.

    The results of the first block were made before the time begins. 0.0 where there are no two
    such blocks.
    """
    blocks = sorted(block for block in results if when_s[block] <= until_s)
    if len(blocks) < 2:
        return 0.0
    took_s = when_s[blocks[-1]] - when_s[blocks[0]]
    return sum(results[block] for block in blocks[1:]) / took_s
