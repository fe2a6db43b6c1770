"""Computes a round once more from what the node recorded of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from inferd.chain.decision_audit import Claim
from inferd.cli.client import NodeClient
from inferd.policies.hosted import HostedPolicy, PolicyFailed
from inferd.policies.installed import offered as others
from scheduler import recording
from scheduler.audit import leaf
from scheduler.order import InvalidScores
from scheduler.policies import Policy, policy_named
from scheduler.recording import NotReadable
from scheduler.replay import Candidate, CannotReplay, candidates, policy_of, replayed
from scheduler.seats import InvalidKeys

_START_WITHIN_S = 20.0
_ANSWERS_WITHIN_S = 60.0
"""More than a daemon allows: it may run on a faster machine."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it."""

    same: bool | None
    """None where it could not be computed."""
    sentence: str
    candidates: Sequence[Candidate] = ()


async def replay(client: NodeClient, round_id: int, claim: Claim) -> Replayed:
    """Raises NodeUnreachable and NotAnInferdNode."""
    if claim.origin.snapshot_digest is None:
        return Replayed(None, "what the round saw was not recorded (`retention.snapshot_hours`)")
    stored = await client.round_snapshot(round_id)
    if stored is None:
        return Replayed(None, "what the round saw was deleted (`retention.snapshot_hours`)")
    return compare(claim, stored)


def compare(claim: Claim, stored: bytes) -> Replayed:
    """Whether the round decides on the request as is claimed, from the compressed recording."""
    origin = claim.origin
    try:
        encoded = recording.decompress(stored)
        if recording.digest(encoded) != origin.snapshot_digest:
            return Replayed(False, "what is stored of it is not what the round saw: changed")
        seen = recording.decode(encoded)
    except NotReadable as error:
        return Replayed(None, f"what the round saw cannot be read: {error}")
    offered = candidates(seen, claim.decision.key)
    try:
        with ExitStack() as processes:
            policy = policy_of(seen, partial(_named, processes))
            again = replayed(seen, policy, claim.decision.key)
    except CannotReplay as error:
        return Replayed(None, str(error), offered)
    except (PolicyFailed, InvalidScores, InvalidKeys) as error:
        return Replayed(None, f"the policy fails now: {error}", offered)
    if again is not None and leaf(again, origin) == leaf(claim.decision, origin):
        return Replayed(True, "computed once more from what the round saw: the same", offered)
    otherwise = "nothing" if again is None else again.sentence
    return Replayed(False, f"computed once more, it comes out otherwise: {otherwise}", offered)


def _named(processes: ExitStack, name: str) -> Policy:
    """That policy; one of a package in a process of its own until `processes` are closed."""
    if name not in others():
        return policy_named(name)
    hosted = HostedPolicy(name)
    processes.callback(hosted.close)
    try:
        if not hosted.is_up(_START_WITHIN_S):
            raise CannotReplay(f"policy {name} did not start within {_START_WITHIN_S:.0f} s")
    except PolicyFailed as error:
        raise CannotReplay(f"policy {error}") from None
    hosted.begin_round(_ANSWERS_WITHIN_S)
    return hosted
