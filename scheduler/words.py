"""How the sentences of decisions write amounts and names."""

from __future__ import annotations

_WEI_PER_ETH = 10**18


def eth(wei: int) -> str:
    """An amount in ETH, exact to the wei and without an exponent."""
    whole, part = divmod(wei, _WEI_PER_ETH)
    if not part:
        return f"{whole} ETH"
    return f"{whole}.{part:018d}".rstrip("0") + " ETH"


def short(identity: bytes) -> str:
    """A model or worker by its first bytes: enough to recognise it, short enough to read."""
    return f"0x{identity[:4].hex()}…" if len(identity) > 4 else f"0x{identity.hex()}"


def count(number: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
