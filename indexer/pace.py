"""How long a backfill still takes. Pure: the time is given."""

from __future__ import annotations

from collections import deque

_MEASURED_S = 30.0


class Pace:
    """Blocks per second over the last half minute, as ranges differ in how much is in them."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def reached(self, number: int, now_s: float) -> None:
        """All blocks up to this one are written."""
        self._marks.append((now_s, number))
        while len(self._marks) > 2 and self._marks[1][0] < now_s - _MEASURED_S:
            self._marks.popleft()

    def left_s(self, target: int) -> float | None:
        """Until block `target`, at that speed; None while it is not known."""
        if len(self._marks) < 2:
            return None
        (began_s, first), (now_s, last) = self._marks[0], self._marks[-1]
        if last <= first:
            return None
        return max(0, target - last) * (now_s - began_s) / (last - first)
