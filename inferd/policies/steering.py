"""Which policies the next round uses: follows node.policy, and keeps their processes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import structlog

from inferd.policies.hosted import HostedPolicy, PolicyFailed
from inferd.policies.journal import Entry
from scheduler.choice import WEIGHTED, Choice
from scheduler.experiment import Split
from scheduler.policies import POLICIES, Policy
from scheduler.policies.balanced import Balanced

log = structlog.get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class InForce:
    """What a round is planned with."""

    entry: Entry
    policies: tuple[Policy, ...]
    """One an arm."""

    @property
    def ordering(self) -> Policy | Split:
        """As a planner takes it."""
        if len(self.policies) == 1:
            return self.policies[0]
        return Split(self.policies, self.entry.choice.shares, self.entry.id)

    def begin_round(self, budget_s: float) -> None:
        """Each policy of another package may take so long. Raises PolicyFailed where one of them
        cannot be asked now."""
        for policy in self.policies:
            if isinstance(policy, HostedPolicy):
                policy.begin_round(budget_s)


class Steering:
    """The policies in force, changed between rounds. For one thread at a time, but that any may
    close it."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._closed = False
        self._now: InForce | None = None
        self._next: InForce | None = None
        self._hosted: dict[str, HostedPolicy] = {}

    def follow(self, entry: Entry) -> InForce:
        """What is in force once `entry` is the newest.

        A change takes effect at once, except that the policies before go on while the process of a
        new one starts. Waits for no policy, but starting and ending processes takes a while: for a
        thread.
        """
        with self._changing:
            return self._follow(entry)

    def close(self) -> None:
        """Ends all processes, for good."""
        with self._changing:
            self._closed = True
            self._close_all_but(set())

    def _follow(self, entry: Entry) -> InForce:
        if self._now is None:
            self._now = self._take(entry)
        elif entry.id != self._now.entry.id:
            if self._next is None or self._next.entry.id != entry.id:
                self._next = self._take(entry)
            if all(_may_begin(policy) for policy in self._next.policies):
                log.info("policy_changed", policy=str(entry.choice), set_by=entry.set_by)
                self._now, self._next = self._next, None
                self._close_all_but({arm.policy for arm in entry.choice.arms})
        return self._now

    def _take(self, entry: Entry) -> InForce:
        return InForce(
            entry, tuple(self._policy(arm.policy, entry.choice) for arm in entry.choice.arms)
        )

    def _policy(self, name: str, choice: Choice) -> Policy:
        if name in POLICIES:
            return built_in(name, choice)
        hosted = self._hosted.get(name)
        if hosted is None:
            hosted = self._hosted[name] = HostedPolicy(name)
            if self._closed:
                hosted.close()
        return hosted

    def _close_all_but(self, names: set[str]) -> None:
        for name in self._hosted.keys() - names:
            self._hosted.pop(name).close()


def built_in(name: str, choice: Choice) -> Policy:
    """A built-in policy with the weights that were chosen for it."""
    policy = POLICIES[name]
    if name == WEIGHTED and choice.weights is not None and isinstance(policy, Balanced):
        weights = choice.weights
        return replace(policy, fee=weights.fee, wait=weights.wait, urgency=weights.slack)
    return policy


def _may_begin(policy: Policy) -> bool:
    """Whether it is up, or will not be soon: its rounds are replaced then, and say why."""
    try:
        return not isinstance(policy, HostedPolicy) or policy.is_up()
    except PolicyFailed:
        return True
