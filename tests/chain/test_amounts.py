"""Amounts to the wei, durations to the second, and clear words about everything else."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.chain.amounts import (
    BadAmount,
    BadDeadline,
    BadDuration,
    BadFee,
    Deadline,
    DeadlinePast,
    parse_amount_wei,
    parse_duration_s,
    parse_fee_wei,
    show_ether,
    show_ether_rounded,
)

NOW_S = 1_800_000_000


@pytest.mark.parametrize(
    ("text", "wei"),
    [
        ("0.01ether", 10**16),
        ("0.01 eth", 10**16),
        ("3gwei", 3 * 10**9),
        ("5000wei", 5000),
        (" 1 ETHER ", 10**18),
        ("0.000000000000000001ether", 1),
        ("1.000000000000000000000ether", 10**18),
        ("123456789.123456789123456789eth", 123456789123456789123456789),
        ("0wei", 0),
    ],
)
def test_amounts(text: str, wei: int) -> None:
    assert parse_amount_wei(text) == wei


@pytest.mark.parametrize(
    "text",
    [
        *("", "ether", "1", "1.ether", ".1ether", "-1gwei", "1e18wei", "1,5ether", "0.1wei"),
        *("1 finney", "0.0000000000000000001ether", "nan ether", "\u0661gwei", "1gwei gwei"),
        *("9" * 81 + "wei", "9" * 80 + "wei", "9" * 60 + "ether", "0x10wei", "1_000gwei"),
    ],
)
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(BadAmount) as refused:
        parse_amount_wei(text)

    assert repr(text) in refused.value.message
    assert refused.value.help_text


@given(st.integers(0, 2**256 - 1))
def test_every_amount_is_read_exactly(wei: int) -> None:
    with localcontext() as context:
        context.prec = 100
        ether = format(Decimal(wei) / 10**18, "f")

    assert parse_amount_wei(f"{ether}ether") == wei
    assert parse_amount_wei(show_ether(wei)) == wei
    assert parse_amount_wei(f"{wei}wei") == wei


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1.5gwei", "to 2gwei"),
        ("999999999wei", "to 1gwei"),
        ("0ether", "at least 1gwei"),
        ("281475ether", "at most 281474976710655gwei"),
    ],
)
def test_what_is_no_fee(text: str, words: str) -> None:
    with pytest.raises(BadFee) as refused:
        parse_fee_wei(text)

    assert words in refused.value.help_text


def test_the_largest_fee() -> None:
    assert parse_fee_wei("281474976710655gwei") == (2**48 - 1) * 10**9


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86_400), ("1h30m", 5400), (" 5M ", 300)],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "1.5h", "-5m", "1w", "5 m", "99999999999d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadDuration):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("text", "deadline_s"),
    [
        ("10m", NOW_S + 600),
        ("2030-01-01T00:00:00Z", 1_893_456_000),
        ("2030-01-01T02:00:00+02:00", 1_893_456_000),
    ],
)
def test_deadlines(text: str, deadline_s: int) -> None:
    assert Deadline.parse(text).at(NOW_S) == deadline_s


@pytest.mark.parametrize("text", ["2030-01-01T00:00:00", "2030-01-01", "2030-13-01T00:00:00Z"])
def test_a_deadline_without_zone_or_sense(text: str) -> None:
    with pytest.raises(BadDeadline):
        Deadline.parse(text)


@pytest.mark.parametrize("text", ["soon", "10", ""])
def test_what_is_no_deadline(text: str) -> None:
    with pytest.raises(BadDuration):
        Deadline.parse(text)


@pytest.mark.parametrize("text", ["0s", "2020-01-01T00:00:00Z", "1900-01-01T00:00:00Z"])
def test_a_deadline_that_has_passed(text: str) -> None:
    with pytest.raises(DeadlinePast, match="newest block"):
        Deadline.parse(text).at(NOW_S)


@pytest.mark.parametrize(
    ("wei", "shown"),
    [
        (0, "0.000000000"),
        (1, "0.000000000"),
        (-1, "0.000000000"),
        (10**9 // 2, "0.000000001"),
        (-(10**9) // 2, "-0.000000001"),
        (12 * 10**18 + 3 * 10**9, "12.000000003"),
        (-(10**18), "-1.000000000"),
    ],
)
def test_ether_rounded_to_gwei(wei: int, shown: str) -> None:
    assert show_ether_rounded(wei) == shown
