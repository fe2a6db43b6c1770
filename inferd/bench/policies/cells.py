"""The worlds that policies are compared in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler.simulation.scenario import GWEI, Setting
from scheduler.simulation.workers import POOLS
from scheduler.simulation.workload import Demand

LOW_FEE_WEI = 2_000 * GWEI
"""Less than a post of one result costs at 0.05 gwei, which is 3,225 gwei."""
TARGET_LOADS = (0.8, 1.5, 3.0)


class Fees(StrEnum):
    """Which base fees a world has."""

    RECORDED = "recorded"
    """Those of the file that was given, else drawn ones."""
    SPIKES = "spikes"
    """Drawn ones: in every twentieth block some eight full blocks begin."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A setting, and how it counts."""

    setting: Setting
    fees: Fees = Fees.RECORDED
    target: bool = False
    """Whether the target of the value is judged on it."""
    defaults: bool = True
    """Whether its settings are the daemon's own: no other is judged on anything."""
    lengths: bool = False
    """Whether lengths are predicted from those that were seen, not given with each request."""

    @property
    def name(self) -> str:
        return self.setting.name


def all_cells(requests: int) -> tuple[Cell, ...]:
    """The target cells (equal workers, lengths given, loads from 0.8 to 3), then the harder ones.

    Each of the harder ones differs from load 1.5 or from load 3 in one thing. `requests` is their
    number at load 1: all worlds are of the same length.
    """

    def equal(load: float) -> Setting:
        number = round(requests * load)
        return Setting(f"load {load:g}", Demand(load=load), POOLS["equal"], requests=number)

    middle, heavy = equal(1.5), equal(3.0)

    def asked(name: str, demand: Demand) -> Cell:
        return Cell(replace(middle, name=name, demand=demand))

    target = [Cell(equal(load), target=True) for load in TARGET_LOADS]
    pools = [
        Cell(replace(middle, name=f"{name} workers", pool=pool))
        for name, pool in POOLS.items()
        if name != "equal"
    ]
    blocks = [
        Cell(replace(middle, name=f"{block_ms / 1000:g} s blocks", block_ms=block_ms))
        for block_ms in (2_000, 250)
    ]
    spikes = Cell(replace(middle, name="base fee spikes"), Fees.SPIKES)
    others = [
        replace(asked("lengths learnt", Demand(load=1.5)), lengths=True),
        asked("low fees", Demand(load=1.5, fee_median_wei=LOW_FEE_WEI)),
        asked("lengths vague", Demand(load=1.5, tokens_sigma=0.5)),
        asked("three models", Demand(load=1.5, models=3)),
    ]
    loaded = [
        Cell(replace(heavy, name="load 3, 2 s blocks", block_ms=2_000)),
        Cell(
            replace(heavy, name="load 3, wait 60 s", rules=replace(heavy.rules, max_wait_s=60)),
            defaults=False,
        ),
    ]
    return (*target, *pools, *blocks, spikes, *others, *loaded)
