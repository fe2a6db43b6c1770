"""Amounts, durations and deadlines as people write them, read exactly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from indexer.errors import OperatorError
from indexer.types import WEI_PER_GWEI, Wei

_WEI_DIGITS = {"wei": 0, "gwei": 9, "ether": 18, "eth": 18}
_AMOUNT = re.compile(r"([0-9]{1,80})(?:\.([0-9]{1,80}))?\s*([a-z]+)", re.ASCII)
_MAX_WEI = 2**256 - 1
_MAX_FEE_GWEI = 2**48 - 1

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(?:[0-9]{1,12}[smhd])+", re.ASCII)
_DURATION_PART = re.compile(r"([0-9]+)([smhd])", re.ASCII)
_MAX_TIME_S = 2**40 - 1
"""The width of a deadline on chain."""


class BadAmount(OperatorError):
    """A text is not an amount of money."""

    code: ClassVar[str] = "bad_amount"


class BadFee(OperatorError):
    """An amount cannot be a request's fee."""

    code: ClassVar[str] = "bad_fee"


class BadDuration(OperatorError):
    """A text is not a span of time."""

    code: ClassVar[str] = "bad_duration"


class BadDeadline(OperatorError):
    """A text is not a deadline."""

    code: ClassVar[str] = "bad_deadline"


class DeadlinePast(OperatorError):
    """A deadline is not after the newest block."""

    code: ClassVar[str] = "deadline_past"


def parse_amount_wei(text: str, *, name: str = "amount") -> Wei:
    """`0.01ether`, `3 gwei`, `5000wei` in wei; `name` names it in errors. Raises BadAmount."""
    match = _AMOUNT.fullmatch(text.strip().lower())
    if match is None or match[3] not in _WEI_DIGITS:
        raise BadAmount(
            f"{text!r} is no {name}",
            help_text="write a number with its unit, like 0.01ether, 3gwei or 5000wei",
        )
    whole, fraction, digits = match[1], (match[2] or "").rstrip("0"), _WEI_DIGITS[match[3]]
    if len(fraction) > digits:
        raise BadAmount(
            f"{text!r} is no whole number of wei", help_text="leave out digits below one wei"
        )
    wei = int(whole + fraction.ljust(digits, "0"))
    if wei > _MAX_WEI:
        raise BadAmount(f"{text!r} is more than there can be", help_text="look at the unit")
    return Wei(wei)


def parse_fee_wei(text: str) -> Wei:
    """A request's fee in wei: whole gwei, more than nothing. Raises BadAmount, BadFee."""
    fee_wei = parse_amount_wei(text, name="fee")
    gwei, rest = divmod(fee_wei, WEI_PER_GWEI)
    if rest:
        raise BadFee(
            f"the fee {text!r} is no whole number of gwei",
            help_text=f"round it, for example to {gwei + 1}gwei",
        )
    if not gwei:
        raise BadFee("the fee is zero", help_text="offer at least 1gwei")
    if gwei > _MAX_FEE_GWEI:
        raise BadFee(
            f"the fee {text!r} is more than the contract can hold",
            help_text=f"offer at most {_MAX_FEE_GWEI}gwei",
        )
    return fee_wei


def show_ether(wei: int) -> str:
    """An amount in ether, exact to the wei: `0.01 ether`."""
    whole, rest = divmod(wei, 10**18)
    fraction = f".{rest:018d}".rstrip("0") if rest else ""
    return f"{whole}{fraction} ether"


def show_ether_rounded(wei: int) -> str:
    """Ether to nine digits, which are gwei, the last one rounded half up: `-0.000123457`."""
    gwei = (abs(wei) + WEI_PER_GWEI // 2) // WEI_PER_GWEI
    sign = "-" if wei < 0 and gwei else ""
    return f"{sign}{gwei // 10**9}.{gwei % 10**9:09d}"


def parse_duration_s(text: str) -> int:
    """`90s`, `10m`, `2h`, `1d` or a sum like `1h30m`, in seconds. Raises BadDuration."""
    compact = text.strip().lower()
    if _DURATION.fullmatch(compact) is None:
        raise BadDuration(
            f"{text!r} is no span of time", help_text="write it like 90s, 10m, 2h, 1d or 1h30m"
        )
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(compact))
    if seconds > _MAX_TIME_S:
        raise BadDuration(f"{text!r} is too long", help_text="choose a shorter one")
    return seconds


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time, or a span that starts at the chain's newest block."""

    seconds: int
    relative: bool

    @classmethod
    def parse(cls, text: str) -> Deadline:
        """A duration, or an ISO 8601 time with its zone. Raises BadDeadline, BadDuration."""
        compact = text.strip()
        try:
            moment = datetime.fromisoformat(compact)
        except ValueError:
            if "-" in compact or ":" in compact:
                raise _bad_deadline(text) from None
            return cls(parse_duration_s(compact), relative=True)
        if moment.tzinfo is None:
            raise BadDeadline(
                f"the deadline {text!r} does not say in which time zone",
                help_text="add it, like 2030-01-31T12:00:00Z or 2030-01-31T12:00:00+02:00",
            )
        try:
            return cls(int(moment.timestamp()), relative=False)
        except (ValueError, OverflowError):
            raise _bad_deadline(text) from None

    def at(self, now_s: int) -> int:
        """As a Unix time, where the newest block's is `now_s`. Raises DeadlinePast."""
        deadline_s = now_s + self.seconds if self.relative else self.seconds
        if deadline_s <= now_s:
            raise DeadlinePast(
                f"the deadline is {now_s - deadline_s} s before the chain's newest block"
                if deadline_s < now_s
                else "the deadline is the time of the chain's newest block",
                help_text="choose a later one, like 10m",
            )
        return min(deadline_s, _MAX_TIME_S)


def _bad_deadline(text: str) -> BadDeadline:
    return BadDeadline(
        f"{text!r} is no deadline",
        help_text="write a span like 10m, or a time like 2030-01-31T12:00:00Z",
    )
