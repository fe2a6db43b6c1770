"""Packages with policies, good and hostile, made where a test wants them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from scheduler.policies import LoadsView, OrderView, SeatsView

HOSTILE = '''
import os
import sys
import time

import numpy as np


class Good:
    name, version, sampled = "good", "7", 0

    def scores(self, view):
        return view.fee_wei

    def work(self, seats):
        return seats.mean_ms

    def load(self, workers, used):
        return (used + 1.0) / workers.slots


class Raises(Good):
    def scores(self, view):
        raise RuntimeError("no idea\\nat all")


class RaisesBytes(Good):
    def scores(self, view):
        raise RuntimeError("no header: \\0 \\ud800")


class OddVersion(Good):
    version = "7\\0\\ud800"


class RaisesOnWork(Good):
    def work(self, seats):
        raise RuntimeError("no seat pleases me")


class Loops(Good):
    def scores(self, view):
        while True:
            pass


class LoopsOnLoad(Good):
    def load(self, workers, used):
        while True:
            pass


class Sleeps(Good):
    def scores(self, view):
        time.sleep(3600)


class Exits(Good):
    def scores(self, view):
        os._exit(3)


class Short(Good):
    def scores(self, view):
        return view.fee_wei[1:]


class Nans(Good):
    def scores(self, view):
        return view.fee_wei * np.nan


class Words(Good):
    def scores(self, view):
        return ["a"] * len(view)


class Empty(Good):
    def scores(self, view):
        return None


class NanLoads(Good):
    def load(self, workers, used):
        return used * np.inf


class Negative(Good):
    def work(self, seats):
        return -seats.mean_ms


class Prints(Good):
    def scores(self, view):
        print("to whom it may concern" * 1000)
        sys.stdout.flush()
        return view.fee_wei


class Looks(Good):
    """Scores are 1 where it sees what it must not."""

    def scores(self, view):
        secret = any(name.startswith("INFERD_") for name in os.environ)
        return np.full(len(view), float(secret))


class NotLoadable:
    def __init__(self):
        raise OSError("its model is missing")


class Mute(Good):
    def __init__(self):
        while True:
            pass
'''

NAMES = {
    "good": "Good",
    "raises": "Raises",
    "raises-bytes": "RaisesBytes",
    "odd-version": "OddVersion",
    "raises-on-work": "RaisesOnWork",
    "loops": "Loops",
    "loops-on-load": "LoopsOnLoad",
    "sleeps": "Sleeps",
    "exits": "Exits",
    "short": "Short",
    "nans": "Nans",
    "words": "Words",
    "empty": "Empty",
    "nan-loads": "NanLoads",
    "negative": "Negative",
    "prints": "Prints",
    "looks": "Looks",
    "not-loadable": "NotLoadable",
    "no-such-class": "NotThere",
    "mute": "Mute",
    "fifo": "Good",
}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str = HOSTILE) -> None:
    """A package as pip leaves it, for this process and for those it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hostile_policies.py").write_text(code)
    info = folder / "hostile_policies-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile-policies\nVersion: 1.0\n")
    points = [f"{name} = hostile_policies:{kind}" for name, kind in NAMES.items()]
    (info / "entry_points.txt").write_text("\n".join(["[inferd.policies]", *points]) + "\n")
    use(folder, monkeypatch)


def use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes what is installed in the folder importable."""
    monkeypatch.syspath_prepend(str(folder))
    paths = [str(folder), *(path for path in sys.path if path)]
    monkeypatch.setenv("PYTHONPATH", ":".join(dict.fromkeys(paths)))


def order_view(rows: int = 3) -> OrderView:
    numbers = np.arange(rows, dtype=np.float64)
    whole = np.arange(rows, dtype=np.int64)
    return OrderView(
        fee_wei=numbers,
        revenue_wei=numbers,
        gas_need_wei=numbers,
        gas_cost_wei=numbers,
        submitted_at_s=numbers,
        deadline_s=numbers + 100,
        wait_s=numbers,
        slack_s=numbers,
        budget_ms=whole,
        service_ms=numbers + 1,
        p90_ms=numbers + 2,
        success_lower=numbers,
        tokens=numbers,
        tenant=whole,
        model=whole,
        attempts=whole,
        max_wait_s=60.0,
        recent_fees_wei=np.array([]),
        block_number=9,
        now_s=50.0,
    )


def seats_view(seats: int = 4) -> SeatsView:
    numbers = np.arange(1, seats + 1, dtype=np.float64)
    return SeatsView(np.arange(1, seats + 1), numbers, 2 * numbers, numbers, numbers / seats)


def loads_view(workers: int = 4) -> LoadsView:
    whole = np.arange(workers, dtype=np.int64)
    return LoadsView(whole + 1, whole * 0, whole, workers)
