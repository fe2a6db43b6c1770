"""What is told of one endpoint."""

from __future__ import annotations

from dataclasses import dataclass

from indexer.rpc.member import Member


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """What is known of one endpoint."""

    endpoint: str
    """scheme://host:port; a number is added where two are the same, and a word where it is only
    sent to."""
    state: str
    """in_use, ready, resting, rate_limited or wrong_chain."""
    reason: str | None
    """Its last failure, while that is the last thing it did; or why it is put aside."""
    latency_ms: float | None
    """Moving average of small calls; None before the first."""
    error_rate: float
    """Moving average, 0 to 1."""
    head: int | None
    lag_blocks: int
    """Behind the newest block of all, when they were last asked together."""
    calls_per_s: float | None
    """What its refusals have taught; None without a limit."""


def status_of(member: Member, *, in_use: bool) -> EndpointStatus:
    """`in_use`: it is the one that was chosen last."""
    health = member.health
    if member.wrong_chain is not None:
        state = "wrong_chain"
    elif in_use:
        state = "in_use"
    elif member.wait_s() > 0:
        state = "rate_limited"
    else:
        # Its rest may be over: it is ready when it has answered again.
        state = "resting" if member.last_error else "ready"
    return EndpointStatus(
        endpoint=member.label,
        state=state,
        reason=member.wrong_chain.message if member.wrong_chain else member.last_error,
        latency_ms=None if health.latency_s is None else 1_000 * health.latency_s,
        error_rate=health.error_rate,
        head=health.head,
        lag_blocks=health.lag_blocks,
        calls_per_s=member.bucket.per_s,
    )
