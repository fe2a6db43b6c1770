"""A request that several workers of different owners must answer alike.

It has one lease at a time, as any other: that of its first worker. Whoever else it lacks is asked
within the same lease, as far as there are such workers and they are free; what is missing after it
comes by further leases.
"""

from __future__ import annotations

from dataclasses import dataclass

from indexer.types import Address


@dataclass(frozen=True, slots=True)
class Company:
    """Who is to be asked beside the first."""

    number: int
    """How many more answers are lacking, if all are alike."""
    excluded: frozenset[Address]
    """They, or others of their owners, have answered."""
