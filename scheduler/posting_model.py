"""Values of a posting decision: what is ready, by which rules, and what is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.model import (
    NO_DATA_FEE,
    Block,
    DataFee,
    DeliveryKind,
    GasModel,
    RequestKey,
    WorkerId,
)


@dataclass(frozen=True, slots=True)
class ReadyResult:
    """A signed result that waits to be posted."""

    key: RequestKey
    worker: WorkerId
    fee_wei: int
    revenue_wei: int
    """What posting it earns this operator."""
    deadline_s: int
    computed_at_s: float
    batchable: bool
    delivery: DeliveryKind = DeliveryKind.EVENT
    later_gas: int = 0
    """What posting it makes the operator spend in another transaction: the call of a contract."""
    later_data_wei: int = 0
    """What that transaction costs beside its gas."""
    others: tuple[WorkerId, ...] = ()
    """Who else of a quorum signed it."""

    @property
    def signers(self) -> tuple[WorkerId, ...]:
        """Whose signatures its group needs: results of the same signers share one."""
        return (self.worker, *self.others)


@dataclass(frozen=True, slots=True)
class PostingRules:
    """What the operator settles about posting."""

    delay_price_wei_per_s: int
    """What one result's waiting for one second is worth."""
    max_results: int
    """Upper bound of results in one transaction, whatever gas allows."""
    max_gas: int
    """Upper bound of one transaction's gas."""
    guard_s: float
    """Post at once when a deadline is nearer than this and one block more."""
    priority_fee_wei: int
    max_fee_per_gas_wei: int
    """Never post above this gas price."""
    lead_s: float = 1.5
    """How long before the next block posting is decided, see `scheduler.gathering`."""


@dataclass(frozen=True, slots=True)
class PostingSnapshot:
    """All that a posting decision sees."""

    block: Block
    """The head; its base fee is that of the block after it, in which a post made now is mined."""
    now_s: float
    ready: tuple[ReadyResult, ...]
    gas: GasModel
    rules: PostingRules
    block_interval_s: float
    """How far apart the chain's blocks are: what is posted now is mined so long after the head."""
    recent_base_fees_wei: tuple[int, ...] = ()
    """Base fees of the blocks up to the head, oldest first; empty = no forecast of the next."""
    due_at_s: float = 0.0
    """Until then what can wait is put off, see `scheduler.gathering`."""
    data_fee: DataFee = NO_DATA_FEE


class PostReason(StrEnum):
    """Why a batch is posted now, or why not yet."""

    NOTHING_READY = "nothing_ready"
    GATHERING = "gathering"
    ACCUMULATING = "accumulating"
    FEE_FALLING = "fee_falling"
    UNPROFITABLE = "unprofitable"
    TOO_LATE = "too_late"
    GAS_PRICE_OVER_CAP = "gas_price_over_cap"
    WORTH_IT = "worth_it"
    DEADLINE_NEAR = "deadline_near"
    BATCH_FULL = "batch_full"
    NOT_BATCHABLE = "not_batchable"


@dataclass(frozen=True, slots=True)
class PostingDecision:
    """Which results to post in the next transaction; empty = wait."""

    reason: PostReason
    sentence: str
    results: tuple[ReadyResult, ...]
    gas_limit_estimate: int
    cost_wei: int
    """Of the post itself, at the next block's base fee and the tip."""
    revenue_wei: int
    later_cost_wei: int = 0
    """What the calls of contracts that it leads to cost at the same gas price."""
    fee_cap_wei: int = 0
    """The most its transaction should offer for a unit of gas; 0 = wait."""
    too_late: tuple[ReadyResult, ...] = ()
    """Left out for good: no block that is still to come is within their deadlines."""
    again_at_s: float = 0.0
    """When to decide again at the latest, though no block and no result has come; 0 = never."""
    inputs: Mapping[str, int | float | str] = field(default_factory=dict)
