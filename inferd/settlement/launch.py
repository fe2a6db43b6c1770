"""A transaction's way from calldata to its first send: simulate, estimate, plan, sign, send."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, TypeAlias, TypeVar

import structlog
from eth_abi.exceptions import DecodingError

from indexer.rpc import RpcError, RpcMalformed
from indexer.rpc.refusals import is_revert
from indexer.types import Address, BlockRef, Contracts
from inferd.chain.signers import SignerTrouble
from inferd.protocol import calls
from inferd.settlement.chain import ChainRpc, Sight
from inferd.settlement.fees import Fees, within
from inferd.settlement.outbox import AlreadyLive, Outbox
from inferd.settlement.purse import Purse
from inferd.settlement.records import Draft, Intent, Payload
from inferd.settlement.rollups import Rollup
from inferd.settlement.sending import Sender
from inferd.settlement.settings import KeyStatus, PausedReason, SettlementStatus
from inferd.settlement.sifting import Sifted, Sifter
from inferd.settlement.signing import Signing
from inferd.settlement.state import IntentState
from inferd.settlement.void import refuse_void
from scheduler.gas import MAX_TRANSACTION_GAS

_log = structlog.get_logger("settlement")
_GAS_NUMERATOR, _GAS_DENOMINATOR = 6, 5
_FRESH_SLOT_GAS = 17_100
"""What it costs more to write a slot that holds zero than one that does not."""
_BITS_PER_WORD = 256
_MOST_DOUBLINGS = 8
_When: TypeAlias = BlockRef | Literal["pending"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of the contracts by the sender."""

    contract: str
    function: str
    target: Address
    calldata: bytes
    value_wei: int = 0
    """Sent along."""


class Launched(Enum):
    """What became of something new."""

    SENT = auto()
    KEPT = auto()
    """Its bytes are stored and no endpoint has them yet: it stays with this key."""
    NOT_BY_THIS_KEY = auto()
    """Nothing is under way; another key may be able to."""
    BY_NOBODY = auto()
    """No key may now, or it is under way already."""


