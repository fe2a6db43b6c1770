"""Whole numbers as PostgreSQL's numeric in its binary form, which COPY needs.

Layout: four 16-bit fields (count of digits, weight, sign, digits after the point), then the digits
to the base 10,000, most significant first; the first is worth 10,000 ** weight.
"""

from __future__ import annotations

import struct

_BASE = 10_000
_POSITIVE, _NEGATIVE = 0x0000, 0x4000
_HEAD = struct.Struct("!hhHH")
_FOUR_DIGITS = struct.Struct("!hhHHhhhh")


def encode_numeric(value: int) -> bytes:
    """Raises ValueError where the number has more digits than a numeric can."""
    if 0 <= value < _BASE**4:
        # Most amounts. The server drops zeros in front by itself.
        upper, lower = divmod(value, _BASE**2)
        return _FOUR_DIGITS.pack(4, 3, _POSITIVE, 0, *divmod(upper, _BASE), *divmod(lower, _BASE))
    digits = []
    rest = abs(value)
    while rest:
        rest, digit = divmod(rest, _BASE)
        digits.append(digit)
    weight = len(digits) - 1
    lowest = 0
    while lowest < len(digits) and not digits[lowest]:
        lowest += 1
    digits = digits[lowest:][::-1]
    try:
        head = _HEAD.pack(len(digits), weight, _NEGATIVE if value < 0 else _POSITIVE, 0)
    except struct.error:
        raise ValueError("a numeric does not hold so many digits") from None
    return head + struct.pack(f"!{len(digits)}h", *digits)


def decode_numeric(data: bytes) -> int:
    """Raises ValueError where the number has a fraction, is infinite or none at all."""
    count, weight, sign, _ = _HEAD.unpack_from(data)
    digits = struct.unpack_from(f"!{count}h", data, _HEAD.size)
    if sign not in {_POSITIVE, _NEGATIVE} or count > weight + 1:
        raise ValueError("a numeric that is no whole number")
    value = 0
    for digit in digits:
        value = value * _BASE + digit
    value *= int(_BASE ** (weight + 1 - count))
    return -value if sign == _NEGATIVE else value
