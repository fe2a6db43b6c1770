"""A transaction's way from calldata to its first send: simulate, estimate, plan, sign, send."""

from __future__ import annotations

from dataclasses import dataclass

from indexer.rpc import RpcError
from indexer.types import Address
from inferd.protocol.calls import decode_view
from inferd.settlement.chain import ChainRpc, Sight
from inferd.settlement.fees import Fees
from inferd.settlement.outbox import AlreadyLive, Outbox
from inferd.settlement.records import Draft
from inferd.settlement.sending import Sender
from inferd.settlement.settings import MAX_TRANSACTION_GAS, PausedReason, SettlementStatus
from inferd.settlement.signing import Signing

_REVERT_CODE = 3
_REVERT_WORDS = ("revert", "out of gas", "outofgas", "invalid opcode", "vm execution error")
# Between the estimate and the block, slots can turn from written to fresh.
_GAS_NUMERATOR, _GAS_DENOMINATOR = 6, 5


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of the contracts by the sender."""

    contract: str
    function: str
    target: Address
    calldata: bytes


class Launcher:
    def __init__(
        self,
        rpc: ChainRpc,
        outbox: Outbox,
        signing: Signing,
        sender: Sender,
        address: Address,
        status: SettlementStatus,
    ) -> None:
        self._rpc = rpc
        self._outbox = outbox
        self._signing = signing
        self._sender = sender
        self._address = address
        self._status = status

    async def simulate(self, call: Call, sight: Sight) -> int:
        """How many items the call would settle or refund at the head; 0 where it reverts.

        Raises RPC_TROUBLE.
        """
        try:
            returned = await self._rpc.call(
                call.target, call.calldata, block=sight.head, sender=self._address
            )
        except RpcError as error:
            if is_revert(error):
                return 0
            raise
        (count,) = decode_view(call.contract, call.function, returned)
        return int(count)

    async def estimate(self, call: Call) -> int | None:
        """Gas the call takes now; None where it reverts. Raises RPC_TROUBLE."""
        try:
            return await self._rpc.estimate_gas(self._address, call.target, call.calldata)
        except RpcError as error:
            if is_revert(error):
                return None
            raise

    async def launch(
        self, draft: Draft, fees: Fees, sight: Sight, *, hole: int | None = None
    ) -> bool:
        """Stores, signs and sends. False where it may not be: no funds, already under way, refused.

        Whatever happens after the bytes are stored, they stay and will be sent.
        Raises RPC_TROUBLE.
        """
        cost_wei = draft.gas_limit * fees.max_fee_wei
        if cost_wei > sight.free_wei:
            self._status.noticed = PausedReason.INSUFFICIENT_FUNDS
            return False
        try:
            intent_id = await self._outbox.plan(draft)
        except AlreadyLive as error:
            self._status.last_error = str(error)
            return False
        intent = await self._outbox.load(intent_id)
        intent = await self._signing.first(intent, fees, hole=hole)
        sight.free_wei -= cost_wei
        return await self._sender.send(intent, intent.attempts[-1], sight)


def gas_limit(estimate: int, expected: int, cap: int) -> int:
    """A fifth more than the estimate, at least what such calls took so far, at most the cap."""
    return min(max(-(-estimate * _GAS_NUMERATOR // _GAS_DENOMINATOR), expected), cap)


def gas_cap(max_gas: int, sight: Sight) -> int:
    """The most gas a transaction may have: by the operator, the protocol and the block."""
    return min(max_gas, MAX_TRANSACTION_GAS, sight.head.gas_limit)


def is_revert(error: RpcError) -> bool:
    """Whether the call failed, and not the endpoint."""
    text = error.message.lower()
    return error.code == _REVERT_CODE or any(word in text for word in _REVERT_WORDS)
