"""When content that could not be had is tried again, and when no more. Pure.

Pauses are full jitter: uniform up to a bound that doubles with each try, so that requests which
failed together are not tried together (Brooker, "Exponential Backoff And Jitter", 2015).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_LEAST_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Wanted:
    """Content that requests wait for."""

    key: bytes
    """sha256 of their input."""
    input: bytes
    deadline_s: int
    """The latest of their deadlines, seconds since the epoch."""
    newest_request: int
    tries: int = 0
    """How often it was tried for them."""
    next_try_s: float = 0.0
    """Seconds since the epoch; 0 = at once."""
    told_of_room: bool = False
    """Whether its requests are told that it waits for room."""

    @property
    def host(self) -> str:
        """Whom it loads; by the text alone, and empty where there is no host."""
        try:
            return urlsplit(self.input[32:].decode(errors="replace")).netloc.lower()
        except ValueError:
            return ""


def next_try_s(
    tries: int, *, max_tries: int, now_s: float, latest_s: float, jitter: float
) -> float | None:
    """When to try again after so many failed tries, in seconds since the epoch; None = give up.

    `jitter` is uniform in [0, 1); after `latest_s` the content would be of no use.
    """
    if tries >= max_tries:
        return None
    bound_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(tries - 1, 16))
    at_s = now_s + max(_LEAST_PAUSE_S, jitter * bound_s)
    return at_s if at_s < latest_s else None


def due(
    wanted: Iterable[Wanted],
    running: Collection[Wanted],
    *,
    now_s: float,
    at_once: int,
    per_host: int,
) -> list[Wanted]:
    """What to begin now: those with the nearest deadline first, and so few of one host that a slow
    one does not hold up the others."""
    busy = {one.key for one in running}
    hosts = Counter(one.host for one in running)
    chosen: list[Wanted] = []
    for one in sorted(wanted, key=lambda one: (one.deadline_s, one.key)):
        if len(running) + len(chosen) >= at_once:
            break
        if one.key in busy or one.next_try_s > now_s or hosts[one.host] >= per_host:
            continue
        busy.add(one.key)
        hosts[one.host] += 1
        chosen.append(one)
    return chosen


def wake_at_s(wanted: Iterable[Wanted], now_s: float) -> float | None:
    """When the next of those that are not due yet will be; None = there is none."""
    return min((one.next_try_s for one in wanted if one.next_try_s > now_s), default=None)
