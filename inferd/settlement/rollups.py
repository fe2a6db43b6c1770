"""What a rollup asks for beside gas, and what it does not do that other chains do.

    OP stack   code at the predeploy GasPriceOracle   a fee for a transaction's bytes, and one for
                                                      its operator, outside its gas
    Arbitrum   code at the precompile ArbSys          that fee is in the gas, as much as the node
                                                      estimates; and who comes first is first

Sources: specs.optimism.io, "Fjord", "Isthmus" and "Jovian" (GasPriceOracle, execution engine);
docs.arbitrum.io, "How to estimate gas" and "Precompiles reference" (NodeInterface).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Literal, Protocol

import structlog
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.crypto import keccak

from indexer.rpc import Receipt, RpcError, RpcMalformed
from indexer.rpc.refusals import is_revert
from indexer.together import together
from indexer.types import ZERO_HASH, Address, BlockRef, Hash32, Wei
from inferd.chain.encoding import unsigned
from inferd.settlement.data_fee import (
    NO_DATA_PRICE,
    OPERATOR_SAMPLE_GAS,
    DataPrice,
    data_price,
    samples,
)

_log = structlog.get_logger("settlement")

GAS_PRICE_ORACLE = Address(bytes.fromhex("420000000000000000000000000000000000000f"))
ARB_SYS = Address(bytes(19) + b"\x64")
NODE_INTERFACE = Address(bytes(19) + b"\xc8")
_PRICE_HOLDS_S = 12
"""A block of the chain below, with which its prices change."""
_L1_GAS_NUMERATOR, _L1_GAS_DENOMINATOR = 6, 5
_SAMPLE_GAS = 1_000_000
"""Of the transactions whose fee is asked for; like their price, it is only a number in their
bytes."""
_SAMPLE_PRICE_WEI = 10**8


class RollupRpc(Protocol):
    """The part of indexer.rpc.Rpc that this asks."""

    async def code(self, address: Address) -> bytes: ...

    async def call(
        self,
        to: Address,
        data: bytes,
        block: BlockRef | Hash32 | Literal["latest", "pending"] = "latest",
        sender: Address | None = None,
        gas: int | None = None,
        value_wei: int = 0,
    ) -> bytes: ...


class Kind(Enum):
    NONE = auto()
    OP = auto()
    ARBITRUM = auto()


class Rollup:
    """What kind of chain this is, found out once, and what it takes beside gas.

    Every method raises RpcUnreachable and RpcError.
    """

    def __init__(self, rpc: RollupRpc, chain_id: int) -> None:
        self._rpc = rpc
        self._chain_id = chain_id
        self._kind: Kind | None = None
        self._price = NO_DATA_PRICE
        self._priced_at_s: int | None = None

    async def kind(self) -> Kind:
        """By the contracts that only such a chain has, at addresses that nobody can deploy to."""
        if self._kind is None:
            if await self._rpc.code(GAS_PRICE_ORACLE):
                self._kind = Kind.OP
            elif await self._rpc.code(ARB_SYS):
                self._kind = Kind.ARBITRUM
            else:
                self._kind = Kind.NONE
        return self._kind

    async def replaces(self) -> bool:
        """Whether a dearer transaction takes the place of one that was taken. A sequencer that
        serves who comes first has ordered it by then."""
        return await self.kind() is not Kind.ARBITRUM

    async def data_price(self, head: BlockRef) -> DataPrice:
        """What transactions cost beside gas; asked for anew every 12 s of chain time."""
        if await self.kind() is not Kind.OP:
            return NO_DATA_PRICE
        age_s = None if self._priced_at_s is None else head.timestamp_s - self._priced_at_s
        if age_s is None or not 0 <= age_s < _PRICE_HOLDS_S:
            self._price = await self._priced(head)
            self._priced_at_s = head.timestamp_s
        return self._price

    async def paid_beside_gas(self, receipt: Receipt) -> Wei:
        """What a mined transaction cost beside `gas_used * effective_gas_price`, to the wei.

        The receipt names the fee for its bytes. Of the operator's fee it has only the parameters,
        and the forks differ in what is made of them: the oracle knows which is in force. Where the
        endpoint keeps no state of its block any more, it is asked as of now: they seldom change.
        """
        if await self.kind() is not Kind.OP:
            return Wei(0)
        try:
            operator_wei = await self._operator_fee(receipt.gas_used, receipt.block_hash)
        except RpcError as error:
            _log.warning("operator_fee_of_now", block=receipt.block_number, error=error.message)
            operator_wei = await self._operator_fee(receipt.gas_used, "latest")
        return Wei(receipt.l1_fee_wei + operator_wei)

    async def l1_gas(self, to: Address, data: bytes, head: BlockRef) -> int:
        """What must be in a gas limit for a call's bytes, where it is not estimated as a whole. A
        fifth more than now, as it follows the price of the chain below; 0 but on Arbitrum."""
        if await self.kind() is not Kind.ARBITRUM:
            return 0
        answer = await self._ask(
            NODE_INTERFACE,
            "gasEstimateL1Component(address,bool,bytes)",
            (to, False, data),
            ("uint64", "uint256", "uint256"),
            head,
        )
        return -(-answer[0] * _L1_GAS_NUMERATOR // _L1_GAS_DENOMINATOR)

    async def _priced(self, head: BlockRef) -> DataPrice:
        async def fee_of(calldata: bytes) -> int:
            (fee_wei,) = await self._ask(
                GAS_PRICE_ORACLE, "getL1Fee(bytes)", (self._sample(calldata),), _UINT, head
            )
            return fee_wei

        short_wei, long_wei = await together(fee_of, samples(), at_once=2)
        fixed_wei = await self._operator_fee(0, head)
        sampled_wei = await self._operator_fee(OPERATOR_SAMPLE_GAS, head)
        return data_price((short_wei, long_wei), (fixed_wei, sampled_wei))

    async def _operator_fee(self, gas: int, block: BlockRef | Hash32 | Literal["latest"]) -> int:
        try:
            answer = await self._ask(
                GAS_PRICE_ORACLE, "getOperatorFee(uint256)", (gas,), _UINT, block
            )
        except RpcError as error:
            if is_revert(error):
                return 0  # There was none before the fork Isthmus, nor the function.
            raise
        return answer[0]

    async def _ask(
        self,
        where: Address,
        function: str,
        arguments: Sequence[object],
        returned: tuple[str, ...],
        block: BlockRef | Hash32 | Literal["latest"],
    ) -> tuple[int, ...]:
        types = function[function.index("(") + 1 : -1].split(",")
        data = keccak(text=function)[:4] + encode(types, arguments)
        answer = await self._rpc.call(where, data, block=block)
        try:
            return decode(returned, answer)
        except DecodingError as error:
            raise RpcMalformed(
                f"{function} of the chain's own contracts returned what cannot be read: {error}",
                help_text="it is retried; if it stays so, use another endpoint",
            ) from None

    def _sample(self, calldata: bytes) -> bytes:
        return unsigned(
            {
                "type": 2,
                "chainId": self._chain_id,
                "nonce": 2**16,
                "to": "0x" + ZERO_HASH[:20].hex(),
                "value": 0,
                "data": calldata,
                "gas": _SAMPLE_GAS,
                "maxFeePerGas": _SAMPLE_PRICE_WEI,
                "maxPriorityFeePerGas": _SAMPLE_PRICE_WEI,
            }
        )


_UINT = ("uint256",)
