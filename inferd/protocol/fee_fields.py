"""How a transaction says what it offers for gas, in web3's field names. Pure."""

from __future__ import annotations


def fee_fields(max_fee_wei: int, priority_fee_wei: int, *, dynamic: bool) -> dict[str, int]:
    """Of type 2 (EIP-1559), or of type 0 with a gas price where it is not `dynamic`; the type of
    that is in no field, and its price is the maximum. Wei per gas."""
    if not dynamic:
        return {"gasPrice": max_fee_wei}
    return {
        "type": 2,
        "maxFeePerGas": max_fee_wei,
        "maxPriorityFeePerGas": priority_fee_wei,
    }
