"""What the comparison says: each policy's figures, paired differences, and whether targets hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from inferd.bench.policies.errors import PolicyTargetMissed
from inferd.bench.policies.run import Measured
from scheduler.policies import DEFAULT
from scheduler.simulation.figures import Figures, Quantiles, bootstrap, paired

BASELINE = "weighted-raw"
VALUE_TARGET = 0.97
"""Of value / bound, in each target cell."""
PAIRED_TARGET = -0.01
"""Of the lower end of the interval of value ratio - the baseline's, in every judged cell."""

LOSS = 0.001
"""Of value / bound: less is no loss worth a line."""

_MEANS = (
    "value_ratio",
    "operator_ratio",
    "on_time",
    "jain",
    "gas_per_result",
    "rounds",
)
_TOTALS = (
    "posts",
    "losing_posts",
    "late",
    "not_posted",
    "failed_leases",
    "negative_slack",
    "fallbacks",
)
_STAGES = ("queue", "run", "post")


def report(measured: Sequence[Measured], source: Mapping[str, Any]) -> dict[str, Any]:
    """The whole, for programs. A policy's own figures are over the target cells, all seeds."""
    target = [one for one in measured if one.cell.target]
    policies = {}
    for name in measured[0].figures:
        policies[name] = _summary(target, name) | {
            "cells": {cell.cell.name: _summary([cell], name) for cell in measured}
        }
    found: dict[str, Any] = {
        **source,
        "default": DEFAULT.name,
        "cells": [
            {
                "name": one.cell.name,
                "target": one.cell.target,
                "judged": one.cell.defaults,
                "seeds": one.seeds,
                "requests": one.cell.setting.requests,
                "load": one.cell.setting.demand.load,
                "block_s": one.cell.setting.block_ms / 1000,
                "told_value_ratio": fmean(each.value_ratio for each in one.told),
                "bound_variables": one.variables,
                "bound_constraints": one.constraints,
            }
            for one in measured
        ],
        "policies": policies,
        "default_loses": _losses(measured),
    }
    found["targets"] = _targets(found)
    return found


def check_targets(found: Mapping[str, Any]) -> None:
    """Raises PolicyTargetMissed, with every target that does not hold."""
    missed = [
        f"{target['what']}: {target['worst']:.4g} in {target['where']!r}"
        for target in found["targets"]
        if not target["met"]
    ]
    if missed:
        raise PolicyTargetMissed(
            f"{found['default']} misses its targets: {'; '.join(missed)}",
            help_text="see the table for the cells; more seeds narrow the intervals",
        )


def _summary(cells: Sequence[Measured], name: str) -> dict[str, Any]:
    """Over the seeds of one cell, or of several with the same seeds."""
    ours = [one for cell in cells for one in cell.figures[name]]
    ratios, baseline = _ratios(cells, name), _ratios(cells, BASELINE)
    ratio = bootstrap(ratios)
    return (
        {name: fmean(getattr(one, name) for one in ours) for name in _MEANS}
        | {"value_ratio_low": ratio.low, "value_ratio_high": ratio.high}
        | {f"{stage}_s": _quantiles(ours, stage) for stage in _STAGES}
        | {"max_wait_s": max(one.max_wait_s for one in ours)}
        | {name: sum(getattr(one, name) for one in ours) for name in _TOTALS}
        | {"vs_weighted_raw": asdict(paired(ratios, baseline))}
    )


def _ratios(cells: Sequence[Measured], name: str) -> list[float]:
    """By seed, the mean over the cells: what differs between cells is no chance."""
    by_seed = zip(*(cell.figures[name] for cell in cells), strict=True)
    return [fmean(one.value_ratio for one in figures) for figures in by_seed]


def _quantiles(ours: Sequence[Figures], stage: str) -> dict[str, float]:
    """The mean over the seeds of each quantile."""
    found: list[Quantiles] = [getattr(one, stage) for one in ours]
    return {
        "p50": fmean(one.p50_s for one in found),
        "p95": fmean(one.p95_s for one in found),
        "p99": fmean(one.p99_s for one in found),
    }


def _losses(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Where another policy surely earns more than the default, by `LOSS` at least."""
    losses = []
    for one in measured:
        ours = _ratios([one], DEFAULT.name)
        for name in one.figures:
            difference = paired(_ratios([one], name), ours)
            if difference.low > 0.0 and difference.mean >= LOSS:
                losses.append({"cell": one.cell.name, "policy": name, **asdict(difference)})
    return sorted(losses, key=lambda loss: -loss["mean"])


def _targets(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    ours: Mapping[str, Any] = found["policies"][found["default"]]["cells"]
    target = [cell["name"] for cell in found["cells"] if cell["target"]]

    def judge(
        what: str,
        cells: Sequence[str],
        of: Callable[[Mapping[str, Any]], float],
        least: float,
    ) -> dict[str, Any]:
        where = min(cells, key=lambda cell: of(ours[cell]))
        worst = of(ours[where])
        return {"what": what, "worst": worst, "where": where, "met": worst >= least}

    everywhere = [cell["name"] for cell in found["cells"] if cell["judged"]]
    return [
        judge(
            f"value / bound at least {VALUE_TARGET}",
            target,
            lambda cell: cell["value_ratio"],
            VALUE_TARGET,
        ),
        judge(
            f"lower end of the difference to {BASELINE} above {PAIRED_TARGET}",
            everywhere,
            lambda cell: cell["vs_weighted_raw"]["low"],
            PAIRED_TARGET,
        ),
        judge(
            "no dispatch with negative slack (count, negated)",
            everywhere,
            lambda cell: -cell["negative_slack"],
            0,
        ),
        judge(
            "no post at a loss (count, negated)",
            everywhere,
            lambda cell: -cell["losing_posts"],
            0,
        ),
    ]
