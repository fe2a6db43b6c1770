"""What is asked and when: an open loop, which goes on at its rate whatever the daemon does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from indexer.types import Contracts, Hash32

TICK_S = 0.05
MOST_IN_ONE = 100
"""Requests that share a transaction, at most."""


class Load(msgspec.Struct, frozen=True):
    """What the submitter is to do."""

    rpc_url: str
    contracts: Contracts
    rate: float
    """Requests per second."""
    seconds: float
    accounts: tuple[int, ...]
    """Whose transactions they are, in turns: accounts of the chain, which signs for them."""
    deadline_s: int


class Sent(msgspec.Struct, frozen=True):
    """One transaction of the submitter."""

    tx_hash: Hash32
    sent_s: float
    """When it began to be sent, in seconds since the epoch."""
    requests: int


class Tick(NamedTuple):
    """Requests that are due together."""

    at_s: float
    """Seconds from the start."""
    requests: int


def ticks(rate: float, seconds: float) -> Iterator[Tick]:
    """All ticks with something to send; by each, as many requests are due as its time says."""
    sent = 0
    for number in range(round(seconds / TICK_S)):
        due = int(rate * (number + 1) * TICK_S + 1e-9)
        if due > sent:
            yield Tick(number * TICK_S, due - sent)
            sent = due


def shares(requests: int) -> list[int]:
    """The transactions of one tick."""
    whole, rest = divmod(requests, MOST_IN_ONE)
    return [MOST_IN_ONE] * whole + [rest] * bool(rest)
