"""What an operator can set about limits: `[limits]` and `[[tenants]]`."""

from __future__ import annotations

from collections.abc import Iterable

from eth_utils.address import is_address, is_hex_address, to_canonical_address
from pydantic import Field, field_validator

from indexer.types import DAY_S, HOUR_S, WEI_PER_GWEI
from inferd.node.settings_section import Section
from scheduler.allowance import Limits, Probation, Quota

_BPS = 10_000


class LimitSettings(Section):
    """How much one requester, one new worker, and all together may take."""

    tenant_in_flight: int = Field(0, ge=0)
    """Requests of one requester that are computed at the same time, at most; 0 = no limit."""
    tenant_tokens_per_s: float = Field(0.0, ge=0, le=1e9)
    """Tokens a second that one requester may take in the long run, output counting double;
    0 = no limit."""
    tenant_burst_tokens: float = Field(20_000.0, gt=0, le=1e12)
    """Tokens that it may take at once after it has taken none for a while."""
    fair_quantum_tokens: float = Field(0.0, ge=0, le=1e12)
    """With it, requesters take turns of so many tokens, and the policy orders what is within a
    turn; about the largest request is a good size. 0 = the policy alone decides."""
    probation_success: float = Field(0.8, ge=0, le=1)
    """A worker that is not yours is on probation until it is as good as sure to succeed so often;
    0 = never."""
    probation_in_flight: int = Field(2, ge=1)
    """Requests that it computes at the same time meanwhile, at most."""
    probation_stake_ratio: float = Field(1.0, ge=0, le=1_000)
    """Fees that it may have in hand meanwhile, as a part of its stake."""
    budget_gwei_per_hour: int = Field(0, ge=0)
    """Gas that may be spent or committed to within an hour, in gwei; requests wait where it is
    used up. 0 = no limit."""
    budget_gwei_per_day: int = Field(0, ge=0)
    """The same within 24 hours."""


class TenantSettings(Section):
    """A requester that is treated in its own way."""

    address: str
    """Of the account or contract that asks."""
    weight: float = Field(1.0, gt=0, le=1_000)
    """Its share where requesters take turns, relative to others' 1."""
    in_flight: int | None = Field(None, ge=0)
    """In place of `limits.tenant_in_flight`; 0 = no limit."""
    tokens_per_s: float | None = Field(None, ge=0, le=1e9)
    """In place of `limits.tenant_tokens_per_s`; 0 = no limit."""
    burst_tokens: float | None = Field(None, gt=0, le=1e12)
    """In place of `limits.tenant_burst_tokens`."""

    @field_validator("address")
    @classmethod
    def _readable(cls, address: str) -> str:
        if not (is_hex_address(address) and is_address(address)):
            raise ValueError(f"{address} is no address of 0x and 40 hex digits")
        return address


def limits_of(
    settings: LimitSettings, tenants: Iterable[TenantSettings], *, unposted: int = 0
) -> Limits:
    """The limits as the scheduler takes them; `unposted` is of results that wait to be posted."""
    general = Quota(
        settings.tenant_tokens_per_s, settings.tenant_burst_tokens, settings.tenant_in_flight
    )
    return Limits(
        quota=general,
        quotas={to_canonical_address(one.address): _quota(one, general) for one in tenants},
        fair_quantum_tokens=settings.fair_quantum_tokens,
        probation=Probation(
            settings.probation_success,
            settings.probation_in_flight,
            round(settings.probation_stake_ratio * _BPS),
        ),
        unposted=unposted,
    )


def budgets_of(settings: LimitSettings) -> tuple[tuple[int, int], ...]:
    """The windows that are limited, in seconds, and what may be spent within each, in wei."""
    budgets = (
        (HOUR_S, settings.budget_gwei_per_hour * WEI_PER_GWEI),
        (DAY_S, settings.budget_gwei_per_day * WEI_PER_GWEI),
    )
    return tuple(budget for budget in budgets if budget[1])


def _quota(tenant: TenantSettings, general: Quota) -> Quota:
    given = (tenant.tokens_per_s, tenant.burst_tokens, tenant.in_flight)
    usual = (general.tokens_per_s, general.burst_tokens, general.in_flight)
    rate, burst, in_flight = (
        own if own is not None else other for own, other in zip(given, usual, strict=True)
    )
    return Quota(rate, burst, int(in_flight), tenant.weight)
