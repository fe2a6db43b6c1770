"""What an operator chooses to order requests by: one policy, or several with their shares."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

WEIGHTED = "balanced"
"""The policy whose weights can be set."""
_WEIGHT_NAMES = ("fee", "wait", "slack")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MAX_SHARE = 1_000_000

T = TypeVar("T")


class BadChoice(ValueError):
    """The text is no choice of policies."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Of `balanced`, relative to their sum."""

    fee: float
    wait: float
    slack: float

    def __str__(self) -> str:
        return f"fee={self.fee:g},wait={self.wait:g},slack={self.slack:g}"


@dataclass(frozen=True, slots=True)
class Arm:
    """One policy and its share of the requests, relative to the sum of all."""

    policy: str
    share: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """The policies in force. Several of them are an experiment."""

    arms: tuple[Arm, ...]
    weights: Weights | None = None
    """None = as `balanced` is by itself."""

    @property
    def shares(self) -> tuple[int, ...]:
        return tuple(arm.share for arm in self.arms)

    def __str__(self) -> str:
        single = len(self.arms) == 1
        names = (arm.policy if single else f"{arm.policy}={arm.share}" for arm in self.arms)
        return ",".join(names) + (f" ({self.weights})" if self.weights else "")


def chosen(policy: str, split: str, weights: str) -> Choice:
    """From what an operator writes; `split` goes before `policy`, empty texts are not given.

    Raises BadChoice. That the policies exist is for the caller to check.
    """
    arms = _arms(split) if split else (Arm(_name(policy)),)
    found = _weights(weights) if weights else None
    if found is not None and all(arm.policy != WEIGHTED for arm in arms):
        raise BadChoice(f"only `{WEIGHTED}` has weights, and it is not among the policies")
    return Choice(arms, found)


def _arms(text: str) -> tuple[Arm, ...]:
    arms = [Arm(_name(name), share) for name, share in _pairs(text, _share)]
    if len({arm.policy for arm in arms}) != len(arms):
        raise BadChoice(f"a policy is named twice in {text!r}")
    if len(arms) < 2:
        raise BadChoice(f"a split needs two policies at least, as in value=90,{WEIGHTED}=10")
    return tuple(arms)


def _weights(text: str) -> Weights:
    given = dict(_pairs(text, _weight))
    if sorted(given) != sorted(_WEIGHT_NAMES) or text.count("=") != len(_WEIGHT_NAMES):
        raise BadChoice("weights are written as fee=60,wait=30,slack=10, each once")
    if not sum(given.values()):
        raise BadChoice("one weight at least must be more than 0")
    return Weights(**given)


def _pairs(text: str, read: Callable[[str], T]) -> Sequence[tuple[str, T]]:
    pairs = []
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise BadChoice(f"{part.strip()!r} is not of the form name=number")
        pairs.append((name, read(value)))
    return pairs


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise BadChoice(f"{text!r} is no name of a policy: small letters, digits, `.`, `_`, `-`")
    return text


def _share(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MAX_SHARE):
        raise BadChoice(f"the share {text!r} is no whole number from 1 to {_MAX_SHARE}")
    return int(text)


def _weight(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= _MAX_SHARE:
        raise BadChoice(f"the weight {text!r} is no number from 0 to {_MAX_SHARE}")
    return value
