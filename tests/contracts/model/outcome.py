"""What the model says of an action, and the patterns for what the interfaces leave open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.contracts.abi import Address, Event


@dataclass(frozen=True, slots=True)
class Tx:
    """Who calls, with how much, at which block timestamp."""

    sender: Address
    value: int
    now: int


class Refused(Exception):
    """The action must revert, with one of these errors: the interfaces order no two of them."""

    def __init__(self, errors: list[tuple[Any, ...]]) -> None:
        super().__init__(errors)
        self.errors = errors


@dataclass(frozen=True, slots=True)
class OneOf:
    """Equal to each of its values."""

    values: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return other in self.values

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Between:
    """Equal to each whole number from `low` to `high`."""

    low: int
    high: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self.low <= other <= self.high

    __hash__ = None  # type: ignore[assignment]


ANY_NUMBER = Between(0, 2**256)


@dataclass(frozen=True, slots=True)
class EitherEvent:
    """Stands for exactly one of its events."""

    events: tuple[Event, ...]

    def __eq__(self, other: object) -> bool:
        return other in self.events

    __hash__ = None  # type: ignore[assignment]


Expected = Event | EitherEvent
E = TypeVar("E", Event, Expected)


def refuse_if_any(errors: list[tuple[Any, ...]]) -> None:
    if errors:
        raise Refused(errors)


def unmatched(
    expected: Sequence[Expected], actual: Sequence[Event]
) -> tuple[list[Expected], list[Event]]:
    """What was expected and is not there, and what is there and was not expected.

    The order of events is not compared, nor into how many a poster's share is split: the interfaces
    say neither.
    """
    left, expected = _with_sums(actual), _with_sums(expected)
    missing: list[Expected] = []
    for event in sorted(expected, key=lambda event: isinstance(event, EitherEvent)):
        place = next((i for i, found in enumerate(left) if event == found), None)
        if place is None:
            missing.append(event)
        else:
            del left[place]
    return missing, left


def _with_sums(events: Sequence[E]) -> list[E | Event]:
    sums: Counter[Address] = Counter()
    others: list[E | Event] = []
    for event in events:
        if isinstance(event, Event) and event.name == "PosterPaid":
            sums[event.args[0]] += event.args[1]
        else:
            others.append(event)
    return others + [Event("requests", "PosterPaid", paid) for paid in sums.items()]
