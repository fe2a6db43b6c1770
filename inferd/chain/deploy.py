"""Puts the four contracts on a chain. They name each other, so their addresses are computed
before they exist: one sender creates them at consecutive nonces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from eth_abi.abi import encode
from eth_utils.address import to_canonical_address
from eth_utils.crypto import keccak

from indexer.errors import OperatorError
from indexer.types import Address, Contracts, Hash32
from inferd.chain.connect import read_view
from inferd.chain.transact import Sender
from inferd.protocol.artifacts import load
from inferd.protocol.deployment import Deployment

_ORDER = ("WorkerRegistry", "StakeManager", "InferenceResults", "InferenceRequests")


class DeploymentDisturbed(OperatorError):
    """Another transaction of the same key came between; the contracts do not fit together."""

    code: ClassVar[str] = "deployment_disturbed"


@dataclass(frozen=True, slots=True)
class DeploymentTerms:
    """What the contracts fix for ever."""

    poster_bps: int = 2_000
    """The poster's share of each fee, in 1/10,000; the rest is the worker's."""
    cancel_delay_s: int = 60
    min_stake_wei: int = 10**17
    unbonding_delay_s: int = 7 * 24 * 3600


async def deploy(sender: Sender, terms: DeploymentTerms) -> Deployment:
    """Deploys all four and checks that they know each other.

    Raises DeploymentDisturbed and what `Sender.send` raises. An interrupted deployment costs its
    gas and does no other harm: run it again.
    """
    genesis = await sender.rpc.header(0)
    if genesis is None:
        raise DeploymentDisturbed(
            "the endpoint does not serve the genesis block",
            help_text="use an endpoint with full headers",
        )
    nonce = await sender.rpc.nonce(sender.address, "pending")
    addresses = {
        name: create_address(sender.address, nonce + step) for step, name in enumerate(_ORDER)
    }
    start_block = None
    for name in _ORDER:
        receipt = await sender.send(None, load(name).bytecode + _arguments(name, addresses, terms))
        start_block = receipt.block_number if start_block is None else start_block
        if not await sender.rpc.code(addresses[name]):
            raise _disturbed(name)
    contracts = Contracts(
        chain_id=sender.chain_id,
        start_block=start_block or 0,
        requests=addresses["InferenceRequests"],
        results=addresses["InferenceResults"],
        registry=addresses["WorkerRegistry"],
        stakes=addresses["StakeManager"],
    )
    await _check_wiring(sender, contracts)
    return Deployment(contracts, Hash32(genesis.hash))


def create_address(sender: Address, nonce: int) -> Address:
    """Where CREATE puts a contract: the last 20 bytes of keccak256(rlp([sender, nonce]))."""
    if nonce < 0x80:
        number = bytes([nonce or 0x80])
    else:
        digits = nonce.to_bytes((nonce.bit_length() + 7) // 8, "big")
        number = bytes([0x80 + len(digits)]) + digits
    items = bytes([0x80 + len(sender)]) + sender + number
    return Address(keccak(bytes([0xC0 + len(items)]) + items)[12:])


async def _check_wiring(sender: Sender, contracts: Contracts) -> None:
    wanted = (
        (contracts.requests, "InferenceRequests", "results", contracts.results),
        (contracts.results, "InferenceResults", "requests", contracts.requests),
        (contracts.results, "InferenceResults", "registry", contracts.registry),
        (contracts.registry, "WorkerRegistry", "stakeManager", contracts.stakes),
        (contracts.stakes, "StakeManager", "registry", contracts.registry),
    )
    for at, name, function, expected in wanted:
        (named,) = await read_view(sender.rpc, at, name, function)
        if Address(to_canonical_address(named)) != expected:
            raise _disturbed(name)


def _arguments(name: str, at: dict[str, Address], terms: DeploymentTerms) -> bytes:
    values: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
        "WorkerRegistry": (("address",), (at["StakeManager"],)),
        "StakeManager": (
            ("address", "uint256", "uint40"),
            (at["WorkerRegistry"], terms.min_stake_wei, terms.unbonding_delay_s),
        ),
        "InferenceResults": (
            ("address", "address"),
            (at["InferenceRequests"], at["WorkerRegistry"]),
        ),
        "InferenceRequests": (
            ("address", "uint256", "uint40"),
            (at["InferenceResults"], terms.poster_bps, terms.cancel_delay_s),
        ),
    }
    types, arguments = values[name]
    return encode(types, arguments)


def _disturbed(name: str) -> DeploymentDisturbed:
    return DeploymentDisturbed(
        f"{name} is not where it was expected: the key sent another transaction meanwhile",
        help_text="let nothing else use the key, and run `inferd deploy` again",
    )
