"""What a delivery takes beyond an event: bounds that hold whatever a consumer does. Pure."""

from __future__ import annotations

from inferd.protocol.request import Delivery

DELIVER_GAS = 25_000
"""Of a transaction that delivers, beside its claims."""
MAX_DELIVER_BYTES = 120_000
"""Of inputs, outputs and parameters in one transaction. Clients refuse transactions of more than
131,072 bytes (go-ethereum `txMaxSize`)."""

STORED_GAS = 4_300
"""What a digest takes more in a post than an event: its word is written and not cleared, and the
refund for clearing it is lost. In a batch; alone, or in a fresh word of 256 ids, it takes more,
which the margin of admission covers. This and the next are what a node takes them for until it has
receipts."""
OWED_GAS = 5_000
"""The same of a debt, whose key is hashed besides."""
_CLAIM_GAS = 30_000
"""Of one delivery beside the consumer's gas and the bytes: two calls of the request contract, an
event, and the reserve without which `ExactGas` refuses to call."""
_GAS_PER_BYTE = 48
"""40 of the calldata floor (EIP-7623), and the copies that are hashed and handed over."""
_PARAMS_BYTES = 640
_BYTES_PER_TOKEN = 8

CLAIM_BYTES_SQL = f"({_PARAMS_BYTES} + content_bytes)"
"""`claim_bytes` of a row with `content_bytes`."""
CLAIM_GAS_SQL = (
    f"({_CLAIM_GAS} + callback_gas_limit + callback_gas_limit / 63"
    f" + {_GAS_PER_BYTE} * {CLAIM_BYTES_SQL})"
)
"""`claim_gas` of a row with `callback_gas_limit` and `content_bytes`."""


def claim_bytes(content_bytes: int) -> int:
    """Calldata of one delivery whose input and output have `content_bytes` together."""
    return _PARAMS_BYTES + content_bytes


def claim_gas(callback_gas_limit: int, content_bytes: int) -> int:
    """The most that one delivery takes, beside `DELIVER_GAS`.

    A call gets at most 63/64 of the gas there is (EIP-150), so that much more must be left over.
    """
    call_gas = callback_gas_limit + callback_gas_limit // 63
    return _CLAIM_GAS + call_gas + _GAS_PER_BYTE * claim_bytes(content_bytes)


def fits(callback_gas_limit: int, content_bytes: int, max_gas: int) -> bool:
    """Whether a transaction of at most `max_gas` can deliver it."""
    gas = DELIVER_GAS + claim_gas(callback_gas_limit, content_bytes)
    return gas <= max_gas and claim_bytes(content_bytes) <= MAX_DELIVER_BYTES


def expected_bytes(input_bytes: int, max_tokens: int) -> int:
    """Input and output of a request that is still to be computed; a token is taken for eight
    bytes."""
    return input_bytes + _BYTES_PER_TOKEN * max_tokens


def later_gas(
    delivery: Delivery, callback_gas_limit: int, input_bytes: int, max_tokens: int
) -> int:
    """What a request's delivery takes after the post, in a transaction of its own; what it adds to
    the post is in the gas model."""
    if delivery is not Delivery.CALLBACK:
        return 0
    return DELIVER_GAS + claim_gas(callback_gas_limit, expected_bytes(input_bytes, max_tokens))


def later_bytes(delivery: Delivery, input_bytes: int, max_tokens: int) -> int:
    """The calldata of that transaction."""
    if delivery is not Delivery.CALLBACK:
        return 0
    return claim_bytes(expected_bytes(input_bytes, max_tokens))


def undeliverable(
    delivery: Delivery, callback_gas_limit: int, input_bytes: int, max_tokens: int, max_gas: int
) -> str | None:
    """Why no transaction of at most `max_gas` could deliver the result, in words; else None."""
    content_bytes = expected_bytes(input_bytes, max_tokens)
    if delivery is not Delivery.CALLBACK or fits(callback_gas_limit, content_bytes, max_gas):
        return None
    gas = DELIVER_GAS + claim_gas(callback_gas_limit, content_bytes)
    return (
        f"a callback with {content_bytes} bytes of input and output that may take {gas} gas, where "
        f"a transaction carries {MAX_DELIVER_BYTES - _PARAMS_BYTES} bytes and {max_gas} gas at most"
    )
