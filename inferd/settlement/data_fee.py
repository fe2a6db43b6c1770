"""What a transaction costs beside its gas, where a chain takes more than gas. Pure.

On a chain of the OP stack a transaction pays for its bytes on the chain below as well, outside its
gas limit and without a field in which it could offer less (the L1 data fee, and since Isthmus the
operator fee). It is linear in the compressed size above a least one (Fjord), and ours are alike:
so two of them, of different lengths, tell what any costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import shake_256

from indexer.types import ZERO_HASH
from inferd.protocol import calls
from inferd.protocol.typed_data import CompactSignature
from scheduler.model import DataFee, GasModel

_ITEM_BYTES = 60
_SIGNATURE_BYTES = 64
_SAMPLE_ITEMS = (1, 64)
OPERATOR_SAMPLE_GAS = 1_000_000
_PPM = 1_000_000
_MOST_PPM = 1_000 * _PPM
"""Of a later gas: nothing pays for a thousand times its gas."""
_RESERVED = 2
"""Times the fee of now: the price of the chain below can double within six of its blocks."""


@dataclass(frozen=True, slots=True)
class DataPrice:
    """What is paid beside gas, in wei; all 0 where gas is all there is to pay."""

    fixed_wei: int = 0
    """Of a transaction without calldata."""
    per_byte_wei: int = 0
    """Of calldata."""
    per_gas_wei: int = 0

    def of(self, calldata_bytes: int, gas: int) -> int:
        """At the prices of now."""
        return self.fixed_wei + self.per_byte_wei * calldata_bytes + self.per_gas_wei * gas

    def reserve(self, calldata_bytes: int, gas_limit: int) -> int:
        """What is kept for a transaction that is under way, and may be mined at another price."""
        return _RESERVED * self.of(calldata_bytes, gas_limit)

    def of_posts(self) -> DataFee:
        """The same by what is in a post."""
        empty, group_bytes = _post_bytes()
        return DataFee(
            fixed_wei=self.fixed_wei + self.per_byte_wei * empty,
            per_group_wei=self.per_byte_wei * group_bytes,
            per_result_wei=self.per_byte_wei * _ITEM_BYTES,
            per_gas_wei=self.per_gas_wei,
        )


NO_DATA_PRICE = DataPrice()


def as_gas(gas: GasModel, data: DataPrice, price_wei: int) -> GasModel:
    """A post's gas, and that of what follows from it, with its fee counted as gas of that price:
    for who reckons in gas alone.

    Without a price it is the gas alone.
    """
    if price_wei <= 0:
        return gas
    fee = data.of_posts()

    def with_fee(own_gas: int, fee_wei: int) -> int:
        return own_gas - (-(fee_wei + fee.per_gas_wei * own_gas) // price_wei)

    return GasModel(
        fixed_gas=with_fee(gas.fixed_gas, fee.fixed_wei),
        per_group_gas=with_fee(gas.per_group_gas, fee.per_group_wei),
        per_result_gas=with_fee(gas.per_result_gas, fee.per_result_wei),
        per_stored_gas=with_fee(gas.per_stored_gas, 0),
        per_callback_gas=with_fee(gas.per_callback_gas, 0),
        per_later_call_gas=-(-data.fixed_wei // price_wei),
        per_later_byte_gas=-(-data.per_byte_wei // price_wei),
        per_later_gas_ppm=min(-(-data.per_gas_wei * _PPM // price_wei), _MOST_PPM),
    )


@cache
def samples() -> tuple[bytes, ...]:
    """Calldata of two posts, a short and a long one, as they are but for what is in them."""
    return tuple(_post_of(items) for items in _SAMPLE_ITEMS)


def data_price(fees_wei: tuple[int, int], operator_wei: tuple[int, int]) -> DataPrice:
    """From the fees of transactions with `samples`, and the operator's fees for no gas and for
    `OPERATOR_SAMPLE_GAS`."""
    short, long = (len(sample) for sample in samples())
    per_byte_wei = max(-(-(fees_wei[1] - fees_wei[0]) // (long - short)), 0)
    operator_fixed_wei, operator_wei_of_sample = operator_wei
    return DataPrice(
        fixed_wei=max(fees_wei[0] - per_byte_wei * short, 0) + operator_fixed_wei,
        per_byte_wei=per_byte_wei,
        per_gas_wei=max(
            -(-(operator_wei_of_sample - operator_fixed_wei) // OPERATOR_SAMPLE_GAS), 0
        ),
    )


def _post_of(items: int) -> bytes:
    # Nothing in it repeats, as in signatures, commitments and digests.
    content = shake_256(b"post").digest(_SIGNATURE_BYTES + _ITEM_BYTES * items)
    signature = CompactSignature(content[:_SIGNATURE_BYTES])
    return calls.post([(content[_SIGNATURE_BYTES:], [signature])], ZERO_HASH)


@cache
def _post_bytes() -> tuple[int, int]:
    """Calldata of an empty post, and of a group in it beside its items."""
    empty = len(calls.post([], ZERO_HASH))
    return empty, len(_post_of(1)) - empty - _ITEM_BYTES
