"""JSON as nodes write it -> our values. Every field is checked; nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from indexer.rpc.types import FeeHistory, Header, RawLog, Receipt
from indexer.types import Address, Hash32, Wei

T = TypeVar("T")

_INT64_LIMIT = 1 << 63
_INT32_LIMIT = 1 << 31
_UINT256_LIMIT = 1 << 256


class ErrorObject(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Any = None


class Answer(msgspec.Struct):
    """One JSON-RPC response; `result` unset is not `result: null`."""

    id: int | str | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: ErrorObject | None = None


class _Block(msgspec.Struct, rename="camel"):
    number: str
    hash: str
    parent_hash: str
    timestamp: str
    gas_used: str
    gas_limit: str
    logs_bloom: str
    base_fee_per_gas: str | None = None


class _Log(msgspec.Struct, rename="camel", gc=False):
    address: str
    topics: list[str]
    data: str
    block_number: str
    block_hash: str
    transaction_hash: str
    transaction_index: str
    log_index: str
    removed: bool = False


class _Receipt(msgspec.Struct, rename="camel"):
    transaction_hash: str
    transaction_index: str
    block_number: str
    block_hash: str
    status: str
    gas_used: str
    effective_gas_price: str
    from_: str = msgspec.field(name="from")
    logs: list[_Log]
    to: str | None = None
    contract_address: str | None = None
    l1_fee: str | None = None


class _ReceiptLogs(msgspec.Struct, rename="camel"):
    """What a receipt says of logs; whatever else chains put into their receipts is not read."""

    block_hash: str
    logs: list[_Log]


class _BlockTransactions(msgspec.Struct):
    transactions: list[str]


class _FeeHistory(msgspec.Struct, rename="camel"):
    oldest_block: str
    base_fee_per_gas: list[str]
    gas_used_ratio: list[float]
    reward: list[list[str]] | None = None


answer_decoder = msgspec.json.Decoder(Answer)
batch_decoder = msgspec.json.Decoder(list[Answer] | Answer)
_block_decoder = msgspec.json.Decoder(_Block | None)
_logs_decoder = msgspec.json.Decoder(list[_Log])
_receipt_decoder = msgspec.json.Decoder(_Receipt | None)
_receipt_logs_decoder = msgspec.json.Decoder(_ReceiptLogs | None)
_block_receipts_decoder = msgspec.json.Decoder(list[_ReceiptLogs] | None)
_transactions_decoder = msgspec.json.Decoder(_BlockTransactions | None)
_fees_decoder = msgspec.json.Decoder(_FeeHistory)
_string_decoder = msgspec.json.Decoder(str)


def quantity(text: str, limit: int = _UINT256_LIMIT) -> int:
    """A hexadecimal number below `limit`. Raises ValueError."""
    if not text.startswith("0x") or len(text) > 66:
        raise ValueError(f"{text[:70]!r} is no quantity")
    value = int(text, 16)
    if value >= limit:
        raise ValueError(f"{text} is out of range")
    return value


def octets(text: str, length: int | None = None) -> bytes:
    """Hexadecimal bytes, `length` of them where given. Raises ValueError."""
    if not text.startswith("0x"):
        raise ValueError(f"{text[:70]!r} is no hexadecimal data")
    value = bytes.fromhex(text[2:])
    if length is not None and len(value) != length:
        raise ValueError(f"{len(value)} bytes where {length} belong")
    return value


def to_hex(value: bytes | int) -> str:
    """A quantity for a number, data for bytes."""
    return hex(value) if isinstance(value, int) else "0x" + value.hex()


def parse_quantity(raw: msgspec.Raw) -> int:
    return quantity(_string_decoder.decode(raw))


def parse_octets(raw: msgspec.Raw) -> bytes:
    return octets(_string_decoder.decode(raw))


def parse_hash(raw: msgspec.Raw) -> Hash32:
    return Hash32(octets(_string_decoder.decode(raw), 32))


def parse_header(raw: msgspec.Raw) -> Header | None:
    block = _block_decoder.decode(raw)
    if block is None:
        return None
    return Header(
        number=quantity(block.number, _INT64_LIMIT),
        hash=Hash32(octets(block.hash, 32)),
        parent_hash=Hash32(octets(block.parent_hash, 32)),
        timestamp_s=quantity(block.timestamp, _INT64_LIMIT),
        base_fee_wei=Wei(quantity(block.base_fee_per_gas) if block.base_fee_per_gas else 0),
        has_base_fee=block.base_fee_per_gas is not None,
        gas_used=quantity(block.gas_used, _INT64_LIMIT),
        gas_limit=quantity(block.gas_limit, _INT64_LIMIT),
        logs_bloom=octets(block.logs_bloom, 256),
    )


def parse_logs(raw: msgspec.Raw) -> list[RawLog]:
    return _logs(_logs_decoder.decode(raw))


def parse_receipt(raw: msgspec.Raw) -> Receipt | None:
    receipt = _receipt_decoder.decode(raw)
    if receipt is None:
        return None
    return Receipt(
        tx_hash=Hash32(octets(receipt.transaction_hash, 32)),
        tx_index=quantity(receipt.transaction_index, _INT32_LIMIT),
        block_number=quantity(receipt.block_number, _INT64_LIMIT),
        block_hash=Hash32(octets(receipt.block_hash, 32)),
        succeeded=bool(quantity(receipt.status, 2)),
        gas_used=quantity(receipt.gas_used, _INT64_LIMIT),
        effective_gas_price_wei=Wei(quantity(receipt.effective_gas_price)),
        sender=Address(octets(receipt.from_, 20)),
        to=_optional_address(receipt.to),
        contract_address=_optional_address(receipt.contract_address),
        logs=tuple(_logs(receipt.logs)),
        l1_fee_wei=Wei(quantity(receipt.l1_fee) if receipt.l1_fee else 0),
    )


def parse_receipt_logs(raw: msgspec.Raw) -> tuple[Hash32, list[RawLog]] | None:
    """The hash of the block a receipt belongs to, and its logs."""
    receipt = _receipt_logs_decoder.decode(raw)
    return None if receipt is None else _block_and_logs(receipt)


def parse_block_receipts(raw: msgspec.Raw) -> list[tuple[Hash32, list[RawLog]]] | None:
    receipts = _block_receipts_decoder.decode(raw)
    return None if receipts is None else [_block_and_logs(receipt) for receipt in receipts]


def parse_transaction_hashes(raw: msgspec.Raw) -> list[Hash32] | None:
    """Of a block that was asked for without the transactions themselves."""
    block = _transactions_decoder.decode(raw)
    return None if block is None else [Hash32(octets(text, 32)) for text in block.transactions]


def parse_fee_history(raw: msgspec.Raw) -> FeeHistory:
    fees = _fees_decoder.decode(raw)
    return FeeHistory(
        oldest_block=quantity(fees.oldest_block, _INT64_LIMIT),
        base_fees_wei=tuple(Wei(quantity(fee)) for fee in fees.base_fee_per_gas),
        gas_used_ratios=tuple(fees.gas_used_ratio),
        rewards_wei=tuple(
            tuple(Wei(quantity(tip)) for tip in block) for block in fees.reward or ()
        ),
    )


def parse_presence(raw: msgspec.Raw) -> bool:
    return bytes(raw) != b"null"


def _optional_address(text: str | None) -> Address | None:
    return None if text is None else Address(octets(text, 20))


def _block_and_logs(receipt: _ReceiptLogs) -> tuple[Hash32, list[RawLog]]:
    return Hash32(octets(receipt.block_hash, 32)), _logs(receipt.logs)


class _Once(dict[str, T]):
    """Texts that were read, with their values: the logs of an answer share most of theirs."""

    def __init__(self, read: Callable[[str], T]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, text: str) -> T:
        value = self[text] = self._read(text)
        return value


def _logs(entries: Sequence[_Log]) -> list[RawLog]:
    addresses = _Once(lambda text: Address(octets(text, 20)))
    words = _Once(lambda text: Hash32(octets(text, 32)))
    int64s = _Once(lambda text: quantity(text, _INT64_LIMIT))
    int32s = _Once(lambda text: quantity(text, _INT32_LIMIT))
    if any(entry.removed for entry in entries):
        raise ValueError("a log that was removed by a reorganisation")
    return [
        RawLog(
            addresses[entry.address],
            tuple([words[topic] for topic in entry.topics]),
            octets(entry.data),
            int64s[entry.block_number],
            words[entry.block_hash],
            words[entry.transaction_hash],
            int32s[entry.transaction_index],
            int32s[entry.log_index],
        )
        for entry in entries
    ]
