"""How much content named by URI is kept, and how many fetches that leaves room for. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Room:
    """What is kept counts by its size, what is being fetched by the most that it may have."""

    total_bytes: int
    each_bytes: int
    """The most that one may have."""
    held_bytes: int = 0
    """What is kept, or more: what is deleted elsewhere counts until it is measured again."""
    added_bytes: int = 0
    """All that was ever added."""

    def for_more(self, running: int) -> int:
        """How many fetches may be begun while so many run."""
        return max(0, (self.total_bytes - self.held_bytes) // self.each_bytes - running)

    def add(self, size_bytes: int) -> None:
        """After its commit."""
        self.held_bytes += size_bytes
        self.added_bytes += size_bytes

    def measured(self, held_bytes: int, *, added_before: int) -> None:
        """What the table holds, which was read after `added_bytes` was that: what came meanwhile
        may be in it or not, and counts twice rather than not at all."""
        self.held_bytes = held_bytes + self.added_bytes - added_before