class Launcher:
    def __init__(
        self,
        rpc: ChainRpc,
        outbox: Outbox,
        signing: Signing,
        sender: Sender,
        address: Address,
        contracts: Contracts,
        status: SettlementStatus,
        key: KeyStatus,
        max_gas: int,
        purse: Purse,
        rollup: Rollup,
        *,
        alone: bool,
    ) -> None:
        """`alone`: no other key is there to take over what this one cannot sign."""
        self.signing = signing
        self.address = address
        self._rpc = rpc
        self._outbox = outbox
        self._sender = sender
        self._contracts = contracts
        self._status = status
        self._key = key
        self._alone = alone
        self._max_gas = max_gas
        self._purse = purse
        self.behind_others = False
        """Whether transactions, of ours or of rivals, may be on their way before the next one."""
        self._rollup = rollup

    async def simulate(self, call: Call, sight: Sight) -> int:
        """How many items the call would settle, refund or deliver now; 0 where it reverts.

        Now is at the head, and, while transactions that come first may be on their way, after what
        the node expects of the next block as well. Raises RPC_TROUBLE.
        """
        count = await self._count(call, sight.head) or 0
        if count and self.behind_others:
            try:
                return min(count, await self._count(call, "pending") or 0)
            except RpcError as error:
                _log.info("no_pending_state", error=error.message)
        return count

    async def sift(
        self,
        items: Sequence[T],
        call_of: Callable[[Sequence[T]], Call],
        sight: Sight,
        *,
        pooled: bool = False,
    ) -> Sifted[T]:
        """Which of the items the call would not settle, refund or deliver now, as `simulate` sees
        it, and which of them the node fails on. `pooled`: also after what the node expects of the
        next block, whoever may be on his way. Raises RPC_TROUBLE where no item is to blame."""

        def at(block: _When) -> Sifter[T]:
            return Sifter(
                lambda some: self._count(call_of(some), block),
                lambda: self._count(call_of(()), block),
            )

        found = await at(sight.head).sift(items)
        spoilt = [*found.dead, *(item for item, _ in found.failing)]
        left = [item for item in items if item not in spoilt]
        if left and (self.behind_others or pooled):
            try:
                found.dead += (await at("pending").sift(left)).dead
            except RpcError as error:
                _log.info("no_pending_state", error=error.message)
        return found

    async def _count(self, call: Call, block: _When) -> int | None:
        """None where it reverts."""
        try:
            returned = await self._rpc.call(
                call.target, call.calldata, block=block, sender=self.address
            )
        except RpcError as error:
            if is_revert(error):
                return None
            raise
        if not returned:
            await refuse_void(self._rpc, call.target, self._status)
        try:
            (count,) = calls.decode_view(call.contract, call.function, returned)
        except DecodingError as error:
            raise RpcMalformed(
                f"the call of {call.function} returned what cannot be read: {error}",
                help_text="it is retried; if it stays so, use another endpoint",
            ) from None
        return int(count)

    async def passes(self, call: Call, gas: int, sight: Sight) -> bool:
        """Whether the call goes through at the head with that gas limit. Raises RPC_TROUBLE.

        Not what an estimate says: its search stops some hundredths above what is enough.
        """
        try:
            returned = await self._rpc.call(
                call.target,
                call.calldata,
                block=sight.head,
                sender=self.address,
                gas=gas,
                value_wei=call.value_wei,
            )
        except RpcError as error:
            if is_revert(error):
                return False
            raise
        if not returned:
            await refuse_void(self._rpc, call.target, self._status)
        return True

    async def owes_callback(self, arguments: Sequence[object], sight: Sight) -> bool:
        """Whether the contract would call a consumer at the head; arguments as `owesCallback` takes
        them. Raises RPC_TROUBLE."""
        data = calls.view("InferenceRequests", "owesCallback", arguments)
        call = Call("InferenceRequests", "owesCallback", self._contracts.requests, data)
        return bool(await self.simulate(call, sight))

    async def estimate(self, call: Call) -> int | None:
        """Gas the call takes now; None where it reverts. Raises RPC_TROUBLE."""
        try:
            return await self._rpc.estimate_gas(
                self.address, call.target, call.calldata, call.value_wei
            )
        except RpcError as error:
            if is_revert(error):
                return None
            raise

    async def unestimated_gas(self, call: Call, sight: Sight) -> int:
        """What a gas limit that is no estimate needs besides, where the chain takes gas for the
        call's bytes. Raises RPC_TROUBLE."""
        return await self._rollup.l1_gas(call.target, call.calldata, sight.head)

    async def noop(self, sight: Sight) -> Payload | None:
        """Nothing, sent to ourselves: it takes a nonce, and has no other effect. Raises
        RPC_TROUBLE.

        On some chains it takes more than the 21,000 gas of any transaction (Arbitrum adds its L1
        part), so it is estimated like all others.
        """
        estimate = await self.estimate(Call("", "", self.address, b""))
        if estimate is None:
            return None
        limit = gas_limit(estimate, estimate, gas_cap(self._max_gas, sight))
        return Payload(self.address, b"", limit)

    async def launch(
        self, draft: Draft, fees: Fees, sight: Sight, *, hole: int | None = None
    ) -> Launched:
        """Stores, signs and sends.

        Whatever happens after the bytes are stored, they stay and will be sent.
        Raises RPC_TROUBLE.
        """
        times = min(await self._outbox.times_out_of_gas(draft.items), _MOST_DOUBLINGS)
        limit = min(draft.gas_limit << times, gas_cap(self._max_gas, sight))
        draft = dataclasses.replace(draft, gas_limit=limit)
        data_wei = sight.data.reserve(len(draft.calldata), draft.gas_limit)
        most_wei = self._purse.most_wei(draft.kind)
        if most_wei is not None:
            fees = within(fees, max(most_wei - data_wei, 0) // draft.gas_limit)
            if fees.max_fee_wei < sight.next_base_fee_wei + fees.priority_fee_wei:
                self._status.noticed = PausedReason.SPENDING_OVER_CAP
                return Launched.BY_NOBODY
        gas_wei = draft.gas_limit * fees.max_fee_wei + data_wei
        cost_wei = gas_wei + draft.value_wei
        if cost_wei > sight.free_wei:
            self._key.noticed = PausedReason.INSUFFICIENT_FUNDS
            return Launched.NOT_BY_THIS_KEY
        try:
            intent_id = await self._outbox.plan(draft)
        except AlreadyLive as error:
            self._key.last_error = str(error)
            return Launched.BY_NOBODY
        intent = await self._outbox.load(intent_id)
        try:
            intent = await self.signing.first(intent, fees, sight, hole=hole)
        except SignerTrouble as error:
            await self._leave_unsigned(intent, error)
            return Launched.NOT_BY_THIS_KEY
        sight.free_wei -= cost_wei
        self._purse.take(draft.kind, gas_wei)
        sent = await self._sender.send(intent, intent.attempts[-1], sight)
        return Launched.SENT if sent else Launched.KEPT

    async def _leave_unsigned(self, intent: Intent, error: SignerTrouble) -> None:
        """It waits for its signature where nobody else can give one, and else frees its items."""
        self._key.noticed = PausedReason.SIGNER_UNAVAILABLE
        self._key.last_error = error.message
        _log.warning("signer_unavailable", intent_id=intent.id, error=error.message)
        if not self._alone:
            await self._outbox.close(intent, IntentState.CANCELLED, "not_sent", {}, max_failures=1)


def gas_limit(estimate: int, expected: int, cap: int, *, slots: int = 0, floor: int = 0) -> int:
    """A fifth more than the estimate, at least what such calls took so far and what no node takes
    less for (`scheduler.gas.calldata_floor`), at most the cap.

    Of `slots`, each may hold something when the estimate is made and nothing in the block: an owner
    withdrew its credit, or a reorganisation took the transaction that wrote it.
    """
    fifth_more = -(-estimate * _GAS_NUMERATOR // _GAS_DENOMINATOR)
    return min(max(fifth_more, estimate + slots * _FRESH_SLOT_GAS, expected, floor), cap)


def fresh_slots(accounts: int, request_ids: Iterable[int]) -> int:
    """How many slots a call writes: one per account credited, one per word of settled bits."""
    return accounts + len({request_id // _BITS_PER_WORD for request_id in request_ids})


def gas_cap(max_gas: int, sight: Sight) -> int:
    """The most gas a transaction may have: by the operator, the protocol and the block."""
    return min(max_gas, MAX_TRANSACTION_GAS, sight.head.gas_limit)
