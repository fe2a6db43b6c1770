"""What the operator settles about settlement, and what settlement tells about itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from indexer.types import WEI_PER_GWEI, Address
from inferd.settlement.delivery_gas import OWED_GAS, STORED_GAS
from inferd.settlement.fees import FeeCaps
from inferd.settlement.runway import FundsState, Projection, best, together
from inferd.settlement.state import IntentState
from scheduler.model import GasModel
from scheduler.posting_model import PostingRules

_GAS_PRIOR = GasModel(
    fixed_gas=45_000,
    per_group_gas=14_000,
    per_result_gas=5_500,
    per_stored_gas=STORED_GAS,
    per_callback_gas=OWED_GAS,
)


@dataclass(frozen=True, slots=True)
class SettlementSettings:
    """Amounts are wei, times seconds; a block is one of the chain's."""

    poster_bps: int
    """The poster's share of a fee in 1/10,000, as the deployed contract has it."""
    own_accounts: frozenset[Address] = frozenset()
    """Owners of workers whose share of the fee is this operator's own money."""
    pool_visible: bool = True
    """False where transactions go to endpoints that are not read: a hash that no block has is on
    its way from the time one of them took it until it is overdue."""
    confirmations: int = 2
    """Blocks after which a transaction counts as done, the one it is in included."""
    max_in_flight: int = 5
    """Transactions of one key that are signed and not yet mined."""
    resend_after_blocks: int = 2
    """Blocks without being mined after which a transaction is sent again or replaced."""

    max_refused_blocks: int = 5
    """Blocks of being refused for no known reason after which a transaction is given up."""

    max_fee_per_gas_wei: int = 200 * WEI_PER_GWEI
    max_priority_fee_wei: int = 10 * WEI_PER_GWEI
    """Per gas, replacements included."""
    min_priority_fee_wei: int = 0
    max_transaction_wei: int = 0
    """What one transaction may cost at most, replacements included; 0 = no limit."""
    cap_wei_per_hour: int = 0
    """Gas of posts and deliveries in any hour, at most, what is under way and its replacements
    included; 0 = no limit."""
    cap_wei_per_day: int = 0
    """The same in any 24 hours."""

    delay_price_wei_per_s: int = 10**12
    """What one result's waiting for one second is worth."""
    guard_s: float = 12.0
    """Post at once when a deadline is nearer than this and one block more."""
    lead_s: float = 1.5
    """How long before the next block posting is decided."""
    max_results: int = 100
    """Results in one transaction, at most."""
    max_gas: int = 8_000_000
    """Gas of one transaction, at most."""
    sign_timeout_s: float = 5.0
    """How long a worker may take to sign a group; after that its results go one by one."""

    warn_runway_results: int = 0
    """Results that the balance must pay for beyond what is under way and waiting; less is told."""
    stop_runway_results: int = 0
    """The same beyond what is under way; with less nothing new is planned."""

    max_item_failures: int = 3
    """Transactions in which a result may fail by its own fault before it is given up."""
    max_decisions: int = 2048
    """Decisions anchored by one transaction, at most."""
    gas_prior: GasModel = _GAS_PRIOR
    """Gas of a post before any of ours was mined."""
    gas_window: int = 200
    """Newest posts that the gas model is fitted to."""

    refunds: bool = True
    """Whether expired requests are refunded to their requesters at this operator's expense."""
    refund_max_fee_per_gas_wei: int = 20 * WEI_PER_GWEI
    """Gas price above which refunds wait."""
    refund_max_claims: int = 50
    """Claims in one transaction, at most."""
    refund_min_fee_ratio: float = 1.0
    """How many times its share of the refund's gas a fee must be; less is left to its owner."""
    refund_budget_wei_per_day: int = 5 * 10**16
    """Gas of refunds in any 24 hours, at most, replacements included."""

    disputes: bool = False
    """Whether settled results that a record says are lies are disputed, with this operator's
    money."""
    dispute_max_bond_wei: int = 0
    """Of one dispute, at most."""
    dispute_max_bonds_wei_per_day: int = 0
    """Staked in any 24 hours, at most."""

    def fee_caps(self) -> FeeCaps:
        return FeeCaps(
            self.max_fee_per_gas_wei, self.max_priority_fee_wei, self.min_priority_fee_wei
        )

    def refund_fee_caps(self) -> FeeCaps:
        limit = min(self.refund_max_fee_per_gas_wei, self.max_fee_per_gas_wei)
        tip = min(self.max_priority_fee_wei, limit)
        return FeeCaps(limit, tip, min(self.min_priority_fee_wei, tip))

    def posting_rules(self, priority_fee_wei: int) -> PostingRules:
        return PostingRules(
            delay_price_wei_per_s=self.delay_price_wei_per_s,
            max_results=self.max_results,
            max_gas=self.max_gas,
            guard_s=self.guard_s,
            priority_fee_wei=priority_fee_wei,
            max_fee_per_gas_wei=self.max_fee_per_gas_wei,
            lead_s=self.lead_s,
        )


