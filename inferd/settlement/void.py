"""A call of an address without code succeeds and does nothing: it must not pass for one of ours."""

from __future__ import annotations

from typing import ClassVar

from eth_utils.address import to_checksum_address

from indexer.errors import RpcUnreachable
from indexer.types import Address
from inferd.settlement.chain import ChainRpc
from inferd.settlement.settings import PausedReason, SettlementStatus


class ContractGone(RpcUnreachable):
    """There is no contract any more where the deployment has one, as the endpoint tells."""

    code: ClassVar[str] = "contract_gone"


async def find_void(rpc: ChainRpc, target: Address, status: SettlementStatus) -> str | None:
    """In words, and as the reason why nothing is sent, where an address has no code; None where it
    has. Raises RPC_TROUBLE."""
    if await rpc.code(target):
        return None
    words = f"there is no contract at {to_checksum_address(target)}"
    status.noticed = PausedReason.NO_CONTRACT_CODE
    status.error = words
    return words


async def refuse_void(rpc: ChainRpc, target: Address, status: SettlementStatus) -> None:
    """Raises ContractGone where an address has no code, and RPC_TROUBLE."""
    words = await find_void(rpc, target, status)
    if words is not None:
        raise ContractGone(
            words,
            help_text="name the right `deployment_file`, or look at the endpoint: its chain was"
            " reset, or it does not have the state of its newest block",
        )
