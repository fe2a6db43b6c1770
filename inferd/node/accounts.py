"""What the operator earned and paid, by day, by account and by request. Pure; amounts are wei.

Fees and credits are what the contract's events say, gas is what receipts say: nothing is estimated,
and every sum equals the chain's. A day is one of UTC, by the time of the chain's blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime

from indexer.types import HOUR_S, Address

_BPS = 10_000


@dataclass(frozen=True, slots=True)
class Period:
    """From `begin_s` up to, and without, `end_s`; both are full hours.

    What was forgotten is kept by the hour: on full hours, no sum changes by forgetting.
    """

    begin_s: int
    end_s: int

    @classmethod
    def around(cls, begin_s: int, end_s: int) -> Period:
        """The full hours that these times are in."""
        return cls(begin_s // HOUR_S * HOUR_S, -(-end_s // HOUR_S) * HOUR_S)


@dataclass(frozen=True, slots=True)
class Figures:
    """What happened within some time. All add up."""

    results: int = 0
    """Posted by this node, and settled by that."""
    refunds: int = 0
    callbacks: int = 0
    """Consumers that were called, those that failed included."""
    releases: int = 0
    """Payments that were held back, and that this node had paid."""
    disputes: int = 0
    """Opened by this node."""
    transactions: int = 0
    wasted_transactions: int = 0
    """Closed ones of which no item was done by them: reverted, lost to another poster, or without
    effect because they only took a nonce."""
    poster_fees_wei: int = 0
    """The poster's share, credited to accounts of this operator."""
    worker_fees_wei: int = 0
    """The workers' share, credited to accounts of this operator."""
    post_gas_wei: int = 0
    delivery_gas_wei: int = 0
    refund_gas_wei: int = 0
    dispute_gas_wei: int = 0
    """Of releases and disputes."""
    wasted_gas_wei: int = 0
    """What wasted transactions cost; it is in the four above."""
    released_wei: int = 0
    """What came to accounts of this operator from the contract that holds payments back: payments
    and bonds."""
    bonds_wei: int = 0
    """Staked by this node in disputes."""

    @property
    def fees_wei(self) -> int:
        return self.poster_fees_wei + self.worker_fees_wei

    @property
    def gas_wei(self) -> int:
        gas_wei = self.post_gas_wei + self.delivery_gas_wei + self.refund_gas_wei
        return gas_wei + self.dispute_gas_wei

    @property
    def profit_wei(self) -> int:
        """Negative where gas and bonds cost more than was earned. What is held back is not earned
        yet."""
        return self.fees_wei + self.released_wei - self.gas_wei - self.bonds_wei

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            *(getattr(self, one.name) + getattr(other, one.name) for one in fields(Figures))
        )


@dataclass(frozen=True, slots=True)
class Day:
    """Those of a day's hours that are in the report."""

    date: date
    figures: Figures


@dataclass(frozen=True, slots=True)
class AccountFlow:
    """What went through one account of the operator's within the time.

    Its credit in the contract grew by `fees + released + other - withdrawn`, save for what it got
    back as a requester; its balance shrank by the gas and the bonds.
    """

    account: Address
    poster_fees_wei: int = 0
    worker_fees_wei: int = 0
    other_credits_wei: int = 0
    """Rewards and gifts, less what it passed on; can be negative."""
    withdrawn_wei: int = 0
    gas_wei: int = 0
    """Of the node's transactions; what commands sent with its key is not known here."""
    released_wei: int = 0
    """Payments that were held back, and bonds that came back."""
    bonds_wei: int = 0
    """Staked by the node's transactions."""

    def __add__(self, other: AccountFlow) -> AccountFlow:
        return AccountFlow(
            self.account,
            *(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)[1:]),
        )


@dataclass(frozen=True, slots=True)
class Report:
    period: Period
    days: tuple[Day, ...]
    """Those on which something happened, oldest first."""
    accounts: tuple[AccountFlow, ...]
    held_wei: Mapping[Address, int] = field(default_factory=dict)
    """By account: what is held back now, whatever the period."""

    @property
    def total(self) -> Figures:
        return sum((day.figures for day in self.days), Figures())


@dataclass(frozen=True, slots=True)
class Line:
    """One request's part of one transaction."""

    at_s: int
    """Of its block."""
    tx_hash: bytes
    request_id: int | None
    """None for what belongs to no request that is still known: the gas of a transaction that only
    took a nonce, and whatever was forgotten."""
    kind: str
    """post, deliver, refund, release, close or dispute; `foreign` for somebody else's transaction
    that paid one of the operator's accounts."""
    outcome: str
    """settled, refunded, delivered, ... as the node keeps it; empty while it is not final."""
    poster_fee_wei: int
    worker_fee_wei: int
    gas_wei: int
    released_wei: int = 0
    """What came from the contract that holds payments back, bonds included."""
    bond_wei: int = 0
    """Staked."""

    @property
    def profit_wei(self) -> int:
        earned_wei = self.poster_fee_wei + self.worker_fee_wei + self.released_wei
        return earned_wei - self.gas_wei - self.bond_wei


def date_of(time_s: int) -> date:
    """The day of UTC."""
    return datetime.fromtimestamp(time_s, UTC).date()


def split(amount_wei: int, weights: Sequence[int]) -> list[int]:
    """Shares that sum to the amount, each within a wei of its part: the largest remainders are
    rounded up (Hamilton's method), of equal ones the first.

    Where no weight is above zero, all weigh the same. Raises ValueError where there is no share.
    """
    if not weights:
        raise ValueError("an amount cannot be split over nobody")
    whole = sum(weights)
    if not whole:
        return split(amount_wei, [1] * len(weights))
    shares = [amount_wei * weight // whole for weight in weights]
    left = amount_wei - sum(shares)
    by_remainder = sorted(range(len(weights)), key=lambda i: -(amount_wei * weights[i] % whole))
    for index in by_remainder[:left]:
        shares[index] += 1
    return shares


def attribute(paid_wei: int, due_wei: Sequence[int]) -> tuple[list[int], int]:
    """Of a payment: what each request has in it, and what belongs to none of them.

    Those that are known can come to less than was paid, where others are forgotten, and to more,
    where several workers shared their fees: then each gets its part.
    """
    rest_wei = paid_wei - sum(due_wei)
    if rest_wei >= 0:
        return list(due_wei), rest_wei
    return split(paid_wei, due_wei), 0


def fee_shares(fee_wei: int, poster_wei: int, all_wei: int) -> tuple[int, int]:
    """A fee's part for the poster and for the worker, where a transaction paid that much to posters
    of all that it paid. The contract's share is a whole number of 1/10,000, so this is exact."""
    bps = poster_wei * _BPS // all_wei if all_wei else 0
    to_poster_wei = fee_wei * bps // _BPS
    return to_poster_wei, fee_wei - to_poster_wei
