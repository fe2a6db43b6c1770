"""What one key has on its way: its nonces, its place in the outbox, its lock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from eth_utils.address import to_checksum_address

from indexer.database import Connection, Fence, Pool
from indexer.types import Address, BlockRef, Contracts
from inferd.chain.signers import TransactionSigner
from inferd.settlement.chain import ChainRpc, Sight, look, look_as
from inferd.settlement.follow import Follower
from inferd.settlement.gaps import GapFiller
from inferd.settlement.lanes import Lane
from inferd.settlement.launch import Launcher
from inferd.settlement.observing import UNTAKEN
from inferd.settlement.outbox import Outbox
from inferd.settlement.purse import Purse
from inferd.settlement.records import Attempt, Intent
from inferd.settlement.rollups import Rollup
from inferd.settlement.sending import Sender, pause_of
from inferd.settlement.settings import (
    KeyStatus,
    PausedReason,
    SettlementSettings,
    SettlementStatus,
)
from inferd.settlement.signing import Signing
from inferd.settlement.state import IntentState

_log = structlog.get_logger("settlement")

Claim = Callable[[Address], Awaitable[Fence | None]]
"""Takes the lock of a key, for as long as this process works: what every transaction that writes
for it begins with, or None while another process has the lock."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all keys of one operator have in common. Amounts of the purse are of them together."""

    rpc: ChainRpc
    pool: Pool
    contracts: Contracts
    settings: SettlementSettings
    status: SettlementStatus
    purse: Purse
    rollup: Rollup
    claim: Claim | None
    fence: Fence | None
    alone: bool
    """There is one key: what it cannot sign waits for it."""


class KeyQueue:
    """Without `signer`, as for a key that the settings name no more, stored bytes are sent and
    followed, and nothing is signed. All that matters is in the database."""

    def __init__(
        self, shared: Shared, address: Address, signer: TransactionSigner | None = None
    ) -> None:
        self.address = address
        self.status = KeyStatus(address)
        self.live: list[Intent] = []
        """After the last `follow`."""
        self.waiting: list[Intent] = []
        """Of these, those that take a slot."""
        self._shared = shared
        self._fence = shared.fence
        self._claimed = shared.claim is None
        self._outbox = Outbox(
            shared.pool,
            chain_id=shared.contracts.chain_id,
            sender=address,
            fence=self._check,
        )
        sender = Sender(shared.rpc, self._outbox, self.status)
        self._launcher = self._launcher_of(signer, sender) if signer is not None else None
        self._gaps = (
            GapFiller(self._outbox, sender, self._launcher, shared.settings)
            if self._launcher is not None
            else None
        )
        self._follower = Follower(
            shared.rpc,
            shared.pool,
            self._outbox,
            sender,
            self._launcher,
            shared.contracts,
            shared.settings,
            shared.status,
            self.status,
            shared.purse,
            shared.rollup,
            address,
            alone=shared.alone,
        )

    @property
    def outbox(self) -> Outbox:
        return self._outbox

    @property
    def stalled(self) -> list[Intent]:
        """Of those that take a slot, the ones that no endpoint is known to have."""
        return [intent for intent in self.waiting if intent.state in UNTAKEN]

    def kinds_under_way(self, sight: Sight) -> set[str]:
        """Of which no second one is made. What is with a stalled key holds up no other key, nor
        does one whose receipt nobody shows hold up a later one of its kind."""
        if self.stalled:
            return set()
        return {
            intent.kind
            for intent in self.live
            if intent.state is IntentState.MINED or self.is_under_way(intent, sight)
        }

    async def claim(self) -> bool:
        """Whether the key is ours to send with; says so where it is another process's. Database
        errors propagate."""
        if not self._claimed and self._shared.claim is not None:
            fence = await self._shared.claim(self.address)
            if fence is None:
                self.status.noticed = PausedReason.KEY_IN_USE
                return False
            self._fence, self._claimed = fence, True
            _log.info("key_claimed", poster=to_checksum_address(self.address))
        return True

    def unclaim(self) -> None:
        """The lock was given back."""
        self._fence, self._claimed = self._shared.fence, False

    async def look(self, head: BlockRef, seen: Sight | None) -> Sight:
        """The chain at that head as this key finds it; `seen` is what another saw there. Raises
        RPC_TROUBLE."""
        shared, settings = self._shared, self._shared.settings
        if seen is not None:
            sight = await look_as(shared.rpc, self.address, seen, settings.confirmations)
        else:
            sight = await look(
                shared.rpc,
                shared.pool,
                self.address,
                head,
                settings.confirmations,
                shared.rollup,
                settings.max_priority_fee_wei,
            )
        self.status.balance_wei = sight.balance_wei
        return sight

    async def follow(self, sight: Sight) -> None:
        """Moves all that can move. Raises RPC_TROUBLE."""
        live = await self._outbox.live()
        if self._gaps is not None and await self._gaps.fill(live, sight):
            live = await self._outbox.live()
        self.live = await self._follower.follow(live, sight)
        self.waiting = [intent for intent in self.live if self.is_under_way(intent, sight)]
        self.status.in_flight = len(self.waiting)

    def lane(self, sight: Sight, *, behind_others: bool) -> Lane | None:
        """What this key may send anew; says why where that is nothing it could."""
        if self._launcher is None:
            return None
        slots = self._shared.settings.max_in_flight - len(self.waiting)
        trouble = self._launcher.signing.rests(sight.head)
        if trouble is not None and not self._shared.alone:
            self.status.noticed = PausedReason.SIGNER_UNAVAILABLE
            self.status.last_error = self.status.last_error or trouble
        if self.status.noticed is PausedReason.SIGNER_UNAVAILABLE:
            slots = 0  # What would be planned now could not be signed.
        if self.stalled:
            # What comes later cannot be mined before it: no new nonces behind it.
            slots = 0
            self._say_why(self.stalled[0].attempts[-1])
        self._launcher.behind_others = behind_others
        return Lane(self._launcher, sight, slots, self.status)

    def is_under_way(self, intent: Intent, sight: Sight) -> bool:
        """Whether it takes a slot: what is mined, or has lost its nonce, holds up nothing."""
        if intent.state is IntentState.MINED:
            return False
        return intent.nonce is None or intent.nonce >= sight.chain_nonce

    async def _check(self, connection: Connection) -> None:
        if self._fence is not None:
            await self._fence(connection)

    def _launcher_of(self, signer: TransactionSigner, sender: Sender) -> Launcher:
        shared = self._shared
        return Launcher(
            shared.rpc,
            self._outbox,
            Signing(shared.rpc, self._outbox, signer, shared.contracts.chain_id),
            sender,
            self.address,
            shared.contracts,
            shared.status,
            self.status,
            shared.settings.max_gas,
            shared.purse,
            shared.rollup,
            alone=shared.alone,
        )

    def _say_why(self, attempt: Attempt) -> None:
        """Nothing passes these bytes: the operator must see what is in their way."""
        self.status.noticed = self.status.noticed or pause_of(attempt)
        self.status.last_error = self.status.last_error or attempt.error
