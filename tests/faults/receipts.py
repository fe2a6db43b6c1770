"""What the chain says, read by another way than the indexer's: receipts, plain JSON, eth_abi."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg
from eth_abi.abi import decode
from eth_utils.crypto import keccak

from indexer.types import Contracts

Request = Callable[[str, list[Any]], Awaitable[Any]]
_REQUESTED = keccak(text="InferenceRequested(uint256,address,bytes32,uint256,uint256,bytes)")
_ENDS = {
    keccak(text="InferenceFulfilled(uint256,address,bytes32)"): "fulfilled",
    keccak(text="RequestRefunded(uint256,address,uint256)"): "refunded",
}
_FEE_RAISED = keccak(text="FeeRaised(uint256,uint256)")
_PAYMENTS = {
    keccak(text="WorkerPaid(address,address,uint256,uint256)"): (["address", "uint256", "uint256"]),
    keccak(text="PosterPaid(address,uint256)"): (["address", "uint256"]),
}


@dataclass(frozen=True)
class ChainSays:
    """Everything of one deployment that the tables must hold."""

    head: tuple[int, bytes]
    hashes: dict[int, bytes]
    logs: set[tuple[Any, ...]]
    requests: dict[int, tuple[bytes, bytes, int, str]]
    """Input, hash of the creating block, fee in wei, status."""
    paid_wei: int


async def read_chain(request: Request, contracts: Contracts) -> ChainSays:
    """Reads every block from the deployment to the head, by its receipts."""
    homes = {"0x" + address.hex() for address in contracts.addresses()}
    head = await request("eth_getBlockByNumber", ["latest", False])
    hashes: dict[int, bytes] = {}
    logs: list[dict[str, Any]] = []
    for number in range(contracts.start_block, int(head["number"], 16) + 1):
        block = await request("eth_getBlockByNumber", [hex(number), False])
        hashes[number] = octets(block["hash"])
        for receipt in await request("eth_getBlockReceipts", [hex(number)]) or []:
            assert receipt["blockHash"] == block["hash"], "the chain moved while it was read"
            logs += [entry for entry in receipt["logs"] if entry["address"].lower() in homes]
    return ChainSays(
        (int(head["number"], 16), octets(head["hash"])),
        hashes,
        {_identity(entry) for entry in logs},
        _requests(logs),
        sum(_paid_wei(entry) for entry in logs),
    )


async def read_tables(connection: asyncpg.Pool) -> ChainSays:
    """The same out of the tables."""
    cursor = await connection.fetchrow("SELECT block_number, block_hash FROM chain.cursor")
    assert cursor is not None
    blocks = await connection.fetch("SELECT number, hash FROM chain.block")
    rows = await connection.fetch(
        "SELECT block_number, block_hash, log_index, tx_hash, tx_index, address, topics, data"
        " FROM chain.log UNION ALL SELECT block_number, block_hash, log_index, tx_hash, tx_index,"
        " address, topics, data FROM chain.quarantine"
    )
    requests = await connection.fetch("SELECT * FROM chain.request")
    return ChainSays(
        (cursor["block_number"], cursor["block_hash"]),
        {row["number"]: row["hash"] for row in blocks},
        {(*tuple(row)[:6], tuple(row["topics"]), row["data"]) for row in rows},
        {
            row["id"]: (row["input"], row["created_block_hash"], int(row["fee_wei"]), row["status"])
            for row in requests
        },
        int(await connection.fetchval("SELECT coalesce(sum(amount_wei), 0) FROM chain.payment")),
    )


def assert_equal(tables: ChainSays, chain: ChainSays) -> None:
    """The tables forget old headers, and nothing else."""
    assert tables.head == chain.head
    assert tables.hashes.items() <= chain.hashes.items()
    assert tables.logs - chain.logs == set(), "logs that are not on the chain"
    assert chain.logs - tables.logs == set(), "logs that the tables lack"
    assert tables.requests == chain.requests
    assert tables.paid_wei == chain.paid_wei


def octets(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _identity(entry: dict[str, Any]) -> tuple[Any, ...]:
    return (
        int(entry["blockNumber"], 16),
        octets(entry["blockHash"]),
        int(entry["logIndex"], 16),
        octets(entry["transactionHash"]),
        int(entry["transactionIndex"], 16),
        octets(entry["address"]),
        tuple(octets(topic) for topic in entry["topics"]),
        octets(entry["data"]),
    )


def _requests(logs: list[dict[str, Any]]) -> dict[int, tuple[bytes, bytes, int, str]]:
    found: dict[int, tuple[bytes, bytes, int, str]] = {}
    for entry in logs:
        topic, data = octets(entry["topics"][0]), octets(entry["data"])
        if len(entry["topics"]) < 2:
            continue
        key = int(entry["topics"][1], 16)
        if topic == _REQUESTED:
            record, _, text = decode(["uint256", "uint256", "bytes"], data)
            fee_wei = (record & (1 << 48) - 1) * 10**9
            found[key] = (text, octets(entry["blockHash"]), fee_wei, "pending")
        elif topic in _ENDS and key in found:
            found[key] = (*found[key][:3], _ENDS[topic])
        elif topic == _FEE_RAISED and key in found:
            text, block_hash, _, status = found[key]
            found[key] = (text, block_hash, decode(["uint256"], data)[0], status)
    return found


def _paid_wei(entry: dict[str, Any]) -> int:
    kinds = _PAYMENTS.get(octets(entry["topics"][0]))
    return decode(kinds, octets(entry["data"]))[-1] if kinds else 0
