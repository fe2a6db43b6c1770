"""A chain with the contracts on it, and people with money."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from eth_account.signers.local import LocalAccount
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.rpc import Rpc
from indexer.types import Address, Contracts
from inferd.chain.anvil import Anvil
from inferd.chain.connect import read_view
from inferd.chain.deploy import DeploymentTerms, deploy
from inferd.chain.register import register_worker
from inferd.chain.transact import Sender
from inferd.protocol.deployment import Deployment
from inferd.protocol.request import RequestParams, model_id
from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.typed_data import (
    CompactSignature,
    domain_separator,
    group_digest,
    sign_digest,
)

ETHER = 10**18
GWEI = 10**9
MODEL = "markov"
TERMS = DeploymentTerms(poster_bps=2_000, cancel_delay_s=60, min_stake_wei=ETHER // 10)
DEPLOYER, POSTER, REQUESTER, OWNER, WORKER = 0, 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class World:
    anvil: Anvil
    rpc: Rpc
    deployment: Deployment

    @property
    def contracts(self) -> Contracts:
        return self.deployment.contracts

    def account(self, index: int) -> LocalAccount:
        return self.anvil.config.account(index)

    def sender(self, index: int) -> Sender:
        return Sender(self.rpc, self.account(index), self.contracts.chain_id)

    def address(self, index: int) -> Address:
        return Address(to_canonical_address(self.account(index).address))

    def checksum(self, index: int) -> str:
        return to_checksum_address(self.address(index))

    async def params(self, prompt: bytes = b"hello", **changes: Any) -> RequestParams:
        head = await self.rpc.header("latest")
        assert head is not None
        values = {
            "model_id": model_id(MODEL),
            "max_tokens": 16,
            "deadline_s": head.timestamp_s + 600,
            "memory_mb": 0,
            "input": prompt,
        }
        return RequestParams(**(values | changes))

    async def requests_view(self, function: str, *arguments: Any) -> Any:
        contract = "InferenceRequests"
        return (await read_view(self.rpc, self.contracts.requests, contract, function, arguments))[
            0
        ]

    async def register(self) -> None:
        await register_worker(
            self.sender(OWNER), self.account(WORKER), [MODEL], 2, 512, None, self.contracts
        )

    def sign(self, items: list[ResultItem], signer: int = WORKER) -> tuple[bytes, CompactSignature]:
        packed = pack_items(items)
        domain = domain_separator(self.contracts.chain_id, self.contracts.results)
        key = PrivateKey(bytes(self.account(signer).key))
        return packed, sign_digest(key, group_digest(domain, packed))

    async def pass_time(self, seconds: int) -> None:
        await self.rpc.request("evm_increaseTime", [seconds])
        await self.rpc.request("evm_mine")


@asynccontextmanager
async def deployed_world(anvil: Anvil) -> AsyncIterator[World]:
    async with Rpc([anvil.url]) as rpc:
        deployer = Sender(rpc, anvil.config.account(DEPLOYER), anvil.config.chain_id)
        yield World(anvil, rpc, await deploy(deployer, TERMS))
