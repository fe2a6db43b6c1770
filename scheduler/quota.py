"""Hard limits of a tenant: how many requests it has in hand, and how many tokens a second it takes.

**Tokens.** A request costs `ceil(input bytes / 4) + 2 * ceil(predicted output tokens)`. Four bytes
are a token of common text. Output counts double, as a token that is generated takes a whole pass
of the model and one that is read shares it (Sheng et al. 2024, "Fairness in Serving Large Language
Models", section 4, use the same weights).

**Bucket.** A tenant's bucket holds at most `burst_tokens` and fills by `tokens_per_s`. A request
is let through if the bucket holds its cost; one that costs more than a full bucket waits for a full
one and takes it below zero, so that no request is too large for ever. Hence what a tenant takes
within T seconds is at most `burst_tokens + tokens_per_s * T` plus what its largest request costs
beyond the burst.

**Order.** Within a tenant nobody overtakes: where its next request must wait, those behind it wait
too, or small requests would starve a large one. So a tenant that is closed stays closed for the
rest of the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from scheduler.allowance import Bucket, Quota, Use

_BYTES_PER_TOKEN = 4
_OUTPUT_WEIGHT = 2


def cost_tokens(input_bytes: int, output_tokens: float) -> int:
    """What a request costs in tokens, see the module's text; at least 1."""
    read = -(-input_bytes // _BYTES_PER_TOKEN)
    return max(1, read + _OUTPUT_WEIGHT * ceil(output_tokens))


def level(bucket: Bucket | None, quota: Quota, now_s: float) -> float:
    """The tokens in the bucket now. A clock that runs backwards fills nothing; without a rate the
    bucket is not in use, and full."""
    if bucket is None or not quota.tokens_per_s:
        return quota.burst_tokens
    filled = bucket.tokens + quota.tokens_per_s * max(0.0, now_s - bucket.at_s)
    return min(quota.burst_tokens, filled)


def taken(bucket: Bucket | None, quota: Quota, cost: float, now_s: float) -> Bucket:
    """The bucket after the tokens were taken from it."""
    at_s = now_s if bucket is None else max(now_s, bucket.at_s)
    cost = cost if quota.tokens_per_s else 0.0
    return Bucket(level(bucket, quota, now_s) - cost, at_s)


def is_full(bucket: Bucket, quota: Quota, now_s: float) -> bool:
    """Whether the bucket is as good as none."""
    return level(bucket, quota, now_s) >= quota.burst_tokens


OPEN, IN_FLIGHT, RATE = 0, 1, 2


class TenantGate:
    """The quotas of one round: each tenant by its index, O(1) per request."""

    __slots__ = ("_quotas", "closed", "in_flight", "is_rated", "levels", "most_in_flight")

    def __init__(self, quotas: Sequence[Quota], uses: Sequence[Use], now_s: float) -> None:
        self._quotas = quotas
        self.in_flight = [use.in_flight for use in uses]
        self.most_in_flight = [quota.in_flight for quota in quotas]
        self.is_rated = [quota.tokens_per_s > 0.0 for quota in quotas]
        self.levels = [
            level(use.bucket, quota, now_s) for quota, use in zip(quotas, uses, strict=True)
        ]
        """Tokens in each bucket."""
        self.closed = bytearray(len(quotas))
        """By tenant, what its next request waits for: OPEN (nothing), IN_FLIGHT, RATE."""

    def may_go(self, tenant: int, cost: int) -> bool:
        """Whether the tenant's next request may; call it in the order in which they are served."""
        if not self.closed[tenant]:
            self.closed[tenant] = self._verdict(tenant, cost)
        return not self.closed[tenant]

    def take(self, tenant: int, cost: int) -> None:
        """One of the tenant's requests goes to a worker."""
        self.in_flight[tenant] += 1
        self.levels[tenant] -= cost

    def _verdict(self, tenant: int, cost: int) -> int:
        quota = self._quotas[tenant]
        if quota.in_flight and self.in_flight[tenant] >= quota.in_flight:
            return IN_FLIGHT
        if quota.tokens_per_s and self.levels[tenant] < min(cost, quota.burst_tokens):
            return RATE
        return OPEN
