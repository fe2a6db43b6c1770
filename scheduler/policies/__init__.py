"""The orders a node can serve requests in, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduler.admission import Admitted
from scheduler.model import Snapshot
from scheduler.priority import (
    balanced_scores,
    edf_scores,
    fifo_scores,
    weighted_raw_scores,
)

DEFAULT = "balanced"


class Policy(Protocol):
    """How admitted requests are ordered. Admission and assignment are the same for all."""

    @property
    def name(self) -> str:
        """What the operator writes in the settings, and what each plan records."""

    def scores(self, snapshot: Snapshot, admitted: Sequence[Admitted]) -> Sequence[float]:
        """One finite score for each admitted request, in their order; the highest goes first.

        Must depend on nothing but the arguments, and each score on no request's position.
        """


@dataclass(frozen=True, slots=True)
class ScorePolicy:
    """A policy that is a scoring function."""

    name: str
    function: Callable[[Snapshot, Sequence[Admitted]], Sequence[float]]

    def scores(self, snapshot: Snapshot, admitted: Sequence[Admitted]) -> Sequence[float]:
        return self.function(snapshot, admitted)


_BUILT_IN: tuple[Policy, ...] = (
    ScorePolicy(DEFAULT, balanced_scores),
    ScorePolicy("weighted-raw", weighted_raw_scores),
    ScorePolicy("fifo", fifo_scores),
    ScorePolicy("edf", edf_scores),
)
POLICIES: dict[str, Policy] = {policy.name: policy for policy in _BUILT_IN}


def policy_named(name: str) -> Policy:
    """The policy of that name; ValueError with the known names if there is none."""
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(
            f"unknown policy {name!r}; the known ones are {', '.join(sorted(POLICIES))}"
        ) from None
