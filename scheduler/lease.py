"""How long a worker may take before a request goes to another one."""

from __future__ import annotations

import numpy as np

from scheduler.kinds import Floats, Ints

LEASE_P90S = 3.0
"""A lease is this many times the p90: beyond it, a lost worker is likelier than a slow one."""
MIN_LEASE_MS = 5_000
"""A shorter lease would expire on network delays alone."""


def lease_ms(p90_ms: Floats, budget_ms: Ints) -> Ints:
    """3 x p90, at least 5 s, never past deadline - inclusion."""
    longest = np.maximum((LEASE_P90S * p90_ms).astype(np.int64), MIN_LEASE_MS)
    lease: Ints = np.minimum(longest, budget_ms)
    return lease
