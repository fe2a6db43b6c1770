"""What the node's HTTP API says of money: reports, and the lines they are made of."""

from __future__ import annotations

from inferd.node.api_models import SCHEMA_VERSION, View


class FiguresView(View):
    results: int
    """Settled by this node's posts."""
    refunds: int
    callbacks: int
    releases: int
    """Payments held back for a dispute that this node had paid."""
    disputes: int
    """Opened by this node."""
    transactions: int
    wasted_transactions: int
    """Those that did nothing: reverted, lost to another poster, or only took a nonce."""
    poster_fees_wei: str
    worker_fees_wei: str
    post_gas_wei: str
    delivery_gas_wei: str
    refund_gas_wei: str
    dispute_gas_wei: str
    """Of releases and disputes."""
    wasted_gas_wei: str
    """In the four above."""
    released_wei: str
    """Payments that were held back and are paid, and bonds that came back."""
    bonds_wei: str
    """Staked in disputes."""
    profit_wei: str
    """Fees and what was released, less gas and bonds; can be negative."""


class DayView(FiguresView):
    day: str
    """Of UTC, by the time of the chain."""


class AccountView(View):
    account: str
    poster_fees_wei: str
    worker_fees_wei: str
    other_credits_wei: str
    """Rewards and gifts, less what was passed on; can be negative."""
    withdrawn_wei: str
    gas_wei: str
    released_wei: str
    """Payments that were held back and are paid, and bonds that came back."""
    bonds_wei: str
    """Staked in disputes."""
    held_wei: str
    """Held back now, whatever the period; lost where a dispute is upheld."""


class ReportView(View):
    schema_version: int = SCHEMA_VERSION
    begin_s: int
    end_s: int
    """The report is of full hours, and ends before this one."""
    total: FiguresView
    days: list[DayView]
    accounts: list[AccountView]


class LineView(View):
    """One request's part of one transaction."""

    time: str
    """Of its block."""
    tx_hash: str
    id: int | None
    """None for what belongs to no request that is still known."""
    kind: str
    """post, deliver, refund, release, close or dispute; foreign = somebody else's transaction."""
    outcome: str
    poster_fee_wei: str
    worker_fee_wei: str
    gas_wei: str
    released_wei: str
    """What came of a payment that was held back, or of a bond."""
    bond_wei: str
    """Staked."""
    profit_wei: str


class LinesView(View):
    schema_version: int = SCHEMA_VERSION
    id: int
    lines: list[LineView]
    """Oldest first."""
    profit_wei: str
