"""The event loop before the threads beside it."""

from __future__ import annotations

import sys

_SWITCH_S = 0.001
"""How long the thread of a round or of a posting decision may keep the interpreter once the event
loop wants it. The loop asks for it anew after each wait for the network, so it pays this several
times for one answer."""


def give_way() -> None:
    """Of this process, threads let the event loop on within a millisecond from now on."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_S))
