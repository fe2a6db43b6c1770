"""Shares sum to the wei, and nothing that is paid gets lost between requests."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import HOUR_S, Address
from inferd.node.account_lines import lines_of_transaction
from inferd.node.accounts import (
    AccountFlow,
    Day,
    Figures,
    Period,
    Report,
    attribute,
    date_of,
    fee_shares,
    split,
)

WEI = st.integers(0, 2**96)
WEIGHTS = st.lists(st.integers(0, 2**60), min_size=1, max_size=50)
OWN, STRANGER = Address(b"\x01" * 20), Address(b"\x02" * 20)
GWEI = 10**9


@given(WEI, WEIGHTS)
def test_split__sums_to_the_wei__and_is_within_one_of_its_part(
    amount: int, weights: list[int]
) -> None:
    shares = split(amount, weights)
    assert sum(shares) == amount
    whole = sum(weights)
    if whole:
        for share, weight in zip(shares, weights, strict=True):
            assert abs(share * whole - amount * weight) < whole
    else:
        assert max(shares) - min(shares) <= 1


def test_split__the_largest_remainders_are_rounded_up() -> None:
    assert split(10, [1, 1, 1]) == [4, 3, 3]
    assert split(10, [1, 2, 4]) == [1, 3, 6]
    assert split(7, [0, 5]) == [0, 7]
    with pytest.raises(ValueError, match="nobody"):
        split(1, [])


@given(WEI, st.lists(WEI, max_size=20))
def test_attribute__all_that_was_paid_belongs_somewhere(paid: int, due: list[int]) -> None:
    shares, rest = attribute(paid, due)
    assert sum(shares) + rest == paid
    assert len(shares) == len(due)
    assert all(0 <= share <= one for share, one in zip(shares, due, strict=True))
    if sum(due) <= paid:
        assert shares == due


@given(st.integers(0, 10_000), st.lists(st.integers(1, 2**48 - 1), min_size=1, max_size=20))
def test_fee_shares__are_the_contracts(bps: int, fees_gwei: list[int]) -> None:
    to_poster = sum(fees_gwei) * bps * (GWEI // 10_000)
    whole = sum(fees_gwei) * GWEI
    shares = [fee_shares(gwei * GWEI, to_poster, whole) for gwei in fees_gwei]
    assert sum(poster for poster, _ in shares) == to_poster
    assert [poster + worker for poster, worker in shares] == [gwei * GWEI for gwei in fees_gwei]


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_period__full_hours_around(begin: int, end: int) -> None:
    period = Period.around(begin, end)
    assert period.begin_s % HOUR_S == period.end_s % HOUR_S == 0
    assert 0 <= begin - period.begin_s < HOUR_S
    assert 0 <= period.end_s - end < HOUR_S


def test_sums() -> None:
    one = Figures(results=2, poster_fees_wei=5, worker_fees_wei=7, post_gas_wei=3, refund_gas_wei=1)
    two = Figures(results=1, delivery_gas_wei=20, wasted_gas_wei=2, wasted_transactions=1)
    days = (Day(date(2026, 1, 1), one), Day(date(2026, 1, 2), two))
    total = Report(Period(0, HOUR_S), days, ()).total
    assert (total.results, total.fees_wei, total.gas_wei, total.profit_wei) == (3, 12, 24, -12)
    assert total.wasted_gas_wei == 2
    flow = AccountFlow(OWN, 1, 2, -3, 4, 5) + AccountFlow(OWN, 1, 1, 1, 1, 1)
    assert flow == AccountFlow(OWN, 2, 3, -2, 5, 6)
    assert date_of(86_399) == date(1970, 1, 1)


# A transaction: who posts, what each worker is owned by, what each result paid, what the gas was.
TRANSACTIONS = st.fixed_dictionaries(
    {
        "bps": st.integers(0, 10_000),
        "poster_is_own": st.booleans(),
        "owners": st.lists(st.sampled_from([OWN, STRANGER]), min_size=1, max_size=3),
        "results": st.lists(
            st.tuples(st.integers(0, 2), st.integers(1, 2**40), st.booleans(), st.integers(1, 3)),
            max_size=12,
        ),
        "gas_wei": st.integers(0, 2**70),
        "forget": st.booleans(),
    }
)


def share_of(settled: dict[str, Any], worker: bytes, bps: int) -> int:
    """By the contract: equal parts, and what does not divide for the first."""
    signers = [settled["worker"], *(settled["others"] or ())]
    if worker not in signers:
        return 0
    fees_wei = settled["fee_wei"] - settled["fee_wei"] * bps // 10_000
    rest_wei = fees_wei % len(signers) if worker == signers[0] else 0
    return int(fees_wei // len(signers) + rest_wei)


def rows_of(world: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Items, payments and settled requests as the tables have them."""
    bps, owners = world["bps"], world["owners"]
    settled = []
    for n, (w, gwei, _, most) in enumerate(world["results"]):
        first, *others = sorted(
            bytes([(w + i) % len(owners)]) for i in range(min(most, len(owners)))
        )
        settled.append(
            {
                "id": n,
                "worker": first,
                "fee_wei": gwei * GWEI,
                "quorum": 1 + len(others),
                "others": others or None,
            }
        )
    paid = []
    for number, owner in enumerate(owners):
        amount = sum(share_of(one, bytes([number]), bps) for one in settled)
        if amount:
            paid.append(
                {
                    "role": "worker",
                    "account": owner,
                    "worker": bytes([number]),
                    "amount_wei": amount,
                }
            )
    to_poster = sum(one["fee_wei"] for one in settled) * bps // 10_000
    if to_poster:
        account = OWN if world["poster_is_own"] else STRANGER
        paid.append({"role": "poster", "account": account, "worker": None, "amount_wei": to_poster})
    items = [
        (n, "settled", 50_000 * n)
        for n, (_, _, in_hand, _) in enumerate(world["results"])
        if in_hand
    ]
    return items, paid, settled


