"""What the operator wants checked, and what follows for one result. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from inferd.protocol.request import ModelId
from inferd.workers.checks.comparators import Comparator, Exact
from inferd.workers.checks.suspension import SuspensionRule
from scheduler.model import RequestKey, ServiceEstimate

ALL_PPM = 1_000_000
KEY_BYTES = 32
FIRST_CHECKED = 3
"""Of a worker's results of a model, all of which are computed once more."""
MOST_OPEN = 3
"""Results of a new worker that wait for their checks: with so many it has nothing new."""
_KNOWN_SAMPLES = 10
"""Answers of late after which a worker is not new: some more than its first checks are, since lies
that were not found out are among them."""
_HELD_SHARE = 0.5
"""Of a request's time left, at most: what is left then is for posting it, or for another worker."""


class Use(StrEnum):
    """What a draw is for: each has its own."""

    SPOT = "spot"
    CANARY = "canary"


@dataclass(frozen=True, slots=True)
class ModelRule:
    """What the operator knows of a model."""

    deterministic: bool = False
    """Whether two honest workers give answers that the comparator takes for the same."""
    comparator: Comparator = field(default_factory=Exact)


@dataclass(frozen=True, slots=True)
class CheckRules:
    """The operator's choices; rates are in parts of a million."""

    models: Mapping[ModelId, ModelRule] = field(default_factory=dict)
    spot_ppm: int = 20_000
    probation_spot_ppm: int = 200_000
    canary_ppm: int = 5_000
    hold: bool = True
    """Whether a result is not posted before its check."""
    hold_s: float = 60.0
    """How long at most."""
    suspension: SuspensionRule = field(default_factory=SuspensionRule)

    def of(self, model: ModelId) -> ModelRule:
        return self.models.get(model, _UNKNOWN)

    def spot_rate_ppm(self, model: ModelId, *, on_probation: bool) -> int:
        """How many of a worker's results of this model are computed once more, apart from its
        first."""
        if not self.of(model).deterministic:
            return 0
        return max(self.spot_ppm, self.probation_spot_ppm) if on_probation else self.spot_ppm

    def held_until_s(self, now_s: float, deadline_s: int) -> float | None:
        """Until when a result that is checked is not posted; None where it is posted meanwhile."""
        if not self.hold:
            return None
        return now_s + min(self.hold_s, max(0.0, _HELD_SHARE * (deadline_s - now_s)))


_UNKNOWN = ModelRule()


def is_new(offer: ServiceEstimate | None, *, proved: float) -> bool:
    """Whether little is known of a worker with a model, or it is on probation: then no more of its
    results go unchecked than have to. None is of one that nobody has seen."""
    return offer is None or offer.samples < _KNOWN_SAMPLES or offer.success_lower < proved


def chosen(key: bytes, use: Use, request: RequestKey, ppm: int) -> bool:
    """Whether this request is among so many of a million: always the same answer, which nobody
    knows before without the key."""
    return int.from_bytes(_drawn(key, use, request)[:8], "big") % ALL_PPM < ppm


def _drawn(key: bytes, use: Use, request: RequestKey) -> bytes:
    text = use.encode() + b"\0" + request.id.to_bytes(8, "big") + request.commitment
    return hmac.digest(key, text, hashlib.sha256)
