"""Whether an endpoint serves the chain of a deployment, and reads of its contracts' views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eth_abi.exceptions import DecodingError
from eth_utils.address import to_checksum_address

from indexer.errors import NoContractCode
from indexer.rpc import ChainIdentity, Rpc
from indexer.types import Address, Hash32
from inferd.protocol.calls import decode_view, view
from inferd.protocol.deployment import Deployment


async def check_chain(rpc: Rpc, deployment: Deployment) -> None:
    """Compares chain id, genesis and the presence of code with the deployment file. From then on
    no endpoint of another chain is used.

    Raises WrongChain where all endpoints are of another chain, NoContractCode, RpcUnreachable.
    """
    contracts = deployment.contracts
    rpc.expect(ChainIdentity(contracts.chain_id, Hash32(deployment.genesis_hash)))
    for address in contracts.addresses():
        if not await rpc.code(address):
            raise NoContractCode(
                f"there is no contract at {to_checksum_address(address)}", help_text=_DEPLOY
            )


async def read_view(
    rpc: Rpc, address: Address, contract: str, function: str, arguments: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """What a view returns at the newest block, in ABI order; addresses as lower-case 0x-text.

    Raises RpcUnreachable, and NoContractCode where the answer is not one of that function.
    """
    returned = await rpc.call(address, view(contract, function, arguments))
    try:
        return decode_view(contract, function, returned)
    except DecodingError as error:
        raise NoContractCode(
            f"there is no {contract} of inferd at {to_checksum_address(address)}",
            help_text=_DEPLOY,
        ) from error


_DEPLOY = "run `inferd deploy`, or name the right `deployment_file`"
