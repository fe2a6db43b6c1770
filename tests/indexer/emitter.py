"""Contracts that emit whatever logs they are told to, in the places of a deployment's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from indexer.rpc import Rpc
from indexer.rpc.wire import to_hex
from indexer.types import Address, Contracts, Hash32

HOMES = tuple(Address(bytes([0xE0 + place]) * 20) for place in range(5))
_TOPICS_AT = 0x60
_DATA_AT = 0xE0
_MOST_GAS = 16_000_000


def _code() -> bytes:
    """EVM code. Calldata: words `topics`, `times`, `data bytes`, four topics; then the data.

    It emits the same log `times` times with its second topic counted up, its data padded with
    zeros to the number of bytes.
    """
    copy = bytes([0x60, _DATA_AT, 0x36, 0x03, 0x60, _DATA_AT, 0x60, 0, 0x37, 0x60, 0])
    loop = len(copy)
    # Each of the five ways has its label; places are filled in once lengths are known.
    ways = [_way(count) for count in range(5)]
    head = bytes([0x5B, 0x80, 0x60, 0x20, 0x35, 0x14, 0x61])  # i == times?
    dispatch_size = 10
    first_way = loop + len(head) + 3 + 5 * dispatch_size + 1
    places, at = [], first_way
    for way in ways:
        places.append(at)
        at += len(way) + 4
    after, end = at, at + 8
    code = copy + head + end.to_bytes(2, "big") + b"\x57"
    for count, place in enumerate(places):
        code += bytes([0x60, count, 0x60, 0, 0x35, 0x14, 0x61]) + place.to_bytes(2, "big")
        code += b"\x57"
    code += b"\xfe"
    for way in ways:
        code += way + b"\x61" + after.to_bytes(2, "big") + b"\x56"
    code += b"\x5b\x60\x01\x01\x61" + loop.to_bytes(2, "big") + b"\x56"
    assert len(code) == end
    return code + b"\x5b\x00"


def _way(topics: int) -> bytes:
    """Pushes the topics, the last first, and emits."""
    code = b"\x5b"
    for place in reversed(range(topics)):
        code += bytes([0x60, _TOPICS_AT + 32 * place, 0x35])
        if place == 1:
            code += bytes([0x80 + topics - 1, 0x01])
    return code + bytes([0x60, 0x40, 0x35, 0x60, 0, 0xA0 + topics])


EMITTER = _code()


async def place_emitters(rpc: Rpc, start_block: int = 0) -> Contracts:
    """Puts them on the chain; each takes the place of one of our contracts."""
    for home in HOMES:
        await rpc.request("anvil_setCode", [to_hex(home), to_hex(EMITTER)])
    return Contracts(await rpc.chain_id(), start_block, *HOMES)


async def genesis_of(rpc: Rpc) -> Hash32:
    genesis = await rpc.header(0)
    assert genesis is not None
    return genesis.hash


def calldata(
    topics: Sequence[bytes], data: bytes, *, times: int = 1, data_bytes: int | None = None
) -> bytes:
    words = [len(topics), times, len(data) if data_bytes is None else data_bytes]
    head = b"".join(word.to_bytes(32, "big") for word in words)
    return head + b"".join(topics).ljust(128, b"\0") + data


async def emit(
    rpc: Rpc, home: Address, topics: Sequence[bytes], data: bytes = b"", **options: Any
) -> str:
    """Sends the transaction from Anvil's first account; returns its hash. With automine it is
    mined at once."""
    accounts = await rpc.request("eth_accounts")
    body = {
        "from": accounts[0],
        "to": to_hex(home),
        "data": to_hex(calldata(topics, data, **options)),
        "gas": hex(_MOST_GAS),
    }
    tx_hash: str = await rpc.request("eth_sendTransaction", [body])
    return tx_hash


async def emitted(rpc: Rpc, home: Address, topics: Sequence[bytes], *data: Any, **more: Any) -> Any:
    """Emits and waits for the receipt, which must be of a success."""
    tx_hash = await emit(rpc, home, topics, *data, **more)
    for _ in range(500):
        receipt = await rpc.request("eth_getTransactionReceipt", [tx_hash])
        if receipt is not None:
            assert receipt["status"] == "0x1", "the emitter ran out of gas"
            return receipt
        await asyncio.sleep(0.01)
    raise AssertionError("the transaction was not mined")
