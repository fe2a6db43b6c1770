"""What a run must have brought about to have shown anything: all that the ABIs can say."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.contracts import moments
from tests.contracts.abi import Abi
from tests.contracts.model.values import CallbackSkip, GroupSkip, HoldSkip, Skip

_OF_CONSTRUCTORS = {
    "CancelDelayZero",
    "InvalidPosterBps",
    "InvalidReporterBps",
    "NoTreasury",
    "UnbondingDelayTooLong",
}
_OF_CONSUMERS = {"No"}
_SKIPS: dict[str, set[Any]] = {
    "ResultSkipped": set(Skip) - {Skip.NOT_EXPIRED},
    "RefundSkipped": set(Skip) - {Skip.EXPIRED, Skip.QUORUM_MISMATCH, Skip.TERMS_APPLY},
    "GroupSkipped": set(GroupSkip),
    "CallbackSkipped": set(CallbackSkip),
    "ReleaseSkipped": set(HoldSkip),
}


def not_seen(abis: dict[str, Abi], seen: Counter[str]) -> list[str]:
    """Errors, events, skip reasons and boundaries that no step has shown."""
    wanted = set(moments.ALL)
    for abi in abis.values():
        wanted |= {name for name, _ in abi.errors.values()} | abi.event_names
    wanted -= _OF_CONSTRUCTORS | _OF_CONSUMERS
    for event, reasons in _SKIPS.items():
        wanted.discard(event)
        wanted |= {f"{event}: {reason.name}" for reason in reasons}
    shown = set(seen) | {name.partition(": ")[2] for name in seen}
    return sorted(wanted - {name for name in shown if seen.get(name, 1)})
