"""A real chain with the contracts, an index of it, and results that wait to be settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from eth_abi.abi import encode
from eth_account import Account
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address
from eth_utils.hexadecimal import decode_hex

from indexer.database import Fence, Pool
from indexer.follow import Indexer
from indexer.rpc import Rpc
from indexer.store import load_cursor
from indexer.types import ZERO_HASH, Address, BlockRef, Contracts, Hash32, Wei
from inferd.chain.anvil import Anvil
from inferd.chain.delivery import CallbackFailure, deliver
from inferd.chain.deploy import DeploymentTerms, deploy
from inferd.chain.register import register_worker
from inferd.chain.requester import submit_many
from inferd.chain.signers import LocalSigner, TransactionSigner
from inferd.chain.transact import Sender
from inferd.protocol.artifacts import load
from inferd.protocol.calls import codec, decode_view, post, post_proven, submit, view, withdraw
from inferd.protocol.request import Delivery, RequestParams, model_id
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import (
    CompactSignature,
    domain_separator,
    group_digest,
    sign_digest,
)
from inferd.settlement.engine import Settlement
from inferd.settlement.key_queue import Claim
from inferd.settlement.settings import SettlementSettings
from inferd.settlement.sharing import Sharing

GWEI = 10**9
ETHER = 10**18
POSTER_BPS = 2_000
POST_AT_ONCE = {"guard_s": 1e9}
FORWARDER = "366020900380602060003760006000916000346000355af115601d57005b60006000fd"
"""Code of a contract that calls the address in the first word of its calldata with the rest,
and reverts where that does."""


@dataclass
class World:
    """Automine is off once it is built: blocks come from `mine`."""

    anvil: Anvil
    rpc: Rpc
    pool: Pool
    contracts: Contracts
    genesis_hash: Hash32
    requester: Sender
    worker_keys: dict[Address, PrivateKey]
    poster: TransactionSigner
    groups_signed: list[tuple[Address, int]] = field(default_factory=list)
    indexer: Indexer | None = None

    @property
    def workers(self) -> list[Address]:
        return sorted(self.worker_keys)

    def settlement(
        self,
        rpc: Any = None,
        pool: Any = None,
        now: Callable[[], float] = time.time,
        signers: Sequence[TransactionSigner] = (),
        claim: Claim | None = None,
        fence: Fence | None = None,
        sharing: Sharing | None = None,
        **settings: Any,
    ) -> Settlement:
        chosen = {**POST_AT_ONCE, "poster_bps": POSTER_BPS, **settings}
        return Settlement(
            rpc=rpc or self.rpc,
            db=pool or self.pool,
            contracts=self.contracts,
            signers=signers or [self.poster],
            sign_group=self.sign_group,
            settings=SettlementSettings(**chosen),
            fence=fence,
            claim=claim,
            sharing=sharing,
            now=now,
        )

    async def sign_group(self, worker: Address, items: bytes) -> CompactSignature:
        self.groups_signed.append((worker, len(items) // 60))
        domain = domain_separator(self.contracts.chain_id, self.contracts.results)
        return sign_digest(self.worker_keys[worker], group_digest(domain, items))

    async def submit(
        self,
        count: int,
        *,
        fee_wei: int = ETHER // 100,
        lifetime_s: int = 3_600,
        batchable: bool = True,
        delivery: Delivery = Delivery.EVENT,
        quorum: int = 1,
    ) -> list[int]:
        """New requests' ids; a block is mined for them."""
        head = await self.rpc.header("latest")
        assert head is not None
        params = RequestParams(
            model_id("test-model"),
            16,
            head.timestamp_s + lifetime_s,
            0,
            b"hi",
            batchable=batchable,
            delivery=delivery,
            quorum=quorum,
        )
        await self.automine(True)
        submitted = await submit_many(
            self.requester, self.contracts, [params] * count, [Wei(fee_wei)] * count
        )
        await self.automine(False)
        await self.index()
        return [one.request_id for one in submitted]

    async def new_diary(self) -> Address:
        """A contract of contracts/src/examples that asks with delivery CALLBACK."""
        await self.automine(True)
        requests = to_checksum_address(self.contracts.requests)
        created = await self.requester.send(
            None, load("Diary").bytecode + encode(["address"], [requests])
        )
        await self.automine(False)
        assert created.contract_address is not None
        return created.contract_address

    async def ask_by(self, diary: Address, *, fee_wei: int = ETHER // 100) -> int:
        """The id of a request of that contract; a block is mined for it."""
        asking = [model_id("test-model"), b"hi", 16, 3_600]
        data = decode_hex(codec("Diary").encode_abi("ask", args=asking))
        await self.automine(True)
        await self.requester.send(diary, data, value_wei=fee_wei)
        await self.automine(False)
        await self.index()
        newest: int = await self.pool.fetchval("SELECT max(id) FROM chain.request")
        return newest

    async def ask_as(
        self,
        consumer: Address,
        *,
        callback_gas: int,
        prompt: bytes = b"hi",
        fee_wei: int = ETHER // 100,
    ) -> int:
        """The id of a request of any address, which is a contract from then on."""
        head = await self.rpc.header("latest")
        assert head is not None
        params = RequestParams(
            model_id("test-model"),
            16,
            head.timestamp_s + 3_600,
            0,
            prompt,
            callback_gas_limit=callback_gas,
            delivery=Delivery.CALLBACK,
        )
        await self.become(consumer, FORWARDER)
        await self.automine(True)
        data = bytes(12) + self.contracts.requests + submit(params)
        await self.requester.send(consumer, data, value_wei=fee_wei)
        await self.automine(False)
        await self.index()
        newest: int = await self.pool.fetchval("SELECT max(id) FROM chain.request")
        return newest

    async def become(self, account: Address, code: str) -> None:
        """The account has that code, in hex, from now on."""
        place = to_checksum_address(account)
        await self.rpc.request("anvil_setCode", [place, "0x" + code])

    async def answer_of(self, diary: Address, request_id: int) -> bytes:
        """What the contract keeps; empty while it has not been called."""
        returned = await self.rpc.call(diary, view("Diary", "answerOf", [request_id]))
        (answer,) = decode_view("Diary", "answerOf", returned)
        return bytes(answer)

    async def post_by_a_stranger(self, request_id: int) -> None:
        """Somebody else sends a result that was computed here."""
        row = await self.pool.fetchrow(
            "SELECT * FROM node.result WHERE request_id = $1", request_id
        )
        item = ResultItem(request_id, row["commitment"], row["digest"])
        await self.automine(True)
        data = post([(pack_items([item]), [row["signature"]])], ZERO_HASH)
        await self.requester.send(self.contracts.results, data)
        await self.automine(False)
        await self.index()

    async def post_proven_by(self, signer: TransactionSigner, request_id: int) -> None:
        """By a key of ours, outside of the outbox."""
        row = await self.pool.fetchrow(
            "SELECT * FROM node.result WHERE request_id = $1", request_id
        )
        item = ResultItem(request_id, row["commitment"], row["digest"])
        signed = await signer.sign(
            {
                "type": 2,
                "chainId": self.contracts.chain_id,
                "nonce": await self.rpc.nonce(signer.address),
                "to": to_checksum_address(self.contracts.results),
                "value": 0,
                "data": post_proven([(pack_items([item]), [row["signature"]], [b""])], ZERO_HASH),
                "gas": 1_000_000,
                "maxFeePerGas": 100 * GWEI,
                "maxPriorityFeePerGas": GWEI,
            }
        )
        await self.rpc.send_raw_transaction(signed.raw)
        await self.mine()

    async def post_proven_by_a_stranger(self, request_id: int) -> None:
        """The same of a request under terms, whose verifier is nobody."""
        row = await self.pool.fetchrow(
            "SELECT * FROM node.result WHERE request_id = $1", request_id
        )
        item = ResultItem(request_id, row["commitment"], row["digest"])
        await self.automine(True)
        data = post_proven([(pack_items([item]), [row["signature"]], [b""])], ZERO_HASH)
        await self.requester.send(self.contracts.results, data)
        await self.automine(False)
        await self.index()

    async def hand_over(self, request_id: int) -> None:
        """Somebody else delivers the output; what became of it is indexed."""
        await self.automine(True)
        output = f"answer {request_id}".encode()
        with suppress(CallbackFailure):
            await deliver(self.requester, self.contracts, request_id, output)
        await self.automine(False)
        await self.index()

    async def compute(
        self,
        ids: Sequence[int],
        worker: int | Address = 0,
        *,
        age_s: int = 60,
        output: bytes | None = None,
    ) -> None:
        """Signed results of a worker in the database."""
        signer = self.workers[worker] if isinstance(worker, int) else worker
        for request_id in ids:
            commitment = await self.pool.fetchval(
                "SELECT commitment FROM chain.request WHERE id = $1", request_id
            )
            said = f"answer {request_id}".encode() if output is None else output
            item = ResultItem(request_id, commitment, digest_of(said))
            domain = domain_separator(self.contracts.chain_id, self.contracts.results)
            digest = group_digest(domain, pack_items([item]))
            await self.pool.execute(
                "INSERT INTO node.result (request_id, commitment, worker, lease_id, digest, output,"
                " media_type, manifest, signature, compute_ms, computed_at)"
                " VALUES ($1, $2, $3, 1, $4, $5, 'text/plain', '{}', $6, 5,"
                " now() - make_interval(secs => $7))",
                request_id,
                commitment,
                signer,
                item.digest,
                said,
                sign_digest(self.worker_keys[signer], digest),
                age_s,
            )

    async def decide(self, leaves: Sequence[bytes]) -> None:
        """Decisions that wait to be anchored."""
        round_id = await self.pool.fetchval(
            "INSERT INTO node.round (block_number, block_hash, base_fee_wei, policy, pending,"
            " assigned, kept, refused, duration_us) VALUES (1, '', 1, 'p', 0, 0, 0, 0, 0)"
            " RETURNING id"
        )
        await self.pool.executemany(
            "INSERT INTO node.decision (round_id, request_id, commitment, kind, reason, leaf)"
            " VALUES ($1, 1, '', 'assign', 'assigned', $2)",
            [(round_id, leaf) for leaf in leaves],
        )

    async def automine(self, on: bool) -> None:
        await self.rpc.request("evm_setAutomine", [on])

    async def mine(self, count: int = 1) -> BlockRef:
        """New blocks, indexed; returns the head."""
        await self.rpc.request("anvil_mine", [count])
        return await self.index()

    async def index(self) -> BlockRef:
        """Brings the tables up to the chain's head."""
        if self.indexer is None:
            self.indexer = Indexer(
                self.rpc, self.pool, self.contracts, genesis_hash=self.genesis_hash
            )
            await self.indexer.prepare()
        while await self.indexer._step():
            pass
        async with self.pool.acquire() as connection:
            head = await load_cursor(connection)
        assert head is not None
        return head

    async def tick(self, settlement: Settlement, blocks: int = 1) -> None:
        for _ in range(blocks):
            await settlement.step(await self.mine())

    async def set_balance(self, wei: int) -> None:
        await self.rpc.request("anvil_setBalance", ["0x" + self.poster.address.hex(), hex(wei)])

    async def reorg(self, depth: int, branch: Sequence[Sequence[object]] = ()) -> BlockRef:
        """Replaces the newest blocks by as many, which are empty but for pairs of raw bytes and the
        place of a block; what was in them is gone."""
        await self.rpc.request("anvil_reorg", [depth, list(branch)])
        # As many blocks are a branch of the same length: one more makes it the longer one.
        return await self.mine()

    async def credit(self, account: Address) -> int:
        data = view("InferenceRequests", "credits", [to_checksum_address(account)])
        returned = await self.rpc.call(self.contracts.requests, data)
        (wei,) = decode_view("InferenceRequests", "credits", returned)
        return int(wei)

    async def statuses(self) -> dict[int, str]:
        rows = await self.pool.fetch("SELECT id, status::text FROM chain.request ORDER BY id")
        return {row["id"]: row["status"] for row in rows}

    async def poster_transfer(self, nonce: int) -> None:
        """Somebody uses our key: a transfer to ourselves, mined before anything of ours."""
        signed = await self.poster.sign(
            {
                "type": 2,
                "chainId": self.contracts.chain_id,
                "nonce": nonce,
                "to": self.poster.address,
                "value": 0,
                "data": b"",
                "gas": 21_000,
                "maxFeePerGas": 100 * GWEI,
                "maxPriorityFeePerGas": 50 * GWEI,
            }
        )
        await self.rpc.send_raw_transaction(signed.raw)

    async def withdraw_first(self, account: int) -> None:
        """An account takes its credit out by a transaction that is mined before those of ours."""
        owner = self.anvil.config.account(account)
        address = Address(bytes.fromhex(owner.address.removeprefix("0x")))
        signed = owner.sign_transaction(
            {
                "type": 2,
                "chainId": self.contracts.chain_id,
                "nonce": await self.rpc.nonce(address),
                "to": to_checksum_address(self.contracts.requests),
                "value": 0,
                "data": withdraw(),
                "gas": 100_000,
                "maxFeePerGas": 100 * GWEI,
                "maxPriorityFeePerGas": 50 * GWEI,
            }
        )
        await self.rpc.send_raw_transaction(bytes(signed.raw_transaction))

    async def posted(self) -> int:
        """How many transactions of the poster are on chain."""
        return await self.rpc.nonce(self.poster.address)

    async def intents(self) -> list[Any]:
        return await self.pool.fetch("SELECT * FROM node.tx_intent ORDER BY id")

    async def attempts(self) -> list[Any]:
        return await self.pool.fetch("SELECT * FROM node.tx_attempt ORDER BY nonce, max_fee_wei")

    async def items(self) -> dict[int, list[str | None]]:
        rows = await self.pool.fetch(
            "SELECT request_id, outcome FROM node.tx_item ORDER BY intent_id, request_id"
        )
        outcomes: dict[int, list[str | None]] = {}
        for row in rows:
            outcomes.setdefault(row["request_id"], []).append(row["outcome"])
        return outcomes

    async def fulfilled_events(self) -> dict[int, int]:
        """How often the chain says of each request that it is fulfilled."""
        rows = await self.pool.fetch(
            "SELECT request_id, count(*) AS n FROM chain.log WHERE kind = 'InferenceFulfilled'"
            " GROUP BY request_id"
        )
        return {row["request_id"]: row["n"] for row in rows}


async def build_world(anvil: Anvil, rpc: Rpc, pool: Pool) -> World:
    owner = Sender(rpc, anvil.config.account(0), anvil.config.chain_id)
    deployment = await deploy(owner, DeploymentTerms(poster_bps=POSTER_BPS))
    keys = {}
    for seed in (1, 2):
        account = Account.from_key(seed.to_bytes(32, "big"))
        key = PrivateKey(bytes(account.key))
        keys[Address(key.public_key.to_canonical_address())] = key
        await register_worker(owner, account, ["test-model"], 4, 0, None, deployment.contracts)
    world = World(
        anvil=anvil,
        rpc=rpc,
        pool=pool,
        contracts=deployment.contracts,
        genesis_hash=Hash32(deployment.genesis_hash),
        requester=Sender(rpc, anvil.config.account(1), anvil.config.chain_id),
        worker_keys=keys,
        poster=LocalSigner(anvil.config.account(2)),
    )
    await world.automine(False)
    await world.index()
    return world
