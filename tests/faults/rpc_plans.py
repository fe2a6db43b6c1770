"""Which exchange gets which fault: a list, a rule, or a seeded die."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.faults.exchange import Exchange
from tests.faults.rpc_faults import Fault


class Plan(Protocol):
    def faults(self, exchange: Exchange) -> Sequence[Fault]:
        """What happens to this exchange; nothing where it is empty."""
        ...


class Calm:
    """Nothing goes wrong."""

    def faults(self, exchange: Exchange) -> Sequence[Fault]:
        return ()


@dataclass
class Always:
    """The same faults for every exchange with one of the methods; for all where none is named."""

    what: Sequence[Fault]
    methods: frozenset[str] = frozenset()

    def faults(self, exchange: Exchange) -> Sequence[Fault]:
        return self.what if _concerns(self.methods, exchange) else ()


@dataclass
class InOrder:
    """The n-th exchange with one of the methods gets the n-th entry; None passes one by."""

    steps: list[Fault | None]
    methods: frozenset[str] = frozenset()
    told: int = 0

    def faults(self, exchange: Exchange) -> Sequence[Fault]:
        if not self.steps or not _concerns(self.methods, exchange):
            return ()
        fault = self.steps.pop(0)
        if fault is None:
            return ()
        self.told += 1
        return (fault,)


@dataclass(frozen=True)
class Chance:
    """One entry of a random plan."""

    fault: Fault
    methods: frozenset[str] = frozenset()
    weight: int = 1
    calls: int = 1
    """Once begun, it goes on for up to so many exchanges: a node's bad spell."""


@dataclass
class AtRandom:
    """Each exchange goes wrong with probability `share`, the same way for the same seed."""

    seed: int
    share: float
    chances: list[Chance]
    told: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._die = random.Random(self.seed)
        self._spell: Fault | None = None
        self._left = 0

    def faults(self, exchange: Exchange) -> Sequence[Fault]:
        if self._left and self._spell is not None:
            self._left -= 1
            return self._tell(self._spell)
        if self._die.random() >= self.share:
            return ()
        fitting = [chance for chance in self.chances if _concerns(chance.methods, exchange)]
        if not fitting:
            return ()
        (chance,) = self._die.choices(fitting, [chance.weight for chance in fitting])
        self._spell, self._left = chance.fault, self._die.randrange(chance.calls)
        return self._tell(chance.fault)

    def _tell(self, fault: Fault) -> Sequence[Fault]:
        self.told[type(fault).__name__] += 1
        return (fault,)


def _concerns(methods: frozenset[str], exchange: Exchange) -> bool:
    return not methods or bool(methods & exchange.methods)
