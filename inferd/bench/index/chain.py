"""A fresh chain full of requests, made as quickly as Anvil takes them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from eth_utils.address import to_canonical_address
from msgspec.structs import replace

from indexer.reorg.coordinator import MAX_BRANCH_BLOCKS
from indexer.rpc import Rpc, RpcError
from indexer.rpc.endpoint import Endpoint
from indexer.types import WEI_PER_GWEI, Address, Contracts, Hash32
from inferd.bench.arena import CONFIG, FAR_S, FEE_WEI
from inferd.chain.anvil import Anvil, start_anvil
from inferd.chain.deploy import DeploymentTerms, deploy
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.request import RequestParams, model_id

INPUT_BYTES = 192
"""Makes an event of some 1.3 kB of JSON."""
_TX_GAS_LIMIT = 1 << 24
"""Of osaka (EIP-7825)."""
_SINGLE_GAS_LIMIT = 200_000
_MAX_FEE_WEI = 10 * WEI_PER_GWEI
_BATCH = 200
"""Transactions in one call."""
_FUNDS_WEI = 10**30
_EMPTY_BLOCKS = MAX_BRANCH_BLOCKS + 16
"""Mined on top, so that all events are in blocks that a backfill reads."""
_VARIANTS = 4
"""Different calldata for transactions of one size: the same inputs come again in other blocks."""
_MODEL = model_id("bench")


@dataclass(frozen=True, slots=True)
class Shape:
    """What the chain holds."""

    events: int
    per_block: int
    per_transaction: int
    """Requests that share a transaction, at most."""


@dataclass(frozen=True, slots=True)
class EventChain:
    """A running Anvil with one deployment, and all that was asked of it."""

    anvil: Anvil
    contracts: Contracts
    genesis_hash: Hash32
    last: int
    """The newest block with an event."""


def block_sizes(shape: Shape) -> Iterator[list[int]]:
    """Per block, the number of requests of each of its transactions."""
    left = shape.events
    while left:
        in_block = min(left, shape.per_block)
        left -= in_block
        whole, rest = divmod(in_block, shape.per_transaction)
        yield [shape.per_transaction] * whole + [rest] * bool(rest)


@asynccontextmanager
async def event_chain(shape: Shape) -> AsyncIterator[EventChain]:
    """Raises AnvilMissing, AnvilNotStarted and what `deploy` raises."""
    async with empty_chain() as (anvil, rpc, contracts, genesis_hash):
        await rpc.request("evm_setAutomine", [False])
        async with Submitter(anvil, contracts, address_of(1)) as submitter:
            await _fill(rpc, submitter, shape)
        last = int(await rpc.request("eth_blockNumber"), 16)
        await rpc.request("anvil_mine", [hex(_EMPTY_BLOCKS)])
        yield EventChain(anvil, contracts, genesis_hash, last)


@asynccontextmanager
async def empty_chain() -> AsyncIterator[tuple[Anvil, Rpc, Contracts, Hash32]]:
    """The deployment alone, on a chain that mines each transaction at once.

    Anvil computes a block's state root anew from all that its chain has ever stored, so a chain
    of n requests would take n² time to make. For the fork of another chain it computes none.
    """
    config = replace(CONFIG, gas_limit=10**12)
    with start_anvil(config) as origin:
        # States of old blocks are for calls into the past, which nobody makes here.
        options = ("--fork-url", origin.url, "--no-storage-caching", "--prune-history")
        with start_anvil(config, extra_arguments=options) as anvil:
            async with Rpc([anvil.url], timeout_s=120) as rpc:
                yield anvil, rpc, *await _deployed(rpc)


async def _deployed(rpc: Rpc) -> tuple[Contracts, Hash32]:
    deployment = await deploy(Sender(rpc, CONFIG.account(0), CONFIG.chain_id), DeploymentTerms())
    await rpc.request("anvil_setBalance", ["0x" + address_of(1).hex(), hex(_FUNDS_WEI)])
    return deployment.contracts, Hash32(deployment.genesis_hash)


def address_of(index: int) -> Address:
    return Address(to_canonical_address(CONFIG.account(index).address))


class Submitter:
    """Puts requests into Anvil's pool, from an account that Anvil itself signs for."""

    def __init__(self, anvil: Anvil, contracts: Contracts, sender: Address) -> None:
        self._endpoint = Endpoint(anvil.url, timeout_s=120)
        self._sender = "0x" + sender.hex()
        self._to = "0x" + contracts.requests.hex()
        self._nonce = 0
        self._random = random.Random(7)  # noqa: S311 - no secret
        self._call_data: dict[int, list[str]] = {}

    async def __aenter__(self) -> Submitter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._endpoint.close()

    async def submit(self, counts: Sequence[int]) -> None:
        """One transaction for each count, with so many requests.

        Raises RpcUnreachable, and RpcError where Anvil does not take one.
        """
        body = [self._call(count) for count in counts]
        answers = msgspec.json.decode(await self._endpoint.post(msgspec.json.encode(body)))
        for answer in answers:
            if "error" in answer:
                raise RpcError(answer["error"]["code"], answer["error"]["message"])

    def _call(self, count: int) -> dict[str, Any]:
        transaction = {
            "from": self._sender,
            "to": self._to,
            "nonce": hex(self._nonce),
            "data": self._data(count),
            "value": hex(FEE_WEI * count),
            "gas": hex(_TX_GAS_LIMIT if count > 1 else _SINGLE_GAS_LIMIT),
            "maxFeePerGas": hex(_MAX_FEE_WEI),
            "maxPriorityFeePerGas": "0x0",
        }
        self._nonce += 1
        return {
            "jsonrpc": "2.0",
            "id": self._nonce,
            "method": "eth_sendTransaction",
            "params": [transaction],
        }

    def _data(self, count: int) -> str:
        """One of a few: to encode each anew would take longer than to execute it."""
        variants = self._call_data.setdefault(count, [])
        if len(variants) < _VARIANTS:
            params = [
                RequestParams(_MODEL, 64, FAR_S, 0, self._random.randbytes(INPUT_BYTES))
                for _ in range(count)
            ]
            variants.append("0x" + calls.submit_many(params, [FEE_WEI] * count).hex())
            return variants[-1]
        return variants[self._nonce % _VARIANTS]


async def _fill(rpc: Rpc, submitter: Submitter, shape: Shape) -> None:
    """Mines one block after the other, and makes sure that each took what was meant for it."""
    for counts in block_sizes(shape):
        for at in range(0, len(counts), _BATCH):
            await submitter.submit(counts[at : at + _BATCH])
        await rpc.request("evm_mine")
