"""What a result has to earn to be worth its gas, exactly.

    need = ceil(post_wei * margin / results) + ceil(delivery_gas * price_wei * margin)

with delivery_gas what a delivery adds to the post, by the gas model that is fitted to receipts, and
what it takes later: the call of a contract, with its bytes as gas where they cost. A quorum of n
adds n - 1 signatures, each of which takes what a group takes, to a group that it may be alone in.

A post of `expected_batch` results is shared among them; it names at most as many workers as there
are, so at most that many groups. A result that must travel alone bears a whole post. The price is
today's base fee + tip. The margin covers the base fee's rise until the post, h blocks ahead:

    margin(h) = max(gas_margin, min(1.125^h, measured quantile of base fee then / base fee now))

as no block can raise the base fee by more than an eighth (EIP-1559); `scheduler.rises` measures the
quantile. Without a measurement the floor `gas_margin` stands alone.

Float columns sort out what is far from the edge; the rest is compared as integers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.kinds import Floats, Ints
from scheduler.model import Moment, PendingRequest, Rules
from scheduler.pending import DELIVERIES, PendingTable

_PPM = 1_000_000
_BPS = 10_000
EDGE = 1e-9
"""Relative distance below which floats do not decide on money."""


def poster_share_wei(fee_wei: int, rules: Rules) -> int:
    """The part of a fee that the poster earns whoever computed the result, in wei."""
    return fee_wei * rules.poster_bps // _BPS


def margins_ppm(rules: Rules) -> tuple[int, ...]:
    """The margin for each horizon of 1, 2, ... blocks; a further one takes the last."""
    floor_ppm = round(rules.gas_margin * _PPM)
    return tuple(
        max(floor_ppm, min(-(-_PPM * 9**blocks // 8**blocks), quantile_ppm))
        for blocks, quantile_ppm in enumerate(rules.base_fee_quantiles_ppm, start=1)
    ) or (floor_ppm,)


def joint_share_wei(fee_wei: int, quorum: int, own: int, rules: Rules) -> int:
    """What a quorum's result earns this operator at least, in wei: the poster's share, and that of
    `own` of the workers, who share the rest evenly."""
    poster_wei = poster_share_wei(fee_wei, rules)
    return poster_wei + (fee_wei - poster_wei) // quorum * own


class Cover:
    """The needs of one round."""

    def __init__(self, moment: Moment, workers: int) -> None:
        rules = moment.rules
        self._interval_s = rules.block_interval_s
        self._inclusion_s = rules.inclusion_s
        self.price_wei = moment.block.base_fee_wei + rules.priority_fee_wei
        self.margins_ppm = margins_ppm(rules)
        self.gas = moment.gas
        self._delivery_gas = np.array(
            [moment.gas.of_delivery(delivery) for delivery in DELIVERIES], np.float64
        )
        self._results = (1, max(1, rules.expected_batch))
        self._post_wei = tuple(
            moment.gas.of(max(1, min(results, workers)), results) * self.price_wei
            for results in self._results
        )
        self._shared_wei = [
            [-(-post_wei * margin_ppm // (results * _PPM)) for margin_ppm in self.margins_ppm]
            for post_wei, results in zip(self._post_wei, self._results, strict=True)
        ]
        self._shared_float = np.array(self._shared_wei, np.float64)

    def delivery_gas_of(self, request: PendingRequest) -> int:
        """What the request's delivery and its quorum take beyond a share of a post, exactly."""
        return (
            self.gas.of_delivery(request.delivery)
            + self.gas.of_later(request.later_gas, request.later_bytes)
            + self.quorum_gas(request.quorum)
        )

    def quorum_gas(self, quorum: int) -> int:
        """What the signatures take that one result needs beside its first."""
        return self.gas.per_group_gas * (quorum - 1)

    def delivery_gas(self, table: PendingTable, slots: Ints) -> Floats:
        """The same of rows of a table, as floats."""
        later_gas, later_bytes = table.later_gas[slots], table.later_bytes[slots]
        extra = self.gas.per_later_call_gas + float(self.gas.per_later_byte_gas) * later_bytes
        extra += np.ceil(later_gas * float(self.gas.per_later_gas_ppm) / _PPM)
        signatures = float(self.gas.per_group_gas) * (table.quorum[slots] - 1)
        gas: Floats = self._delivery_gas[table.delivery[slots]] + later_gas + signatures
        gas += np.where(later_bytes > 0, extra, 0.0)
        return gas

    def horizon(self, p90_ms: Floats) -> Ints:
        """The index in `margins_ppm` of results that take so long; any for an infinite time."""
        last = len(self.margins_ppm) - 1
        if not last or self._interval_s <= 0.0:
            return np.zeros(len(p90_ms), np.int64)
        blocks = np.ceil((p90_ms / 1000.0 + self._inclusion_s) / self._interval_s)
        index: Ints = np.clip(blocks - 1.0, 0, last).astype(np.int64)
        return index

    def need_wei(self, horizon: int, delivery_gas: int, *, batchable: bool) -> int:
        """The exact need of one result, in wei."""
        shared_wei = self._shared_wei[batchable][horizon]
        if not delivery_gas:
            return shared_wei
        delivery_ppm = delivery_gas * self.price_wei * self.margins_ppm[horizon]
        return shared_wei - (-delivery_ppm // _PPM)

    def cost_wei(self, delivery_gas: int, *, batchable: bool) -> int:
        """The exact expected gas of one result without the margin, in wei."""
        share_wei = -(-self._post_wei[batchable] // self._results[batchable])
        return share_wei + delivery_gas * self.price_wei

    def needs(self, horizon: Ints, delivery_gas: Floats, batchable: NDArray[np.bool_]) -> Floats:
        """The needs as floats, in wei, exact to about 1e-15."""
        margins = np.array(self.margins_ppm, np.float64) / _PPM
        delivery = delivery_gas * float(self.price_wei) * margins[horizon]
        needs: Floats = self._shared_float[batchable.astype(np.int64), horizon] + delivery
        return needs

    def costs(self, delivery_gas: Floats, batchable: NDArray[np.bool_]) -> Floats:
        """The expected gas without the margin, in wei."""
        shares = np.array(self._post_wei, np.float64) / np.array(self._results)
        costs: Floats = shares[batchable.astype(np.int64)] + delivery_gas * float(self.price_wei)
        return costs
