"""What deliveries take beyond their results' share of a post, in gas.

`tests/settlement/test_delivering.py` and `inferd bench gas` measure against these figures.
"""

from __future__ import annotations

from typing import Final

from inferd.protocol.request import Delivery

_SETTLING_GAS: Final = {Delivery.EVENT: 0, Delivery.STORED: 3_600, Delivery.CALLBACK: 4_600}
"""In a post of twenty or more: a word is written where that of an event is cleared."""
TRANSACTION_GAS: Final = 25_000
"""Of a transaction that delivers, besides its claims."""
_CLAIM_GAS: Final = 20_000
"""Of one claim, its consumer failing: two calls of the request contract, what it returned, events."""
_CALLDATA_GAS_PER_BYTE: Final = 48
"""40 of the calldata floor (EIP-7623), and the copies that are hashed and handed over."""
_CLAIM_BYTES: Final = 640
"""Of one claim, besides input and output."""
_MAX_CALLDATA_BYTES: Final = 120_000
"""Clients pass on no transaction of more than 131,072 bytes (go-ethereum `txMaxSize`)."""
_BYTES_PER_TOKEN: Final = 8
_BYTES_WITHOUT_TOKENS: Final = 4_096
"""Where a model knows no tokens: an embedding of 256 dimensions takes 2,600."""
_CALL_SHARE: Final = 63
"""A call gets at most 63/64 of the gas there is (EIP-150)."""


def settling_gas(delivery: Delivery) -> int:
    """What a result takes more in a post than one whose delivery is its event."""
    return _SETTLING_GAS[delivery]


def claim_gas(callback_gas_limit: int, data_bytes: int) -> int:
    """What one claim takes at most in a transaction that delivers; `data_bytes` are those of input
    and output."""
    calldata_gas = _CALLDATA_GAS_PER_BYTE * (_CLAIM_BYTES + data_bytes)
    return _CLAIM_GAS + callback_gas_limit + callback_gas_limit // _CALL_SHARE + calldata_gas


def claims_fit(gas: int, claims: int, data_bytes: int, max_gas: int) -> bool:
    """Whether one transaction can hold claims of so much gas and data together."""
    within_gas = TRANSACTION_GAS + gas <= max_gas
    return within_gas and _CLAIM_BYTES * claims + data_bytes <= _MAX_CALLDATA_BYTES


def delivery_gas(
    delivery: Delivery, callback_gas_limit: int, input_bytes: int, max_tokens: int
) -> int:
    """What a request's delivery takes, of a callback in a transaction of its own; how long its
    output will be is a guess."""
    if delivery is not Delivery.CALLBACK:
        return settling_gas(delivery)
    output_bytes = _BYTES_PER_TOKEN * max_tokens or _BYTES_WITHOUT_TOKENS
    call_gas = claim_gas(callback_gas_limit, input_bytes + output_bytes)
    return settling_gas(delivery) + TRANSACTION_GAS + call_gas


def fits_sql(callback_gas_limit: str, data_bytes: str, max_gas: str) -> str:
    """`claims_fit` of one claim, over SQL expressions."""
    return (
        f"{_CLAIM_BYTES} + {data_bytes} <= {_MAX_CALLDATA_BYTES}"
        f" AND {TRANSACTION_GAS + _CLAIM_GAS} + {callback_gas_limit}"
        f" + {callback_gas_limit} / {_CALL_SHARE}"
        f" + {_CALLDATA_GAS_PER_BYTE} * ({_CLAIM_BYTES} + {data_bytes})::bigint <= {max_gas}"
    )
