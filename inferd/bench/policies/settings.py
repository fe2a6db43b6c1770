"""The worlds that policies are compared in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler.simulation.scenario import Setting
from scheduler.simulation.workers import POOLS
from scheduler.simulation.workload import Demand

TARGET_LOADS = (0.8, 1.5, 3.0)


class Fees(StrEnum):
    """Which base fees a world has."""

    GIVEN = "given"
    """Those of the file that was given, else generated ones."""
    SPIKES = "spikes"
    """Generated ones, with spikes."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A setting, and how it counts."""

    setting: Setting
    fees: Fees = Fees.GIVEN
    target: bool = False
    """Whether the targets are judged on it."""


def cells(requests: int) -> tuple[Cell, ...]:
    """The target cells (equal workers, lengths known, loads from 0.8 to 3), then the harder ones.

    Each of the harder ones differs from load 1.5 in one thing.
    """
    middle = Setting("load 1.5", Demand(load=1.5), POOLS["equal"], requests=requests)
    target = [
        Cell(replace(middle, name=f"load {load:g}", demand=Demand(load=load)), target=True)
        for load in TARGET_LOADS
    ]
    pools = [
        Cell(replace(middle, name=f"{name} workers", pool=pool))
        for name, pool in POOLS.items()
        if name != "equal"
    ]
    blocks = [
        Cell(replace(middle, name=f"{block_ms / 1000:g} s blocks", block_ms=block_ms))
        for block_ms in (2_000, 250)
    ]
    others = [
        Cell(replace(middle, name="base fee spikes"), fees=Fees.SPIKES),
        Cell(replace(middle, name="lengths vague", demand=Demand(load=1.5, tokens_sigma=0.5))),
        Cell(replace(middle, name="three models", demand=Demand(load=1.5, models=3))),
    ]
    return (*target, *pools, *blocks, *others)


def named(found: Sequence[Cell]) -> list[str]:
    """The cells' names, in order."""
    return [cell.setting.name for cell in found]