@given(TRANSACTIONS, st.sampled_from(["post", "deliver", "refund"]))
def test_lines_of_a_transaction__sum_to_what_was_paid(world: dict[str, Any], kind: str) -> None:
    items, paid, settled = rows_of(world)
    known = settled[::2] if world["forget"] else settled
    cost = {"kind": kind, "gas_wei": world["gas_wei"], "intent_id": 1, "bond_wei": 0}
    lines = lines_of_transaction(1, b"t", cost, items, paid, known, frozenset({OWN}))
    own = [one for one in paid if one["account"] == OWN]
    for role, name in (("poster", "poster_fee_wei"), ("worker", "worker_fee_wei")):
        expected = sum(one["amount_wei"] for one in own if one["role"] == role)
        assert sum(getattr(line, name) for line in lines) == expected
    assert sum(line.gas_wei for line in lines) == world["gas_wei"]
    named = [line.request_id for line in lines if line.request_id is not None]
    assert len(named) == len(set(named))
    if not world["forget"]:
        by_id = {line.request_id: line for line in lines}
        for one in settled:
            poster = one["fee_wei"] * world["bps"] // 10_000
            own_wei = sum(
                share_of(one, bytes([number]), world["bps"])
                for number, owner in enumerate(world["owners"])
                if owner == OWN
            )
            line = by_id.get(one["id"])
            got = (line.poster_fee_wei, line.worker_fee_wei) if line else (0, 0)
            assert got == (
                poster if world["poster_is_own"] else 0,
                own_wei,
            )


def test_lines__gas_of_a_delivery_by_what_each_call_takes() -> None:
    cost = {"kind": "deliver", "gas_wei": 1_000, "intent_id": 1, "bond_wei": 0}
    calls = [(1, "delivered", 50_000), (2, "delivered", 950_000)]
    lines = lines_of_transaction(1, b"t", cost, calls, [], [], frozenset())
    assert [line.gas_wei for line in lines] == [50, 950]
    # Where a request is forgotten, nobody knows what its call took.
    calls = [(1, "delivered", None), (2, "delivered", 950_000)]
    lines = lines_of_transaction(1, b"t", cost, calls, [], [], frozenset())
    assert [line.gas_wei for line in lines] == [500, 500]


def test_lines__a_transaction_that_only_took_a_nonce_belongs_to_no_request() -> None:
    cost = {"kind": "post", "gas_wei": 7, "intent_id": 1, "bond_wei": 0}
    (line,) = lines_of_transaction(1, b"t", cost, [], [], [], frozenset())
    assert (line.request_id, line.gas_wei, line.profit_wei) == (None, 7, -7)
