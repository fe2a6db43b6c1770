"""Contracts that say whatever they like, on a real chain: huge, many, damaged, never in the way."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi.abi import encode

from indexer.database import Pool
from indexer.decode import topic_of
from indexer.rpc import Rpc
from tests.indexer.emitter import HOMES, emit, emitted, genesis_of, place_emitters
from tests.indexer.world import World, caught_up, differences, index_once, running, tables

REQUESTS, RESULTS, REGISTRY, STAKES, DISPUTES = HOMES
REQUESTED = "InferenceRequested(uint256,address,bytes32,uint256,uint256,bytes)"
REGISTERED = "WorkerRegistered(address,address,bytes32[],string,uint32,uint32)"
CALLBACK_FAILED = "CallbackFailed(uint256,address,bytes)"
DEADLINE_S = 2**40 - 1
RECORD = DEADLINE_S << 48 | 10**6
ADDRESS = b"\xab".rjust(32, b"\0")
_SOME = bytes([5]) * 32


@pytest.fixture
async def world(rpc: Rpc) -> World:
    """Emitters stand where the deployment's contracts would."""
    contracts = await place_emitters(rpc)
    return World(rpc, contracts, await genesis_of(rpc), [])


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def requested(request_id: int) -> list[bytes]:
    return [topic_of(REQUESTED), word(request_id), ADDRESS, _SOME]


def request_data(text: bytes, length: int | None = None) -> bytes:
    size = len(text) if length is None else length
    return word(RECORD) + word(0) + word(96) + word(size) + text


