"""Computes a round once more from what the node recorded of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferd.chain.decision_audit import Claim
from inferd.cli.client import NodeClient
from scheduler import recording
from scheduler.audit import leaf
from scheduler.recording import NotReadable
from scheduler.replay import Candidate, CannotReplay, candidates, policy_of, replayed


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
        policy = policy_of(seen)
    except CannotReplay as error:
        return Replayed(None, str(error), offered)
    again = replayed(seen, policy, claim.decision.key)
    if again is not None and leaf(again, origin) == leaf(claim.decision, origin):
        return Replayed(True, "computed once more from what the round saw: the same", offered)
    otherwise = "nothing" if again is None else again.sentence
    return Replayed(False, f"computed once more, it comes out otherwise: {otherwise}", offered)
