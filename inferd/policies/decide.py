"""One round with the policies in force, or with the fallback where they fail."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from indexer.database import plain_text
from inferd.policies.hosted import PolicyFailed
from inferd.policies.steering import InForce
from scheduler.decision import Plan
from scheduler.experiment import Split
from scheduler.order import InvalidScores
from scheduler.policies import Policy
from scheduler.policies.choices import LeastRequests
from scheduler.seats import InvalidKeys

FALLBACK: Policy = LeastRequests()

log = structlog.get_logger("scheduler")


def decide(
    plan: Callable[[Policy | Split], Plan], force: InForce, budget_s: float
) -> tuple[Plan, str | None]:
    """The plan, and why it was made with the fallback, None where it was not.

    Each policy of another package may take `budget_s`. Whatever goes wrong with a policy, its
    round goes by another one; what goes wrong with that one as well is raised.
    """
    try:
        force.begin_round(budget_s)
        return plan(force.ordering), None
    except (PolicyFailed, InvalidScores, InvalidKeys) as error:
        reason = str(error)
    except Exception as error:
        log.exception("policy_raised", policy=force.ordering.name)
        reason = f"{force.ordering.name} raised {type(error).__name__}: {error}"
    return plan(FALLBACK), plain_text(reason)
