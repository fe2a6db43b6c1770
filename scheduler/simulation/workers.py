"""What simulated workers truly do, as opposed to what the scheduler believes about them.

A worker has `slots` servers of equal speed, which do not slow each other down. A request takes
`base_ms + per_token_ms * generated tokens`, times the request's own factor, of work at speed 1. The
speed is constant within segments of `SEGMENT_MS` of virtual time; 0 is an outage, in which running
leases wait and none makes progress.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, cos, exp, log, pi
from typing import Final

import numpy as np

from scheduler.model import ModelId, WorkerId

SEGMENT_MS: Final = 12_000
"""How long a speed stays the same."""
NEVER_MS: Final = 2**53
"""A time that no simulation reaches."""


class Conduct(StrEnum):
    """What becomes of a lease that fails."""

    ERROR = "error"
    """The worker says so when the work is done."""
    SILENT = "silent"
    """Nothing is heard of it until the lease expires."""
    BOGUS = "bogus"
    """It answers in a twentieth of the time, with a signature that is not valid."""


BOGUS_SHARE: Final = 0.05
STAKE_WEI: Final = 10**16
"""Of each worker: ten fees of the usual median."""


@dataclass(frozen=True, slots=True, order=True)
class TrueService:
    """How long a model takes on a worker at speed 1."""

    base_ms: float
    per_token_ms: float

    def work_ms(self, generated_tokens: int, factor: float) -> float:
        """The work of one request, in ms at speed 1; `factor` is the request's own."""
        return (self.base_ms + self.per_token_ms * generated_tokens) * factor


@dataclass(frozen=True, slots=True)
class SimWorker:
    """A worker of a pool."""

    id: WorkerId
    slots: int
    memory_mb: int
    service: Mapping[ModelId, TrueService]
    owned: bool = True
    joins_at_ms: int = 0
    """Before it, the worker is not registered."""
    speeds: tuple[float, ...] = (1.0,)
    """Of each segment; the last one holds for ever after."""
    failure: float = 0.0
    """The share of its leases that fail; which ones depends on the request alone."""
    conduct: Conduct = Conduct.ERROR
    load_ms: float = 0.0
    """What a model takes to load that the worker did not serve last."""
    stake_wei: int = STAKE_WEI

    def speed(self, segment: int) -> float:
        return self.speeds[min(segment, len(self.speeds) - 1)]

    def end_ms(self, start_ms: int, work_ms: float) -> int:
        """When work that starts then is done; NEVER_MS if it never is."""
        at_ms, left_ms = start_ms, work_ms
        while True:
            segment = at_ms // SEGMENT_MS
            speed = self.speed(segment)
            last = segment >= len(self.speeds) - 1
            if speed <= 0.0:
                if last:
                    return NEVER_MS
            elif last or left_ms <= speed * ((segment + 1) * SEGMENT_MS - at_ms):
                return max(start_ms + 1, ceil(at_ms + left_ms / speed))
            else:
                left_ms -= speed * ((segment + 1) * SEGMENT_MS - at_ms)
            at_ms = (segment + 1) * SEGMENT_MS


Pool = Callable[[Sequence[ModelId], int, np.random.Generator], tuple[SimWorker, ...]]
"""Makes the workers of a pool: for these models, for a world of that many segments."""

_MEMORY_MB = 16_000
NOMINAL_SLOTS: Final = 8
"""About as many typical slots has each pool."""
TYPICAL: Final = TrueService(base_ms=300.0, per_token_ms=30.0)
"""The typical slot's service."""


def equal(
    models: Sequence[ModelId], segments: int, random: np.random.Generator
) -> tuple[SimWorker, ...]:
    """Four workers of two slots, all alike: 300 ms and 30 ms for each token."""
    return tuple(_worker(number, 2, _served(models, 1.0)) for number in range(4))


