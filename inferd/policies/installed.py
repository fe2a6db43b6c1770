"""Which policies there are: the built-in ones, and those that installed packages offer.

A package offers one by an entry point of the group `inferd.policies` whose value names a class, or
any callable, that takes no arguments and returns a policy (`scheduler.policies.protocol.Policy`).
Here only the names are read; the code runs in a process of its own (`inferd.policies.child`).
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from scheduler.choice import Choice
from scheduler.policies import POLICIES

GROUP = "inferd.policies"


class UnknownPolicy(ValueError):
    """Neither built in nor offered by an installed package."""


def offered() -> dict[str, EntryPoint]:
    """The policies of other packages by name. A built-in name cannot be taken over."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in POLICIES}


def require_known(choice: Choice) -> None:
    """Raises UnknownPolicy."""
    others = offered()
    for arm in choice.arms:
        if arm.policy not in POLICIES and arm.policy not in others:
            known = ", ".join([*sorted(POLICIES), *sorted(others)])
            raise UnknownPolicy(f"there is no policy {arm.policy!r}; there are {known}")
