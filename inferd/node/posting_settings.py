"""What an operator can set about posts and refunds: `[posting]`."""

from __future__ import annotations

from eth_utils.address import is_address, is_hex_address
from pydantic import Field, field_validator

from inferd.node.settings_section import Section


class PostingSettings(Section):
    """When and at what price results go on chain."""

    delay_price_gwei_per_s: int = Field(5_000, ge=0)
    """What one result's waiting for one second is worth."""
    max_results: int = Field(240, ge=1, le=400)
    """Results in one transaction, at most. More could exceed the size that clients take."""
    max_gas: int = Field(15_000_000, ge=100_000, le=16_777_216)
    """Gas limit of one transaction, at most."""
    guard_s: float = Field(6.0, gt=0)
    """A result whose deadline is nearer than this and one block more, or than two blocks, is
    posted at once."""
    lead_s: float = Field(1.5, gt=0, le=60)
    """How long before the next block it is decided what to post, so that results that come between
    two blocks share a transaction. Where blocks are less than 4 s or twice this apart, or come
    without a rhythm, it is decided at once."""
    max_fee_gwei: int = Field(200, ge=1)
    """The most a unit of gas may cost, replacements included; above it results wait."""
    max_priority_fee_gwei: int = Field(10, ge=1)
    """The most of it that may be a tip to who makes the block, replacements included. A first offer
    is at most 5/8 of it: it can be raised three times by an eighth, and then still be cancelled."""
    max_transaction_gwei: int = Field(0, ge=0)
    """The most one transaction may cost, in gwei of gas, replacements included; 0 = no limit."""
    cap_gwei_per_hour: int = Field(0, ge=0)
    """The most that posts and deliveries may cost in any hour, in gwei of gas: nothing is sent or
    replaced beyond it, though results expire. 0 = no limit; `limits.budget_gwei_per_hour` holds
    back new work instead."""
    cap_gwei_per_day: int = Field(0, ge=0)
    """The same in any 24 hours."""
    confirmations: int = Field(2, ge=1)
    """Blocks after which a transaction counts as done, its own included."""
    max_in_flight: int = Field(5, ge=1)
    """Transactions of one poster's key that are signed and not yet mined, at most. While as many
    results as those of all keys have room for wait beside these, no request is begun."""
    warn_runway_results: int = Field(200, ge=0)
    """Warn where a poster's balance pays for fewer results than this, at what one costs now, beyond
    what is under way and its share of what waits; 0 = only where it does not pay for these."""
    stop_runway_results: int = Field(5, ge=0)
    """Plan no new transaction where it pays for fewer than this beyond what is under way, so that
    this can still be replaced at a higher price."""
    refund_expired: bool = True
    """Refund expired requests as a service, at this operator's cost."""
    refund_max_fee_gwei: int = Field(20, ge=1)
    """The most a unit of gas may cost for refunds; above it they wait."""
    refund_min_fee_ratio: float = Field(1.0, ge=0)
    """How many times its share of the refund's gas a fee must be. Smaller ones are left to their
    requesters, who can call `refund` themselves."""
    refund_budget_gwei_per_day: int = Field(50_000_000, ge=0)
    """Most that refunds may cost in any 24 hours, in gwei of gas."""
    own_accounts: tuple[str, ...] | None = None
    """Addresses whose money is yours: where one of them owns a worker, its share of a fee counts as
    revenue. Without it: the posters, and the owners that `[[workers]]` names."""

    @field_validator("own_accounts")
    @classmethod
    def _addresses(cls, accounts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for account in accounts or ():
            if not (is_hex_address(account) and is_address(account)):
                raise ValueError(f"{account} is no address of 0x and 40 hex digits")
        return accounts
