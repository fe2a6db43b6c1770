"""A chain in steady state: every slot that a measured transaction writes is non-zero before it.

Keys, times and random bytes are the same in each run, so the gas is too.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from eth_account.signers.local import LocalAccount
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_canonical_address

from indexer.rpc import Receipt, Rpc
from indexer.types import WEI_PER_GWEI, Address, Contracts, Hash32, Wei
from inferd.chain.anvil import AnvilAccounts, AnvilConfig, start_anvil
from inferd.chain.deploy import BURNT, DeploymentTerms, deploy
from inferd.chain.register import register_worker
from inferd.chain.requester import Submitted, submit_many
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.request import Delivery, RequestParams, model_id
from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.typed_data import (
    CompactSignature,
    domain_separator,
    group_digest,
    sign_digest,
)

FEE_WEI = Wei(10**6 * WEI_PER_GWEI)
MODEL = "markov"
START_S = 1_900_000_000
LATER_S = START_S + 3_600
"""Deadline of what is to be refunded."""
FAR_S = START_S + 10**9
WORD_IDS = 256
"""Requests whose bits share a storage word."""

DEPLOYER, POSTER, REQUESTER, REPORTER = 0, 1, 2, 3
WORKERS = (4, 5, 6, 7)
LIAR = 8
NEWCOMER = 9
_OWNER_OFFSET = 10
"""The owner of the worker with account n is account n + 10."""
_MOST_AT_ONCE = 128

CONFIG = AnvilConfig(
    chain_id=31337,
    host="127.0.0.1",
    port=0,
    block_time_s=0,
    hardfork="osaka",
    gas_limit=30_000_000,
    base_fee_wei=WEI_PER_GWEI,
    slots_in_an_epoch=1,
    order="fees",
    accounts=AnvilAccounts(
        mnemonic="test test test test test test test test test test test junk",
        count=20,
        balance_ether=10_000,
    ),
)

Group = tuple[bytes, Sequence[CompactSignature]]


@dataclass
class Arena:
    """Deployed contracts and people whose accounts, credits and bits are all in use already."""

    rpc: Rpc
    contracts: Contracts
    random: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - no secret
    _next_id: int = 1
    _accounts: dict[int, LocalAccount] = field(default_factory=dict)

    def account(self, index: int) -> LocalAccount:
        if index not in self._accounts:
            self._accounts[index] = CONFIG.account(index)
        return self._accounts[index]

    def address(self, index: int) -> Address:
        return Address(to_canonical_address(self.account(index).address))

    def sender(self, index: int) -> Sender:
        return Sender(self.rpc, self.account(index), self.contracts.chain_id)

    def owner_of(self, worker: int) -> Sender:
        return self.sender(worker + _OWNER_OFFSET)

    async def register(self, worker: int, *, endpoint: str = "") -> None:
        """Registers and stakes a worker."""
        await register_worker(
            self.owner_of(worker),
            self.account(worker),
            [MODEL],
            4,
            1024,
            None,
            self.contracts,
            endpoint=endpoint,
        )

    def params(self, input_bytes: int = 32, deadline_s: int = FAR_S) -> RequestParams:
        """Of a request with so many random bytes of input."""
        return RequestParams(model_id(MODEL), 64, deadline_s, 0, self.random.randbytes(input_bytes))

    async def ask(
        self,
        count: int,
        *,
        delivery: Delivery = Delivery.EVENT,
        quorum: int = 1,
        deadline_s: int = FAR_S,
    ) -> tuple[Submitted, ...]:
        """Requests whose bits are in one word, in which others were settled before."""
        await self.make_room(count)
        params = [
            replace(self.params(deadline_s=deadline_s), delivery=delivery, quorum=quorum)
            for _ in range(count)
        ]
        return await self.submit(params)

    async def make_room(self, count: int) -> None:
        """Lets the next `count` requests begin a word where this one is too full for them."""
        if self._next_id % WORD_IDS + count > WORD_IDS:
            while self._next_id % WORD_IDS:
                rest = min(_MOST_AT_ONCE, WORD_IDS - self._next_id % WORD_IDS)
                await self.submit([self.params() for _ in range(rest)])
            await self.warm_word()

    async def warm_word(self) -> None:
        """Settles a stored result: both of the word's bitmaps are in use then."""
        asked = await self.submit([replace(self.params(), delivery=Delivery.STORED)])
        await self.post([self.group(self.results(asked), WORKERS[:1])])

    async def submit(self, params: Sequence[RequestParams]) -> tuple[Submitted, ...]:
        fees = [FEE_WEI] * len(params)
        asked = await submit_many(self.sender(REQUESTER), self.contracts, params, fees)
        self._next_id = asked[-1].request_id + 1
        return asked

    def took(self, last_id: int) -> None:
        """Takes note of ids that were handed out to somebody else."""
        self._next_id = last_id + 1

    def results(self, asked: Sequence[Submitted]) -> list[ResultItem]:
        """Random digests."""
        return [
            ResultItem(one.request_id, one.commitment, Hash32(self.random.randbytes(32)))
            for one in asked
        ]

    def sign(self, packed: bytes, worker: int) -> CompactSignature:
        domain = domain_separator(self.contracts.chain_id, self.contracts.results)
        key = PrivateKey(bytes(self.account(worker).key))
        return sign_digest(key, group_digest(domain, packed))

    def group(self, items: Sequence[ResultItem], workers: Sequence[int]) -> Group:
        """Signed by these workers, in the order the contract wants."""
        packed = pack_items(items)
        return packed, [self.sign(packed, worker) for worker in sorted(workers, key=self.address)]

    def groups(self, items: Sequence[ResultItem]) -> list[Group]:
        """Equal shares for all workers."""
        share = len(items) // len(WORKERS)
        return [
            self.group(items[at * share : (at + 1) * share], [worker])
            for at, worker in enumerate(WORKERS)
        ]

    async def post(self, groups: Sequence[Group], *, root: bool = True) -> Receipt:
        """With a random decisions root, or with nothing to anchor."""
        anchored = Hash32(self.random.randbytes(32) if root else bytes(32))
        data = calls.post(groups, anchored)
        return await self.sender(POSTER).send(self.contracts.results, data)

    async def credit(self, account: Address) -> None:
        """Makes an account's credit slot one that is in use."""
        data = calls.credit(account)
        await self.sender(DEPLOYER).send(self.contracts.requests, data, value_wei=WEI_PER_GWEI)

    async def pass_time(self, to_s: int) -> None:
        await self.rpc.request("evm_setNextBlockTimestamp", [to_s])
        await self.rpc.request("evm_mine")


@asynccontextmanager
async def steady_arena() -> AsyncIterator[Arena]:
    """Raises AnvilMissing, AnvilNotStarted and what `deploy` raises."""
    with start_anvil(CONFIG, extra_arguments=("--timestamp", str(START_S))) as anvil:
        async with Rpc([anvil.url]) as rpc:
            deployer = Sender(rpc, CONFIG.account(DEPLOYER), CONFIG.chain_id)
            deployment = await deploy(deployer, DeploymentTerms())
            arena = Arena(rpc, deployment.contracts)
            for worker in (*WORKERS, LIAR):
                await arena.register(worker)
            for account in (arena.address(REQUESTER), arena.address(REPORTER), BURNT):
                await arena.credit(account)
            await arena.warm_word()
            await arena.post(arena.groups(arena.results(await arena.ask(len(WORKERS)))))
            yield arena
