"""What an operator can set about admission and order: `[scheduling]`."""

from __future__ import annotations

from pydantic import Field

from inferd.node.settings_section import Section
from scheduler.choice import Choice, chosen
from scheduler.policies import DEFAULT


class SchedulingSettings(Section):
    """How requests are admitted and ordered."""

    policy: str = DEFAULT.name
    """By which requests are ordered and workers chosen: a built-in one or that of an installed
    package, see docs/policies.md. `inferd policy set` changes it without a restart."""
    split: str = ""
    """In its place several policies, each for its share of the requests, as in
    `value=90,balanced=10`."""
    weights: str = ""
    """Of `balanced`, as in `fee=60,wait=30,slack=10`, which it has without it."""
    policy_budget_ms: int = Field(200, ge=1, le=60_000)
    """What a policy of an installed package may take of one round; if it is later, the round goes
    by `least-requests`."""
    max_wait_s: int = Field(300, ge=1)
    """The wait after which a request goes before all that have waited less, whatever they pay.
    Where more is asked than can be served, a short one costs much of what could be earned."""
    flow_arcs: int = Field(0, ge=0)
    """Up to how many arcs (requests times free slots, roughly) a round is decided exactly, by
    minimum-cost flow; 0 = never. 5000 take some 10 ms, and the extra `flow`."""
    inclusion_s: float = Field(3.0, gt=0)
    """Time kept free between a computed result and its deadline."""
    gas_margin: float = Field(1.5, ge=1)
    """How many times its expected share of gas a fee must cover, at least."""
    base_fee_quantile: float = Field(0.9, ge=0.5, le=0.999)
    """A fee must also cover a rise of the base fee until its post that was not exceeded by this
    part of the last 256 blocks: it counts where it is more than `gas_margin`, with volatile gas and
    long computations."""
    expected_batch: int = Field(1, ge=1)
    """Results per post that its fixed gas is shared by when a request is admitted. 1 is safe with
    little traffic; with much, a larger one admits fees that only pay in company."""
    max_attempts: int = Field(8, ge=1)
    """Leases that may fail before a request is given up."""

    @property
    def choice(self) -> Choice:
        """The policies as the settings say. Raises BadChoice."""
        return chosen(self.policy, self.split, self.weights)
