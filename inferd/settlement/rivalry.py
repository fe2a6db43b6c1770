"""How likely others are to be first with a result, and how long ours waits because of it. Pure.

Whoever posts a result that somebody else's transaction settles before it, pays gas for nothing.
What a daemon can know of its rivals is what became of its own items: settled by us, or already
settled when their turn came. From these it estimates the share it loses, and

- counts what a result earns times the chance to be first (`Standing.chance_bps`);
- spreads its posts as Ethernet does after a collision (Metcalfe and Boggs, "Ethernet: distributed
  packet switching for local computer networks", 1976): each result waits a number of blocks that a
  hash draws below a window. The window grows with the share lost and shrinks with what is won.

Of two daemons that draw below a window of w blocks, 1/w of the results fall into the same block;
in all other cases the later one sees the result settled and never posts it. With the window in
proportion to the share lost, two of them lose 6 to 8 % of what they send where neither sees the
other's transactions before they are mined (three lose 11 %, four 14 %), and half of it where most
are seen in the pool. A result waits for two blocks on average. Without rivals nothing is lost, and
the window is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from eth_utils.crypto import keccak

MOST_LOST = 0.1
"""The share of lost items above which the window is at its widest."""
LEAST_LOST = 0.01
"""The share below which nobody waits: a stranger's post now and then is no rival."""
WIDEST_BLOCKS = 16
HALF_LIFE_BLOCKS = 16
"""After so many blocks an outcome weighs half. Soon enough that who has lost and waits tries again,
and who has won while the other waited meets him: neither keeps all for long."""
MEMORY_BLOCKS = 8 * HALF_LIFE_BLOCKS
"""What is older weighs less than 1/256 and is not asked for."""
_PRIOR_WON = 4.0
"""Items that count as won beside those that were: one loss alone is no sign of a rival."""
_BPS = 10_000


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of our items in the transactions of ours that one block has."""

    block: int
    won: int
    """Settled by us."""
    lost: int
    """Settled by another before."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Ours among those who post results of the same requests."""

    chance_bps: int = _BPS
    """To be first with a result that is sent, in 1/10,000."""
    window_blocks: int = 0
    """Below which waits are drawn; 0 = nobody waits."""

    def expected_wei(self, revenue_wei: int) -> int:
        """Of what a result earns where it is first."""
        return revenue_wei * self.chance_bps // _BPS

    def wait_blocks(self, lot: bytes, poster: bytes) -> int:
        """How many blocks what has that lot, as a result its commitment, waits from when it is
        ready: the same each time it is asked, and another for another poster. With a wider window
        none is shorter."""
        drawn = int.from_bytes(keccak(lot + poster)[:8], "big")
        return drawn * self.window_blocks >> 64


def standing(recent: Iterable[Outcomes], head: int) -> Standing:
    """By the outcomes of the newest blocks up to the head, in any order."""
    won, lost = _PRIOR_WON, 0.0
    for one in recent:
        weight = 0.5 ** (max(head - one.block, 0) / HALF_LIFE_BLOCKS)
        won += one.won * weight
        lost += one.lost * weight
    share = lost / (won + lost)
    return Standing(round(_BPS * (1 - share)), _window(share))


def _window(share_lost: float) -> int:
    if share_lost < LEAST_LOST:
        return 0
    return 1 + math.ceil((WIDEST_BLOCKS - 1) * min(share_lost / MOST_LOST, 1))
