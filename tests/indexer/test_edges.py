"""The largest numbers a chain can say fit their columns; larger ones are refused at the door."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from eth_abi.abi import encode

from indexer.abi import UndecodableLog
from indexer.batch import read_batch
from indexer.database import Pool
from indexer.decode import Decoder, topic_of
from indexer.reorg.window import Window
from indexer.rpc import Header, RawLog
from indexer.rpc.wire import parse_header, parse_logs
from indexer.store import Position, Store
from indexer.types import Address, Contracts, Hash32, Wei

MOST_INT8 = 2**63 - 1
MOST_INT4 = 2**31 - 1
MOST_WEI = 2**256 - 1
MOST_ID = MOST_INT8
HOMES = REQUESTS, RESULTS, REGISTRY, STAKES, DISPUTES = tuple(
    Address(bytes([n]) * 20) for n in range(1, 6)
)
CONTRACTS = Contracts(MOST_INT8, MOST_INT8, *HOMES)
SIGNER, OTHER = b"\xfe" * 20, b"\xfd" * 20
TIP = Header(
    number=MOST_INT8,
    hash=Hash32(b"\xff" * 32),
    parent_hash=Hash32(b"\xee" * 32),
    timestamp_s=MOST_INT8,
    base_fee_wei=Wei(MOST_WEI),
    gas_used=MOST_INT8,
    gas_limit=MOST_INT8,
    logs_bloom=b"\xff" * 256,
)


def padded(address: bytes) -> bytes:
    return address.rjust(32, b"\0")


def number(value: int) -> bytes:
    return value.to_bytes(32, "big")


class Logs:
    """Logs of one block; the last has the largest index there is."""

    def __init__(self) -> None:
        self.all: list[RawLog] = []

    def add(self, home: Address, signature: str, topics: list[bytes], data: bytes) -> None:
        entry = RawLog(
            address=home,
            topics=(topic_of(signature), *topics),
            data=data,
            block_number=TIP.number,
            block_hash=TIP.hash,
            tx_hash=Hash32(b"\xdd" * 32),
            tx_index=MOST_INT4,
            log_index=MOST_INT4,
        )
        self.all = [
            msgspec.structs.replace(log, log_index=log.log_index - 1) for log in self.all
        ] + [entry]


async def write(pool: Pool, logs: list[RawLog]) -> Any:
    store = Store(pool, CONTRACTS, window_blocks=2**31 - 1)
    await store.claim(Hash32(bytes(32)))
    batch = read_batch(Decoder(CONTRACTS), [TIP], logs, {TIP.number: TIP.timestamp_s})
    assert batch.quarantined == ()
    position = Position(None, Window(MOST_INT8), -1)
    await store.commit(position, batch, finalized=MOST_INT8)
    return await store.load()


async def test_largest_numbers__stored_and_read_back(pool: Pool) -> None:
    logs = Logs()
    record = (2**48 - 1) | (2**40 - 1) << 48 | 2 << 248 | 15 << 250 | 3 << 254
    limits = 2**96 - 1 | 1 << 96
    logs.add(
        REQUESTS,
        "InferenceRequested(uint256,address,bytes32,uint256,uint256,bytes)",
        [number(MOST_ID), padded(OTHER), b"\xff" * 32],
        encode(["uint256", "uint256", "bytes"], [record, limits, b"\xff"]),
    )
    logs.add(REQUESTS, "FeeRaised(uint256,uint256)", [number(MOST_ID)], number(MOST_WEI))
    logs.add(
        REQUESTS,
        "InferenceFulfilled(uint256,address,bytes32)",
        [number(MOST_ID)],
        padded(SIGNER) + b"\xff" * 32,
    )
    logs.add(
        REQUESTS,
        "WorkerPaid(address,address,uint256,uint256)",
        [padded(OTHER)],
        padded(SIGNER) + number(MOST_INT8) + number(MOST_WEI),
    )
    logs.add(
        REGISTRY,
        "WorkerRegistered(address,address,bytes32[],string,uint32,uint32)",
        [padded(SIGNER), padded(OTHER)],
        encode(["bytes32[]", "bytes", "uint32", "uint32"], [[], b"", 2**32 - 1, 2**32 - 1]),
    )
    logs.add(
        STAKES,
        "UnstakeStarted(address,uint256,uint256,uint256,uint40)",
        [padded(SIGNER)],
        number(MOST_WEI) * 3 + number(2**40 - 1),
    )
    position = await write(pool, logs.all)

    assert position.cursor == TIP.ref()
    assert position.finalized == MOST_INT8
    assert position.window.tip.number == MOST_INT8
    block = await pool.fetchrow("SELECT * FROM chain.block")
    assert block is not None
    assert (block["timestamp_s"], block["gas_used"], block["gas_limit"]) == (MOST_INT8,) * 3
    assert int(block["base_fee_wei"]) == MOST_WEI
    request = await pool.fetchrow("SELECT * FROM chain.request")
    assert request is not None
    assert (request["id"], request["status"], int(request["fee_wei"])) == (
        MOST_ID,
        "fulfilled",
        MOST_WEI,
    )
    assert (request["max_tokens"], request["memory_mb"], request["callback_gas_limit"]) == (
        2**32 - 1,
    ) * 3
    assert (request["deadline_s"], request["quorum"], request["delivery"]) == (2**40 - 1, 15, 2)
    assert (request["created_block"], request["settled_block"]) == (MOST_INT8,) * 2
    assert request["created_log_index"] == MOST_INT4 - 5
    payment = await pool.fetchrow("SELECT * FROM chain.payment")
    assert payment is not None
    assert (payment["results"], int(payment["amount_wei"])) == (MOST_INT8, MOST_WEI)
    worker = await pool.fetchrow("SELECT * FROM chain.worker")
    assert worker is not None
    assert (worker["slots"], worker["memory_mb"]) == (2**32 - 1,) * 2
    assert (int(worker["stake_wei"]), int(worker["unbonding_wei"])) == (MOST_WEI,) * 2
    edge = await pool.fetchrow("SELECT max(log_index), max(tx_index) FROM chain.log")
    assert edge is not None
    assert tuple(edge) == (MOST_INT4, MOST_INT4)


HEADER = {
    "number": "0x1",
    "hash": "0x" + "11" * 32,
    "parentHash": "0x" + "22" * 32,
    "timestamp": "0x1",
    "gasUsed": "0x1",
    "gasLimit": "0x1",
    "baseFeePerGas": "0x1",
    "logsBloom": "0x" + "00" * 256,
}
LOG = {
    "address": "0x" + "11" * 20,
    "topics": [],
    "data": "0x",
    "blockNumber": "0x1",
    "blockHash": "0x" + "11" * 32,
    "transactionHash": "0x" + "11" * 32,
    "transactionIndex": "0x0",
    "logIndex": "0x0",
}


@pytest.mark.parametrize(
    ("name", "most"),
    [(name, MOST_INT8) for name in ("number", "timestamp", "gasUsed", "gasLimit")]
    + [("baseFeePerGas", MOST_WEI)],
)
def test_header__one_beyond_its_column__refused(name: str, most: int) -> None:
    assert parse_header(msgspec.Raw(msgspec.json.encode(HEADER | {name: hex(most)}))) is not None
    with pytest.raises(ValueError, match=r"out of range|no quantity"):
        parse_header(msgspec.Raw(msgspec.json.encode(HEADER | {name: hex(most + 1)})))


@pytest.mark.parametrize(
    ("name", "most"),
    [("blockNumber", MOST_INT8), ("transactionIndex", MOST_INT4), ("logIndex", MOST_INT4)],
)
def test_log__one_beyond_its_column__refused(name: str, most: int) -> None:
    assert parse_logs(msgspec.Raw(msgspec.json.encode([LOG | {name: hex(most)}])))
    with pytest.raises(ValueError, match="out of range"):
        parse_logs(msgspec.Raw(msgspec.json.encode([LOG | {name: hex(most + 1)}])))


@pytest.mark.parametrize(
    ("home", "signature", "topics", "data"),
    [
        (REQUESTS, "FeeRaised(uint256,uint256)", [number(MOST_ID + 1)], number(1)),
        (
            REQUESTS,
            "WorkerPaid(address,address,uint256,uint256)",
            [padded(OTHER)],
            padded(SIGNER) + number(MOST_INT8 + 1) + number(1),
        ),
    ],
)
def test_event__one_beyond_its_column__refused(
    home: Address, signature: str, topics: list[bytes], data: bytes
) -> None:
    logs = Logs()
    logs.add(home, signature, topics, data)
    with pytest.raises(UndecodableLog, match="63 bits"):
        Decoder(CONTRACTS).decode(logs.all[0])


@pytest.mark.parametrize("value", [-1, 2**256])
async def test_uint256__beyond_its_bounds__the_database_refuses_too(pool: Pool, value: int) -> None:
    with pytest.raises(Exception, match="uint256"):
        await pool.fetchval(f"SELECT ({value})::numeric::chain.uint256")
