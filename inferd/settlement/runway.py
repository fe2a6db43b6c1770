"""Whether a balance pays for what is under way and waiting, and for how much more. Pure.

What is under way counts with the most it can still cost, what waits with what it is expected to.
New work is stopped before the balance is gone, so that what is under way can still be replaced at a
higher price. Amounts are wei.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from scheduler.model import GasModel

_BACK_NUMERATOR, _BACK_DENOMINATOR = 5, 4
"""Better than a threshold by a quarter ends what began below it: prices move with every block."""
_SECONDS_A_DAY = 86_400


class FundsState(StrEnum):
    """What the balance allows."""

    ENOUGH = "enough"
    LOW = "low"
    """It pays for what is known of, and not for much more: send ether."""
    SPENT = "spent"
    """Nothing new is planned; what is under way is followed to its end."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Both in results at what one is expected to cost now."""

    warn_results: int
    stop_results: int


@dataclass(frozen=True, slots=True)
class Projection:
    """What the balance has to pay for."""

    balance_wei: int
    in_flight_wei: int
    """The most that signed transactions can still cost."""
    waiting_wei: int
    """What results that wait for their post, and contracts that wait for their call, are expected
    to cost."""
    result_wei: int
    """What one more result is expected to cost, at the price of the next block."""

    @property
    def spend_wei(self) -> int:
        return self.in_flight_wei + self.waiting_wei

    @property
    def spare_wei(self) -> int:
        """Without what is under way; negative where that can cost more than there is."""
        return self.balance_wei - self.in_flight_wei

    @property
    def runway_results(self) -> int | None:
        """How many results the balance pays for, the waiting ones among them; None where gas costs
        nothing."""
        return max(self.spare_wei, 0) // self.result_wei if self.result_wei else None


def judge(before: FundsState, seen: Projection, thresholds: Thresholds) -> FundsState:
    """The state after `before`; total."""
    stop_wei = thresholds.stop_results * seen.result_wei
    warn_wei = seen.waiting_wei + thresholds.warn_results * seen.result_wei
    if before is FundsState.SPENT:
        stop_wei = _a_quarter_more(stop_wei)
    if before is not FundsState.ENOUGH:
        warn_wei = _a_quarter_more(warn_wei)
    if seen.spare_wei < stop_wei:
        return FundsState.SPENT
    return FundsState.LOW if seen.spare_wei < warn_wei else FundsState.ENOUGH


def best(states: Iterable[FundsState]) -> FundsState:
    """The state of who has most; ENOUGH of nobody."""
    order = (FundsState.ENOUGH, FundsState.LOW, FundsState.SPENT)
    return min(states, key=order.index, default=FundsState.ENOUGH)


def together(projections: Iterable[Projection | None]) -> Projection | None:
    """Of several balances; None where none is known."""
    known = [one for one in projections if one is not None]
    if not known:
        return None
    return Projection(
        balance_wei=sum(one.balance_wei for one in known),
        in_flight_wei=sum(one.in_flight_wei for one in known),
        waiting_wei=sum(one.waiting_wei for one in known),
        result_wei=max(one.result_wei for one in known),
    )


def gas_per_result(gas: GasModel, *, posts: int, groups: int, results: int) -> int:
    """Gas of a post for each result in it, rounded up, where posts are of the size that these had
    together; alone in its post where there was none."""
    if not results:
        return gas.of(1, 1)
    whole = gas.fixed_gas * posts + gas.per_group_gas * groups + gas.per_result_gas * results
    return -(-whole // results)


def runway_days(spare_wei: int, spent_wei: int, span_s: int) -> float | None:
    """For how long the balance lasts at the rate of the last time; None where nothing was spent."""
    if spent_wei <= 0 or span_s <= 0:
        return None
    return max(spare_wei, 0) * span_s / spent_wei / _SECONDS_A_DAY


def _a_quarter_more(wei: int) -> int:
    return -(-wei * _BACK_NUMERATOR // _BACK_DENOMINATOR)