def unequal(
    models: Sequence[ModelId], segments: int, random: np.random.Generator
) -> tuple[SimWorker, ...]:
    """Six workers of one or two slots; the slowest is four times slower than the fastest.

    Times are evenly spaced in logarithms from half the typical one to twice of it.
    """
    return tuple(
        _worker(number, 1 + number % 2, _served(models, exp(log(2.0) * (number - 2.5) / 2.5)))
        for number in range(6)
    )


def drifting(
    models: Sequence[ModelId], segments: int, random: np.random.Generator
) -> tuple[SimWorker, ...]:
    """The equal pool, where each speed swings between 0.5 and 1.5 with a period of its own.

    Periods are uniform in 10 ... 40 segments, phases uniform.
    """
    periods, phases = random.uniform(10, 40, 4), random.uniform(0, 1, 4)
    return tuple(
        _worker(
            number,
            2,
            _served(models, 1.0),
            speeds=tuple(1.0 + 0.5 * cos(2 * pi * (n / period + phase)) for n in range(segments)),
        )
        for number, (period, phase) in enumerate(zip(periods, phases, strict=True))
    )


def failing(
    models: Sequence[ModelId], segments: int, random: np.random.Generator
) -> tuple[SimWorker, ...]:
    """Six workers, of which two fail a third of their leases and two have outages.

    Of the two that fail one says so and one is silent. An outage begins in each segment with
    probability 1/20 and ends in each with 1/4.
    """
    workers = [_worker(number, 2, _served(models, 1.0)) for number in range(2)]
    for number, conduct in ((2, Conduct.ERROR), (3, Conduct.SILENT)):
        workers.append(_worker(number, 1, _served(models, 1.0), failure=1 / 3, conduct=conduct))
    for number in (4, 5):
        speeds, up = [], True
        for roll in random.uniform(0, 1, segments):
            up = bool(roll >= 1 / 20) if up else bool(roll < 1 / 4)
            speeds.append(1.0 if up else 0.0)
        workers.append(_worker(number, 1, _served(models, 1.0), speeds=(*speeds, 1.0)))
    return tuple(workers)


def newcomers(
    models: Sequence[ModelId], segments: int, random: np.random.Generator
) -> tuple[SimWorker, ...]:
    """The equal pool, and four that join after a tenth of the time, three of them malicious.

    One newcomer is honest and as good as the others; one answers quickly with bogus signatures, one
    takes leases and is silent, one fails half of what it does.
    """
    join_ms = segments * SEGMENT_MS // 10
    joining = (
        (0.0, Conduct.ERROR),
        (1.0, Conduct.BOGUS),
        (1.0, Conduct.SILENT),
        (0.5, Conduct.ERROR),
    )
    return (
        *equal(models, segments, random),
        *(
            _worker(
                number,
                1,
                _served(models, 1.0),
                owned=False,
                joins_at_ms=join_ms,
                failure=failure,
                conduct=conduct,
            )
            for number, (failure, conduct) in enumerate(joining, start=4)
        ),
    )


POOLS: Mapping[str, Pool] = {
    "equal": equal,
    "unequal": unequal,
    "drifting": drifting,
    "failing": failing,
    "newcomers": newcomers,
}


def _worker(
    number: int,
    slots: int,
    service: Mapping[ModelId, TrueService],
    *,
    owned: bool = True,
    joins_at_ms: int = 0,
    speeds: tuple[float, ...] = (1.0,),
    failure: float = 0.0,
    conduct: Conduct = Conduct.ERROR,
) -> SimWorker:
    identity = WorkerId(b"sim-worker".ljust(19, b"\0") + bytes([number]))
    return SimWorker(
        identity, slots, _MEMORY_MB, service, owned, joins_at_ms, speeds, failure, conduct
    )


def _served(models: Sequence[ModelId], slowness: float) -> dict[ModelId, TrueService]:
    one = TrueService(TYPICAL.base_ms * slowness, TYPICAL.per_token_ms * slowness)
    return dict.fromkeys(models, one)
