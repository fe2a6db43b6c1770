"""A deployed chain to index, and the tables as values to compare."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eth_keys.datatypes import PrivateKey

from indexer.database import Pool
from indexer.follow import Indexer
from indexer.rpc import Header, Receipt, Rpc
from indexer.types import Address, Contracts, Hash32
from inferd.chain.anvil import Anvil
from inferd.chain.deploy import DeploymentTerms, deploy
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.request import RequestParams, commitment, model_id, params_hash
from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.typed_data import consent_digest, domain_separator, group_digest, sign_digest

GWEI = 10**9
FEE_WEI = 10**15
MODEL = model_id("tiny")
TABLES = ("cursor", "block", "log", "quarantine", "request", "worker", "payment", "hold", "terms")


@dataclass
class World:
    """Speaks to Anvil with its unlocked accounts: 0 deploys, 1 asks, 2 owns the worker, 3 posts."""

    rpc: Rpc
    contracts: Contracts
    genesis_hash: Hash32
    accounts: list[Address]
    worker_key: PrivateKey = field(default_factory=lambda: PrivateKey(b"\7" * 32))
    params: dict[int, RequestParams] = field(default_factory=dict)

    @property
    def signer(self) -> Address:
        return Address(self.worker_key.public_key.to_canonical_address())

    async def head(self) -> Header:
        header = await self.rpc.header("latest")
        assert header is not None
        return header

    async def mine(self, blocks: int = 1) -> None:
        await self.rpc.request("anvil_mine", [hex(blocks)])

    async def transaction(
        self, sender: int, to: Address, data: bytes, value_wei: int = 0
    ) -> dict[str, str]:
        return {
            "from": "0x" + self.accounts[sender].hex(),
            "to": "0x" + to.hex(),
            "data": "0x" + data.hex(),
            "value": hex(value_wei),
            "gas": hex(3_000_000),
        }

    async def post_transaction(
        self, sender: int, to: Address, data: bytes, value_wei: int = 0
    ) -> Hash32:
        body = await self.transaction(sender, to, data, value_wei)
        answer = await self.rpc.request("eth_sendTransaction", [body])
        return Hash32(bytes.fromhex(answer[2:]))

    async def send(self, sender: int, to: Address, data: bytes, value_wei: int = 0) -> Receipt:
        tx_hash = await self.post_transaction(sender, to, data, value_wei)
        for _ in range(200):
            receipt = await self.rpc.receipt(tx_hash)
            if receipt is not None:
                assert receipt.succeeded, "the transaction reverted"
                return receipt
            await asyncio.sleep(0.01)
        raise AssertionError("the transaction was not mined")

    async def next_id(self) -> int:
        data = calls.view("InferenceRequests", "nextId")
        return int.from_bytes(await self.rpc.call(self.contracts.requests, data), "big")

    async def some_params(
        self, text: bytes = b"hello", deadline_in_s: int = 10_000
    ) -> RequestParams:
        head = await self.head()
        return RequestParams(MODEL, 64, head.timestamp_s + deadline_in_s, 512, text)

    async def submit(self, text: bytes = b"hello", deadline_in_s: int = 10_000) -> int:
        params = await self.some_params(text, deadline_in_s)
        request_id = await self.next_id()
        await self.send(1, self.contracts.requests, calls.submit(params), FEE_WEI)
        self.params[request_id] = params
        return request_id

    async def submit_many(self, count: int, text: bytes = b"hello") -> None:
        params = await self.some_params(text)
        data = calls.submit_many([params] * count, [FEE_WEI] * count)
        await self.send(1, self.contracts.requests, data, FEE_WEI * count)

    def commitment_of(self, request_id: int, params: RequestParams) -> bytes:
        return commitment(
            self.contracts.chain_id,
            self.contracts.requests,
            request_id,
            self.accounts[1],
            params_hash(params),
        )

    async def register(self) -> None:
        domain = domain_separator(self.contracts.chain_id, self.contracts.registry)
        consent = sign_digest(
            self.worker_key, consent_digest(domain, self.accounts[2], self.signer)
        )
        data = calls.register_worker(self.signer, [MODEL], "http://w:1", 4, 2048, consent)
        await self.send(2, self.contracts.registry, data)
        await self.send(2, self.contracts.stakes, calls.stake(self.signer), 2 * 10**17)

    def post_data(self, digests: dict[int, bytes]) -> bytes:
        items = pack_items(
            ResultItem(request_id, self.commitment_of(request_id, self.params[request_id]), digest)
            for request_id, digest in digests.items()
        )
        domain = domain_separator(self.contracts.chain_id, self.contracts.results)
        signature = sign_digest(self.worker_key, group_digest(domain, items))
        return calls.post([(items, [signature])], Hash32(b"\5" * 32))

    async def post(self, digests: dict[int, bytes]) -> Receipt:
        return await self.send(3, self.contracts.results, self.post_data(digests))

    async def reorg(self, depth: int, transactions: Sequence[tuple[dict[str, str], int]]) -> None:
        """Replaces the newest `depth` blocks; each transaction goes to the block at its offset."""
        pairs = [[transaction, offset] for transaction, offset in transactions]
        await self.rpc.request("anvil_reorg", [depth, pairs])

    def indexer(self, pool: Pool, **options: Any) -> Indexer:
        options.setdefault("poll_interval_s", 0.02)
        rpc = options.pop("rpc", self.rpc)
        contracts = options.pop("contracts", self.contracts)
        options.setdefault("genesis_hash", self.genesis_hash)
        return Indexer(rpc, pool, contracts, **options)


async def build_world(anvil: Anvil, rpc: Rpc) -> World:
    sender = Sender(rpc, anvil.config.account(0), anvil.config.chain_id)
    deployment = await deploy(sender, DeploymentTerms(poster_bps=1_000))
    accounts = [
        Address(bytes.fromhex(anvil.config.account(index).address[2:])) for index in range(5)
    ]
    return World(rpc, deployment.contracts, Hash32(deployment.genesis_hash), accounts)


async def caught_up(indexer: Indexer, world: World, timeout_s: float = 20) -> None:
    """Waits until the cursor is the chain's head, and a step has found nothing more to do."""
    seen_at: float | None = None
    async with asyncio.timeout(timeout_s):
        while True:
            head = await world.head()
            position = indexer._position
            cursor = position.cursor if position else None
            if cursor is None or cursor.hash != head.hash:
                seen_at = None
            elif seen_at is None:
                seen_at = time.monotonic()
            elif (indexer.status.last_progress_monotonic or 0) > seen_at:
                return
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(indexer: Indexer) -> AsyncIterator[Indexer]:
    """Runs it; what it raises before it is stopped is raised here."""
    body = asyncio.current_task()
    assert body is not None
    task = asyncio.create_task(indexer.run())
    task.add_done_callback(lambda ended: None if ended.cancelled() else body.cancel())
    try:
        yield indexer
    except asyncio.CancelledError:
        if task.done() and not task.cancelled():
            body.uncancel()
            await task
        raise
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def index_once(world: World, pool: Pool, **options: Any) -> Indexer:
    """Indexes up to the head and stops."""
    indexer = world.indexer(pool, **options)
    async with running(indexer):
        await caught_up(indexer, world)
    return indexer


async def tables(pool: Pool) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all chain tables, sorted; without when they were written."""
    found = {}
    for table in TABLES:
        rows = await pool.fetch(f"SELECT * FROM chain.{table}")
        found[table] = sorted(
            (
                tuple((name, value) for name, value in row.items() if name != "updated_at")
                for row in rows
            ),
            key=repr,
        )
    return found


def differences(ours: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """What differs, small enough to read in a failed test."""
    return {
        table: {
            "only_ours": [row for row in ours[table] if row not in fresh[table]],
            "only_fresh": [row for row in fresh[table] if row not in ours[table]],
        }
        for table in TABLES
        if ours[table] != fresh[table]
    }
