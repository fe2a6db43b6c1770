"""Before any work: is this the chain, are these the contracts, what have they fixed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.errors import NoContractCode
from indexer.rpc import Rpc, RpcError
from indexer.rpc.refusals import is_revert
from indexer.schema import Migration, migrations_in
from indexer.types import Address
from inferd.chain.connect import check_chain, read_view
from inferd.protocol.deployment import Deployment


@dataclass(frozen=True, slots=True)
class ChainFacts:
    """What the deployed contracts have fixed for ever."""

    poster_bps: int


def node_migrations() -> tuple[Migration, ...]:
    """The daemon's own tables."""
    return migrations_in(files("inferd.node") / "migrations")


async def inspect_chain(rpc: Rpc, deployment: Deployment) -> ChainFacts:
    """Raises WrongChain, NoContractCode, RpcUnreachable, RpcError."""
    await check_chain(rpc, deployment)
    await rpc.check_relays()
    contracts = deployment.contracts
    poster_bps = await _read(rpc, contracts.requests, "InferenceRequests", "posterBps")
    # That there is a contract is not enough: calls of another one do nothing, or something else.
    settles = await _read(rpc, contracts.results, "InferenceResults", "requests")
    if bytes(to_canonical_address(settles)) != bytes(contracts.requests):
        raise NoContractCode(
            f"the contract at {to_checksum_address(contracts.results)} settles no requests of"
            f" {to_checksum_address(contracts.requests)}",
            help_text=_NAME_IT,
        )
    return ChainFacts(poster_bps)


async def _read(rpc: Rpc, address: Address, contract: str, function: str) -> Any:
    try:
        (value,) = await read_view(rpc, address, contract, function)
    except RpcError as error:
        if not is_revert(error):
            raise
        raise NoContractCode(
            f"the contract at {to_checksum_address(address)} is no {contract} of inferd",
            help_text=_NAME_IT,
        ) from None
    return value


_NAME_IT = "name the right `deployment_file`"