class PausedReason(StrEnum):
    """Why nothing new is sent. Stable: shown to people and counted."""

    INSUFFICIENT_FUNDS = "insufficient_funds"
    GAS_PRICE_OVER_CAP = "gas_price_over_cap"
    UNPROFITABLE = "unprofitable"
    SPENDING_OVER_CAP = "spending_over_cap"
    KEY_IN_USE = "key_in_use"
    """Another process has the lock of this key, and sends what it signs."""
    RPC_TROUBLE = "rpc_trouble"
    TRANSACTION_REFUSED = "transaction_refused"
    SIGNER_UNAVAILABLE = "signer_unavailable"
    NO_CONTRACT_CODE = "no_contract_code"


@dataclass(frozen=True, slots=True)
class OpenDisputes:
    """Disputes of this operator's accounts on which nobody has ruled yet, by the index."""

    disputes: int = 0
    bonds_wei: int = 0
    """Staked in them."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What one closed intent came to."""

    state: IntentState
    gas_wei: int = 0
    """With what it cost beside its gas."""
    abandoned: int = 0
    outcomes: tuple[str, ...] = ()
    """Of its items."""


@dataclass(slots=True)
class KeyStatus:
    """Of one key that signs; counters are since the start of the process."""

    address: Address
    balance_wei: int | None = None
    funds: FundsState = FundsState.ENOUGH
    projection: Projection | None = None
    """What the balance has to pay for, as the newest step began."""
    in_flight: int = 0
    paused_reason: PausedReason | None = None
    """Why it sends nothing new, whatever the others do; as of the last whole step."""
    noticed: PausedReason | None = None
    """The same, of the step that is under way."""
    last_error: str | None = None
    confirmed_transactions: int = 0
    failed_transactions: int = 0
    abandoned: int = 0
    """Items given up after too many failures."""
    gas_spent_wei: int = 0
    """By the transactions above, as their receipts say, with the data fees of a rollup."""
    items_by_outcome: Counter[str] = field(default_factory=Counter)
    """Items of the transactions above: 'settled', 'delivered', 'skipped:<reason>', ..."""

    ended: dict[int, Ended] = field(default_factory=dict)
    """What is counted above of each intent that a reorganisation can still open again."""

    def begin(self) -> None:
        """A step begins: what is in its way is noticed anew."""
        self.noticed = self.last_error = None

    def count(self, intent_id: int, ended: Ended) -> None:
        """The intent was closed: where a reorganisation had opened it again, the newest end is the
        one that counts."""
        before = self.ended.pop(intent_id, None)
        if before is not None:
            self._add(before, -1)
        self.ended[intent_id] = ended
        self._add(ended, 1)

    def keep(self, intent_ids: Sequence[int]) -> None:
        """These are final: they are never opened again."""
        for intent_id in intent_ids:
            self.ended.pop(intent_id, None)

    def _add(self, ended: Ended, times: int) -> None:
        self.confirmed_transactions += times * (ended.state is IntentState.CONFIRMED)
        self.failed_transactions += times * (ended.state is IntentState.FAILED)
        self.abandoned += times * ended.abandoned
        self.gas_spent_wei += times * ended.gas_wei
        for outcome in ended.outcomes:
            number = self.items_by_outcome.pop(outcome, 0) + times
            if number:
                self.items_by_outcome[outcome] = number


