"""What one scheduling round sees beside the feed of requests, and a row of that as a request."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from indexer.database import Connection
from indexer.types import Address
from inferd.node.spending import load_budgets
from inferd.node.tenants import load_uses
from inferd.protocol.private import (
    EncryptionKey,
    NotPrivate,
    private_model,
    recipient_of,
)
from inferd.protocol.request import Delivery, InputKind
from inferd.protocol.request import ModelId as ChainModelId
from inferd.settlement.delivery_gas import later_bytes, later_gas, undeliverable
from inferd.settlement.intervals import load_block_interval_s
from inferd.settlement.terms import held_gas, release_bytes, unserved
from inferd.workers.leases import failure_words
from inferd.workers.length_stats import Lengths
from scheduler.allowance import Taken
from scheduler.cover import Cover
from scheduler.model import (
    Block,
    DeliveryKind,
    GasModel,
    ModelId,
    Moment,
    PendingRequest,
    RequestKey,
    Rules,
    TenantId,
    WorkerId,
    WorkerView,
)

_RECENT_FEES = 256
_INCLUSION_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """What a round sees that does not come from the tables."""

    workers: tuple[WorkerView, ...]
    gas: GasModel
    rules: Rules
    now_s: float
    max_gas: int
    """Of a transaction of this operator."""
    budgets_wei: tuple[tuple[int, int], ...] = ()
    """Windows in seconds and the gas that may be spent within each."""
    unposted: int = 0
    """Results that wait for room in a post."""

    def gas_cap(self, block_gas_limit: int) -> int:
        """Of a transaction that a block has room for."""
        return min(self.max_gas, block_gas_limit)


async def load_moment(connection: Connection, inputs: RoundInputs) -> Moment | None:
    """None before the first indexed block."""
    cursor = await connection.fetchrow(
        "SELECT block_number, block_hash, timestamp_s, base_fee_wei, gas_limit FROM chain.cursor"
    )
    if cursor is None:
        return None
    interval_s = await load_block_interval_s(connection)
    fees = await connection.fetch(
        "SELECT fee_wei FROM chain.request ORDER BY id DESC LIMIT $1", _RECENT_FEES
    )
    moment = Moment(
        block=Block(
            number=cursor["block_number"],
            hash=cursor["block_hash"],
            timestamp_s=cursor["timestamp_s"],
            base_fee_wei=cursor["base_fee_wei"],
            gas_limit=cursor["gas_limit"],
        ),
        now_s=inputs.now_s,
        gas=inputs.gas,
        rules=_on_blocks(inputs.rules, interval_s),
        recent_fees_wei=tuple(row["fee_wei"] for row in fees),
    )
    taken = Taken(
        await load_uses(connection, inputs.rules.limits),
        await load_budgets(connection, inputs.budgets_wei, Cover(moment, len(inputs.workers))),
        inputs.unposted,
    )
    return replace(moment, taken=taken)


def _on_blocks(rules: Rules, interval_s: float) -> Rules:
    """What is ready between two blocks is decided on at once, and mined in the next; one more
    block is for the wait in company. Less than that before its deadline nothing is begun."""
    inclusion_s = max(rules.inclusion_s, _INCLUSION_BLOCKS * interval_s)
    return replace(rules, inclusion_s=inclusion_s, block_interval_s=interval_s)


def unsupported(quorum: int, head: bytes, *, lacking_terms: str | None) -> str | None:
    """What of a request this node cannot do, in words; `head` is the beginning of its input,
    `lacking_terms` says what of its terms it cannot (`inferd.settlement.terms.unserved`)."""
    if lacking_terms is not None:
        return lacking_terms
    try:
        recipient = recipient_of(head)
    except NotPrivate as error:
        return str(error)
    if recipient is not None and quorum > 1:
        return "workers cannot agree on a private request: each encrypts its answer anew"
    return None


def with_private(
    views: Iterable[WorkerView], held: Mapping[Address, Collection[EncryptionKey]]
) -> tuple[WorkerView, ...]:
    """The workers, who serve private requests of their models too: those encrypted to a key that
    they hold."""
    return tuple(_with_private(view, held.get(Address(view.id), ())) for view in views)


def _with_private(view: WorkerView, keys: Collection[EncryptionKey]) -> WorkerView:
    if not keys:
        return view
    private = {
        _private(model, key): estimate for model, estimate in view.service.items() for key in keys
    }
    loaded = view.loaded
    if loaded is not None:
        loaded |= {_private(model, key) for model in loaded for key in keys}
    return replace(view, service={**view.service, **private}, loaded=loaded)


@lru_cache(maxsize=16_384)
def _private(model: ModelId, key: EncryptionKey) -> ModelId:
    """Asked for in each round, of every worker's models and keys."""
    return ModelId(private_model(ChainModelId(model), key))


def _as_scheduled(model: ModelId, head: bytes) -> ModelId:
    """What workers must serve to compute a request with an input that begins so."""
    try:
        recipient = recipient_of(head)
    except NotPrivate:
        return model  # it is unsupported
    return model if recipient is None else _private(model, recipient)


def request_of(row: Any, max_gas: int, lengths: Lengths) -> PendingRequest:
    """The request of a row of `inferd.node.feed`; `max_gas` bounds a call of its consumer."""
    delivery = (
        Delivery(row["delivery"]),
        row["callback_gas_limit"],
        row["input_bytes"],
        row["max_tokens"],
    )
    tokens = lengths.predict(row["model_id"], row["requester"], row["max_tokens"])
    head = row["head"] or b""
    lacking_terms = unserved(row["verifier"]) if row["under_terms"] else None
    lacking = unsupported(row["quorum"], head, lacking_terms=lacking_terms)
    by_uri, input_state = row["input_kind"] == InputKind.URI, row["input_state"]
    return PendingRequest(
        key=RequestKey(row["id"], row["commitment"]),
        tenant=TenantId(row["requester"]),
        model=_as_scheduled(ModelId(row["model_id"]), head),
        fee_wei=row["fee_wei"],
        submitted_at_s=row["created_at_s"],
        deadline_s=row["deadline_s"],
        max_tokens=row["max_tokens"],
        input_bytes=row["content_bytes"] or 0 if by_uri else row["input_bytes"],
        memory_mb=row["memory_mb"],
        attempts=row["attempts"],
        batchable=row["batchable"],
        bad_input=failure_words(row["bad_input"]),
        tried=frozenset(WorkerId(worker) for worker in row["tried"] or ()),
        quorum=row["quorum"],
        answers=row["answers"],
        agreeing=row["agreeing"],
        excluded=frozenset(WorkerId(worker) for worker in row["excluded"] or () if worker),
        unsupported=lacking or undeliverable(*delivery, max_gas),
        input_awaited=by_uri and input_state not in ("here", "lost"),
        input_lost=row["input_trouble"] if input_state == "lost" else None,
        delivery=DeliveryKind[delivery[0].name],
        later_gas=later_gas(*delivery) + (held_gas(row["quorum"]) if row["under_terms"] else 0),
        later_bytes=later_bytes(delivery[0], *delivery[2:])
        + (release_bytes(row["quorum"]) if row["under_terms"] else 0),
        charged=row["charged"],
        tokens_mean=tokens.mean,
        tokens_sigma=tokens.sigma,
    )
