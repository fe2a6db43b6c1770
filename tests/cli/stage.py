"""The node's and other people's parts on the chain that commands act on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from eth_abi.abi import encode
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.rpc import Receipt, Rpc
from indexer.types import Address, Contracts
from inferd.chain.anvil import Anvil
from inferd.chain.connect import read_view
from inferd.chain.requester import read_request
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.artifacts import load
from inferd.protocol.deployment import load_deployment
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import (
    CompactSignature,
    domain_separator,
    group_digest,
    sign_digest,
)

T = TypeVar("T")

DEPLOYER, POSTER, REQUESTER, OWNER, STRANGER, WORKER = 0, 1, 2, 3, 4, 5
SETTINGS = """
[[workers]]
name = "text"
backend = "markov"
model = "markov"
slots = 2
key = { dev_account = 5 }
owner = { dev_account = 3 }

[[workers]]
name = "stranger"
backend = "markov"
model = "markov"
key = { dev_account = 6 }
owner = { dev_account = 4 }
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """A chain with contracts and one staked worker, `text`."""

    anvil: Anvil

    @property
    def contracts(self) -> Contracts:
        return load_deployment(Path("deployment.json")).contracts

    def address(self, index: int) -> str:
        return str(self.anvil.config.account(index).address)

    def do(self, act: Callable[[Rpc], Awaitable[T]]) -> T:
        async def work() -> T:
            async with Rpc([self.anvil.url]) as rpc:
                return await act(rpc)

        return asyncio.run(work())

    def send(
        self, to: Address | None, data: bytes, *, value_wei: int = 0, by: int = STRANGER
    ) -> Receipt:
        async def act(rpc: Rpc) -> Receipt:
            account = self.anvil.config.account(by)
            sender = Sender(rpc, account, self.contracts.chain_id)
            return await sender.send(to, data, value_wei=value_wei)

        return self.do(act)

    def view(self, contract: str, function: str, *arguments: Any) -> Any:
        """The first value that the view returns."""
        return self.views(contract, function, *arguments)[0]

    def views(self, contract: str, function: str, *arguments: Any) -> tuple[Any, ...]:
        at = {
            "InferenceRequests": self.contracts.requests,
            "WorkerRegistry": self.contracts.registry,
            "StakeManager": self.contracts.stakes,
            "Disputes": self.contracts.disputes,
        }[contract]
        return self.do(lambda rpc: read_view(rpc, at, contract, function, arguments))

    def sent_by(self, index: int) -> int:
        """How many transactions the account has sent."""
        address = Address(to_canonical_address(self.address(index)))
        return self.do(lambda rpc: rpc.nonce(address))

    def credit_of(self, index: int) -> int:
        return int(self.view("InferenceRequests", "credits", self.address(index)))

    def pass_time(self, seconds: int) -> None:
        async def act(rpc: Rpc) -> None:
            await rpc.request("evm_increaseTime", [seconds])
            await rpc.request("evm_mine")

        self.do(act)

    def sign(self, items: list[ResultItem], signer: int = WORKER) -> tuple[bytes, CompactSignature]:
        packed = pack_items(items)
        domain = domain_separator(self.contracts.chain_id, self.contracts.results)
        key = PrivateKey(bytes(self.anvil.config.account(signer).key))
        return packed, sign_digest(key, group_digest(domain, packed))

    def settle(self, request_id: int, output: bytes) -> None:
        """As a node does whose model needs no proofs, whatever the window."""
        request = self.do(lambda rpc: read_request(rpc, self.contracts, request_id))
        item = ResultItem(request_id, request.commitment, digest_of(output))
        packed, signature = self.sign([item])
        group = (packed, [(signature[:32], signature[32:])], [b""])
        data = calls.view("InferenceResults", "postProven", [[group], bytes(32)])
        self.send(self.contracts.results, data, by=POSTER)

    def consumer(self, count: int = 1, *, fee_wei: int = 10**16) -> Address:
        """Deploys one that is called back, and lets it ask."""
        code = load("Emitter").bytecode + encode(("address",), (self.contracts.requests,))
        created = self.send(None, code).contract_address
        assert created is not None
        data = calls.view("Emitter", "ask", [count, 2**39, b"hello"])
        self.send(created, data, value_wei=count * fee_wei)
        return created

    def replace_code(self, at: Address, code: bytes) -> None:
        self.do(
            lambda rpc: rpc.request("anvil_setCode", [to_checksum_address(at), "0x" + code.hex()])
        )