async def test_block_of_10_000_logs__all_of_them_live_and_in_a_range(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    indexer = world.indexer(pool)
    async with running(indexer):
        await caught_up(indexer, world)
        await world.rpc.request("evm_setBlockGasLimit", [hex(120_000_000)])
        await world.rpc.request("evm_setAutomine", [False])
        data = request_data(b"x".ljust(32, b"\0"), 1)
        for first, times in ((1, 4_000), (4_001, 4_000), (8_001, 2_000)):
            await emit(world.rpc, REQUESTS, requested(first), data, times=times)
        await world.mine()
        await caught_up(indexer, world, timeout_s=60)
    shape = "SELECT count(*), min(id), max(id), count(DISTINCT created_block) FROM chain.request"
    row = await pool.fetchrow(shape)
    assert row is not None
    assert tuple(row) == (10_000, 1, 10_000, 1)
    assert await pool.fetchval("SELECT max(log_index) FROM chain.log") == 9_999
    await world.mine(80)
    await index_once(world, pool)
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_input_of_a_megabyte__kept_to_the_byte(world: World, pool: Pool) -> None:
    beginning = b"\0\xff\xfe\xed\xa0\x80 not UTF-8"
    size = 1_000_000
    await emitted(
        world.rpc,
        REQUESTS,
        requested(1),
        request_data(beginning, size),
        data_bytes=128 + size,
    )
    await index_once(world, pool)
    kept = await pool.fetchval("SELECT input FROM chain.request WHERE id = 1")
    assert kept == beginning.ljust(size, b"\0")
    assert await pool.fetchval("SELECT count(*) FROM chain.quarantine") == 0


async def test_strings_with_nul_and_invalid_utf_8__kept_as_they_are(
    world: World, pool: Pool
) -> None:
    text = b"http://\0\xc3\x28\xed\xa0\x80\xff"
    offer = encode(["bytes32[]", "bytes", "uint32", "uint32"], [[_SOME], text, 2, 3])
    await emitted(world.rpc, REGISTRY, [topic_of(REGISTERED), ADDRESS, ADDRESS], offer)
    await emitted(world.rpc, REQUESTS, requested(1), request_data(b"?".ljust(32, b"\0"), 1))
    reason = encode(["bytes"], [text])
    await emitted(world.rpc, RESULTS, [topic_of(CALLBACK_FAILED), word(1), ADDRESS], reason)
    await index_once(world, pool)
    assert await pool.fetchval("SELECT endpoint FROM chain.worker") == text
    assert await pool.fetchval("SELECT callback_failure FROM chain.request") == text
    assert await pool.fetchval("SELECT count(*) FROM chain.quarantine") == 0


def _offer(*words: int) -> bytes:
    return b"".join(word(number) for number in words)


def _registered(*words: int) -> tuple[Any, ...]:
    return REGISTRY, [topic_of(REGISTERED), ADDRESS, ADDRESS], _offer(*words)


def _topics(signature: str, *more: bytes) -> list[bytes]:
    return [topic_of(signature), *more]


DAMAGED: dict[str, tuple[Any, ...]] = {
    "no topics at all": (REQUESTS, [], b"anything"),
    "a topic of nobody's": (REQUESTS, [_SOME], b""),
    "topics missing": (REQUESTS, _topics(REQUESTED, word(7)), request_data(b"")),
    "a topic too many": (REQUESTS, _topics("FeeRaised(uint256,uint256)", word(7), _SOME), word(1)),
    "an event of another contract": (STAKES, requested(7), request_data(b"")),
    "no data": (REQUESTS, _topics("FeeRaised(uint256,uint256)", word(7)), b""),
    "data that ends in a word": (REQUESTS, _topics("FeeRaised(uint256,uint256)", word(7)), b"\1"),
    "an id of 64 bits": (REQUESTS, requested(2**63), request_data(b"")),
    "an id of 256 bits": (REQUESTS, requested(2**256 - 1), request_data(b"")),
    "a number beyond its type": (
        REQUESTS,
        _topics("CancelRequested(uint256,uint40)", word(7)),
        word(2**40),
    ),
    "a dirty address in the data": (
        REQUESTS,
        _topics("InferenceFulfilled(uint256,address,bytes32)", word(7)),
        _SOME + _SOME,
    ),
    "a dirty address in a topic": (
        REQUESTS,
        [topic_of(REQUESTED), word(7), _SOME, _SOME],
        request_data(b""),
    ),
    "a dirty boolean": (REGISTRY, _topics("WorkerEnabled(address,bool)", ADDRESS), word(2)),
    "dirty padding after bytes": (REQUESTS, requested(7), request_data(b"xy".ljust(32, b"!"), 2)),
    "bytes without their padding": (REQUESTS, requested(7), request_data(b"xy", 2)),
    "a length beyond the data": (REQUESTS, requested(7), request_data(b"", 2**256 - 1)),
    "an offset beyond the data": (REQUESTS, requested(7), _offer(RECORD, 0, 4_096, 0)),
    "an offset of 256 bits": (REQUESTS, requested(7), _offer(RECORD, 0, 2**256 - 1, 0)),
    "an offset into the head": (REQUESTS, requested(7), _offer(RECORD, 0, 32, 0)),
    "a list beyond the data": _registered(128, 160, 1, 1, 2**200, 0),
    "a string beyond the data": _registered(128, 160, 1, 1, 0, 2**63),
    "the offset of a list at nothing": _registered(2**64, 160, 1, 1, 0, 0),
}


@pytest.mark.parametrize("live", [True, False])
async def test_damaged_logs__quarantined_and_nothing_waits_for_them(
    world: World, pool: Pool, fresh_pool: Pool, live: bool
) -> None:
    await world.rpc.request("evm_setAutomine", [False])
    if live:
        await index_once(world, pool)
    for home, topics, data in DAMAGED.values():
        await emit(world.rpc, home, topics, data)
    await emit(world.rpc, REQUESTS, requested(7), request_data(b""))
    await world.mine()
    if not live:
        await world.mine(80)
    indexer = await index_once(world, pool)
    assert indexer.status.quarantined == len(DAMAGED)
    rows = await pool.fetch("SELECT * FROM chain.quarantine ORDER BY log_index")
    said = [(row["address"], list(row["topics"]), row["data"]) for row in rows]
    assert said == [(home, topics, data) for home, topics, data in DAMAGED.values()]
    assert all(row["reason"] for row in rows)
    request = await pool.fetchrow("SELECT * FROM chain.request")
    assert request is not None
    assert (request["id"], request["deadline_s"]) == (7, DEADLINE_S)
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_request_created_twice__first_one_stands(world: World, pool: Pool) -> None:
    for text in (b"first".ljust(32, b"\0"), b"other".ljust(32, b"\0")):
        await emitted(world.rpc, REQUESTS, requested(1), request_data(text, 5))
    await index_once(world, pool)
    assert await pool.fetchval("SELECT input FROM chain.request") == b"first"
    assert await pool.fetchval("SELECT count(*) FROM chain.log") == 2
