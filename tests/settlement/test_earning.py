"""The price of a gas at which a transaction costs what it earns, at the prices of the moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inferd.settlement.data_fee import NO_DATA_PRICE, DataPrice
from inferd.settlement.earning import Earning

GAS = st.integers(21_000, 8_000_000)
earnings = st.builds(
    Earning,
    st.integers(0, 10**19),
    GAS,
    st.integers(0, 10**7),
    st.integers(0, 10**5),
    st.integers(0, 50),
)
prices = st.builds(DataPrice, st.integers(0, 10**15), st.integers(0, 10**13), st.integers(0, 10**9))
SIZES = st.integers(0, 100_000)


@given(earnings, prices, SIZES)
def test_at_break_even_it_is_no_loss_and_a_wei_more_is_one(
    earning: Earning, data: DataPrice, size: int
) -> None:
    gas = earning.gas + earning.later_gas
    beside_wei = data.of(size, earning.gas) + sum(
        (
            data.fixed_wei * earning.later_calls,
            data.per_byte_wei * earning.later_bytes,
            data.per_gas_wei * earning.later_gas,
        )
    )
    price_wei = earning.break_even_wei(size, data)
    assert (price_wei + 1) * gas + beside_wei > earning.revenue_wei
    if price_wei:
        assert price_wei * gas + beside_wei <= earning.revenue_wei


@given(earnings, prices, SIZES, st.integers(1, 5))
def test_dearer_bytes_leave_less_for_gas(
    earning: Earning, data: DataPrice, size: int, times: int
) -> None:
    dearer = DataPrice(data.fixed_wei * times, data.per_byte_wei * times, data.per_gas_wei * times)
    before, after = (earning.break_even_wei(size, one) for one in (data, dearer))
    assert after <= before <= earning.break_even_wei(size, NO_DATA_PRICE)


@given(earnings, prices, SIZES, st.integers(0, 100), st.integers(1, 100))
def test_what_is_left_is_never_worth_more_than_its_part(
    earning: Earning, data: DataPrice, size: int, part: int, whole: int
) -> None:
    left = earning.left(part, whole)
    if part >= whole:
        assert left == earning
        return
    assert left.gas == earning.gas
    assert left.revenue_wei * whole <= earning.revenue_wei * part
    assert left.later_gas * whole >= earning.later_gas * part
    assert earning.left(0, whole).break_even_wei(size, data) == 0


@given(earnings)
def test_it_is_read_as_it_was_stored(earning: Earning) -> None:
    inputs = {
        "revenue_wei": earning.revenue_wei,
        "estimated_gas": earning.gas,
        "later_gas": earning.later_gas,
        "later_bytes": earning.later_bytes,
        "later_calls": earning.later_calls,
    }
    assert Earning.stored(inputs, 1) == earning
    assert Earning.stored({"earned_wei": 7}, 30_000) == Earning(7, 30_000)
    assert Earning.stored({"nonce": 3}, 30_000) is None