@dataclass(slots=True)
class SettlementStatus:
    """The newest picture of all keys together; counters are since the start of the process."""

    keys: tuple[KeyStatus, ...] = ()
    """Of the settings, in their order."""
    former: dict[Address, KeyStatus] = field(default_factory=dict)
    """Keys that the settings name no more, and that had something under way."""
    tip_wei: int = 0
    """Priority fee per gas that the endpoint suggests; of a chain without a base fee, the whole gas
    price."""
    ready: int = 0
    ready_later_gas: int = 0
    """What the calls of contracts that follow from these take."""
    ready_later_data_wei: int = 0
    """And what those cost beside their gas."""
    held: int = 0
    """Results that the chain would refuse now; tried again after some blocks."""
    set_apart: dict[str, str] = field(default_factory=dict)
    """By kind of intent, which items the endpoint fails on, each alone, in words."""
    waiting_for_slot: int = 0
    """Results that would be posted now, were it not for transactions that are on their way."""
    too_late: int = 0
    """Results dropped unposted, since the next block would have been past their deadline."""
    paused_reason: PausedReason | None = None
    """None while everything that should be sent is being sent, by whichever key; as of the last
    whole step."""
    noticed: PausedReason | None = None
    """The same, of the step that is under way, for a reason that is not one key's."""
    error: str | None = None
    """What went wrong for all keys in the last step."""
    posting: str = ""
    """The newest posting decision in one sentence."""
    callbacks_owed: int = 0
    """Fulfilled requests whose consumer is still to be called; up to ten thousand are counted."""
    delivering: str = ""
    """Why some of them are not called now, in one sentence; empty where all are."""
    open_disputes: OpenDisputes = OpenDisputes()
    """Of this operator's accounts, and the bonds that they have staked in them."""
    disputing: str = ""
    """What came of lies that are settled under a dispute window, in a sentence; empty where there
    are none, or all are disputed."""
    undisputed: str = ""
    """Why some of them are not, though the settings want it."""
    releasing: str = ""
    """What became of payments that were held back and are due, in one sentence."""
    refunding: str = ""
    """What became of expired requests last, in one sentence."""
    refunds_left: int = 0
    """Expired requests whose fee is not worth the refund's gas now: their requesters can call
    `refund` themselves. Up to ten thousand are counted."""
    refund_gas_wei_per_day: int = 0
    """Spent on refunds in the last 24 hours."""

    def conclude(self) -> None:
        """A step is over. One key that works is enough for the whole not to be paused."""
        for key in self.keys:
            key.paused_reason = key.noticed
        every_key = self.keys and all(key.noticed for key in self.keys)
        self.paused_reason = self.noticed or (self.keys[0].noticed if every_key else None)

    def keep(self, intent_ids: Sequence[int]) -> None:
        """These are final: no key's are opened again."""
        for key in self._all():
            key.keep(intent_ids)

    @property
    def ended(self) -> list[int]:
        """Intents that a reorganisation can still open again, as far as is known here."""
        return [intent_id for key in self._all() for intent_id in key.ended]

    @property
    def crowded_out(self) -> int:
        """Results that wait for room in a post, and not for a price, an account or an endpoint."""
        return self.waiting_for_slot if self.paused_reason is None else 0

    @property
    def balance_wei(self) -> int | None:
        """Of all keys together; None before the first step."""
        known = [key.balance_wei for key in self.keys if key.balance_wei is not None]
        return sum(known) if known else None

    @property
    def funds(self) -> FundsState:
        """Of the key that has most: what it allows can be done."""
        return best(key.funds for key in self.keys)

    @property
    def projection(self) -> Projection | None:
        """Of all keys together."""
        return together(key.projection for key in self.keys)

    @property
    def last_error(self) -> str | None:
        return self.error or next((key.last_error for key in self.keys if key.last_error), None)

    @property
    def in_flight(self) -> int:
        return sum(key.in_flight for key in self.keys)

    @property
    def confirmed_transactions(self) -> int:
        return sum(key.confirmed_transactions for key in self._all())

    @property
    def failed_transactions(self) -> int:
        return sum(key.failed_transactions for key in self._all())

    @property
    def abandoned(self) -> int:
        return sum(key.abandoned for key in self._all())

    @property
    def gas_spent_wei(self) -> int:
        return sum(key.gas_spent_wei for key in self._all())

    @property
    def items_by_outcome(self) -> Counter[str]:
        return sum((key.items_by_outcome for key in self._all()), Counter[str]())

    def _all(self) -> tuple[KeyStatus, ...]:
        return (*self.keys, *self.former.values())
