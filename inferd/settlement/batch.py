"""Which results are ready, and how a batch of them becomes calldata."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import structlog

from indexer.database import Pool
from indexer.types import ZERO_HASH, Address, BlockRef, Hash32
from inferd.protocol import calls
from inferd.protocol.request import Commitment, Delivery
from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.typed_data import BadSignature, CompactSignature, group_digest, recover
from inferd.settlement.apart import SUSPECT, Cohort, cohort_of_row, last_failure
from inferd.settlement.data_fee import NO_DATA_PRICE, DataPrice
from inferd.settlement.decisions import SELECT_DECISION, leaf_of
from inferd.settlement.delivery_gas import DELIVER_GAS, claim_bytes, claim_gas, fits
from inferd.settlement.postable import POSTABLE, RELEASED
from inferd.settlement.records import Item
from inferd.settlement.settings import SettlementSettings
from scheduler.audit import merkle_root
from scheduler.gas import FORECAST_BLOCKS
from scheduler.gas_fit import GasObservation, fit_gas_model
from scheduler.model import DeliveryKind, GasModel, RequestKey, WorkerId
from scheduler.posting_model import ReadyResult

_log = structlog.get_logger("settlement")
_MAX_READY = 5_000
_BPS = 10_000


class SignGroup(Protocol):
    """Asks a worker for its signature over a group of its own results, packed.

    Any exception = the worker is gone or refuses.
    """

    async def __call__(self, worker: Address, items: bytes, /) -> CompactSignature: ...


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result of node.result whose request is pending and in no live transaction."""

    item: ResultItem
    worker: Address
    signature: CompactSignature
    """Over a group of this one item."""
    ready: ReadyResult
    deliverable: bool
    """False where it is for a contract and fits in no transaction to it."""
    cohort: Cohort | None = None
    """Those with which it was in a transaction that failed, maybe because of it."""
    later_bytes: int = 0
    """Of the calldata of the call of a contract that follows from it."""

    def outbox_item(self) -> Item:
        return Item(self.item.request_id, self.item.commitment, self.worker)


@dataclass(frozen=True, slots=True)
class Group:
    """Results of one worker under one signature."""

    worker: Address
    items: tuple[ResultItem, ...]
    signature: CompactSignature


@dataclass(frozen=True, slots=True)
class DecisionsToAnchor:
    decisions: tuple[tuple[int, bytes], ...]
    """Rows of node.decision and their leaves."""
    root: Hash32


async def load_ready(
    pool: Pool,
    head: BlockRef,
    settings: SettlementSettings,
    *,
    max_gas: int,
    data: DataPrice = NO_DATA_PRICE,
) -> list[StoredResult]:
    """All that the contract would take at the head, nearest deadlines first, then what came first.

    That is: of workers that are enabled and staked, and neither given up, nor found wrong, nor
    being checked. A request can have several.
    A request of a block after the head waits for the next step: at this one the contract does
    not know it.
    `max_gas` is what a transaction has at most, the one that calls a contract too; `data` is
    what that one costs beside its gas.
    """
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT r.id, r.commitment, r.fee_wei, r.deadline_s, r.batchable, r.delivery,"  # noqa: S608 - constants
            " r.callback_gas_limit,"
            " octet_length(r.input) + coalesce(octet_length(n.output), n.file_bytes, 0)"
            " AS content_bytes,"
            " n.worker, n.digest, n.signature, owned.owner,"
            " extract(epoch FROM n.computed_at)::float8 AS computed_at_s,"
            " failure.failed_intent, failure.failed_size"
            " FROM chain.request r"
            " JOIN node.result n ON n.request_id = r.id AND n.commitment = r.commitment"
            " JOIN chain.worker owned ON owned.signer = n.worker"
            + last_failure("f.worker = n.worker", "$3")
            + " WHERE r.status = 'pending' AND r.deadline_s > $1 AND r.created_block <= $4 AND "
            + POSTABLE
            + " AND "
            + RELEASED
            + " AND NOT EXISTS (SELECT 1 FROM node.tx_item i WHERE i.request_id = r.id"
            "     AND i.commitment = r.commitment AND i.live)"
            " ORDER BY r.deadline_s, r.id, n.computed_at, n.worker LIMIT $2",
            head.timestamp_s,
            _MAX_READY,
            list(SUSPECT),
            head.number,
        )
    return await asyncio.to_thread(_stored_results, rows, settings, max_gas, data)


def _stored_results(
    rows: Sequence[Mapping[str, Any]], settings: SettlementSettings, max_gas: int, data: DataPrice
) -> list[StoredResult]:
    found = []
    for row in rows:
        worker: Address = row["worker"]
        commitment: Commitment = row["commitment"]
        callback = (row["callback_gas_limit"], row["content_bytes"])
        cohort = cohort_of_row(row["failed_intent"], row["failed_size"])
        # One that is alone in its company waits for nobody.
        in_company = cohort is None or cohort.most_together > 1
        to_contract = row["delivery"] == Delivery.CALLBACK
        later_gas = DELIVER_GAS + claim_gas(*callback) if to_contract else 0
        later_bytes = claim_bytes(row["content_bytes"])
        ready = ReadyResult(
            key=RequestKey(row["id"], commitment),
            worker=WorkerId(worker),
            fee_wei=row["fee_wei"],
            revenue_wei=revenue_of(row["fee_wei"], row["owner"], settings),
            deadline_s=row["deadline_s"],
            computed_at_s=row["computed_at_s"],
            batchable=row["batchable"] and in_company,
            delivery=DeliveryKind[Delivery(row["delivery"]).name],
            later_gas=later_gas,
            later_data_wei=data.of(later_bytes, later_gas) if to_contract else 0,
        )
        item = ResultItem(row["id"], commitment, row["digest"])
        deliverable = not to_contract or fits(*callback, max_gas)
        found.append(
            StoredResult(
                item,
                worker,
                row["signature"],
                ready,
                deliverable,
                cohort,
                later_bytes if to_contract else 0,
            )
        )
    return found


def revenue_of(fee_wei: int, owner: Address, settings: SettlementSettings) -> int:
    """What posting a result earns this operator, in wei: the poster's share, and all of it where
    the worker's owner is one of the operator's accounts."""
    return fee_wei if owner in settings.own_accounts else fee_wei * settings.poster_bps // _BPS


async def build_groups(
    results: Sequence[StoredResult],
    sign_group: SignGroup,
    *,
    domain: Hash32,
    timeout_s: float,
) -> list[Group]:
    """One group per worker under a fresh signature; a single result has its own already.

    All workers are asked at once. Where one does not sign, its results go as one group each:
    dearer, and never lost.
    """
    by_worker: dict[Address, list[StoredResult]] = {}
    for result in sorted(results, key=lambda r: r.item.request_id):
        by_worker.setdefault(result.worker, []).append(result)

    async def groups_of(worker: Address) -> list[Group]:
        theirs = by_worker[worker]
        items = tuple(result.item for result in theirs)
        if len(theirs) > 1:
            signature = await _signed(worker, pack_items(items), sign_group, domain, timeout_s)
            if signature is not None:
                return [Group(worker, items, signature)]
        return [Group(worker, (result.item,), result.signature) for result in theirs]

    made = await asyncio.gather(*map(groups_of, sorted(by_worker)))
    return [group for groups in made for group in groups]


def apart(groups: Sequence[Group], results: Sequence[StoredResult]) -> list[StoredResult]:
    """The results of workers that did not sign theirs together: dearer than was reckoned with, and
    no reason to keep those of others waiting."""
    groups_of = Counter(group.worker for group in groups)
    return [result for result in results if groups_of[result.worker] > 1]


def post_calldata(groups: Sequence[Group], decisions_root: Hash32) -> bytes:
    """Calldata of `post`."""
    packed = [(pack_items(group.items), (group.signature,)) for group in groups]
    return calls.post(packed, decisions_root)


async def load_decisions(pool: Pool, limit: int) -> DecisionsToAnchor:
    """The oldest decisions that no transaction anchors; the root is zero where there are none."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            f"""
            SELECT d.id, d.leaf, {SELECT_DECISION}
            FROM (SELECT * FROM node.decision WHERE intent_id IS NULL ORDER BY id LIMIT $1) d
            JOIN node.round r ON r.id = d.round_id
            """,  # noqa: S608 - constants
            limit,
        )
    if not rows:
        return DecisionsToAnchor((), ZERO_HASH)
    return await asyncio.to_thread(_to_anchor, rows)


def _to_anchor(rows: Sequence[Mapping[str, Any]]) -> DecisionsToAnchor:
    decisions = tuple((row["id"], leaf_of(row)) for row in rows)
    return DecisionsToAnchor(decisions, Hash32(merkle_root([leaf for _, leaf in decisions])))


async def load_gas_model(pool: Pool, settings: SettlementSettings) -> GasModel:
    """Fitted to the newest posts that were mined whole."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT groups, items, gas_used, stored, callbacks FROM node.gas_observation"
            " ORDER BY seen_at DESC LIMIT $1",
            settings.gas_window,
        )
    return _fitted(tuple(GasObservation(*row) for row in rows), settings.gas_prior)


@lru_cache(maxsize=2)
def _fitted(observed: tuple[GasObservation, ...], prior: GasModel) -> GasModel:
    """Rounds and steps ask many times between two posts, and a fit takes 3 ms."""
    return fit_gas_model(observed, prior)


async def load_base_fees(pool: Pool, head: BlockRef) -> tuple[int, ...]:
    """Base fees of the head and the blocks before it that are remembered, oldest first, in wei.

    Empty where the head is not among them.
    """
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT number, hash, base_fee_wei FROM chain.block WHERE number <= $1"
            " ORDER BY number DESC LIMIT $2",
            head.number,
            FORECAST_BLOCKS,
        )
    if not rows or rows[0]["hash"] != head.hash:
        return ()
    return tuple(int(row["base_fee_wei"]) for row in reversed(rows))


async def _signed(
    worker: Address,
    items: bytes,
    sign_group: SignGroup,
    domain: Hash32,
    timeout_s: float,
) -> CompactSignature | None:
    try:
        async with asyncio.timeout(timeout_s):
            signature = await sign_group(worker, items)
    except Exception as error:  # of any kind: one worker's trouble must not stop others
        _log.warning("group_not_signed", worker="0x" + worker.hex(), error=repr(error))
        return None
    try:
        signer = recover(group_digest(domain, items), signature)
    except BadSignature as error:
        _log.warning("bad_group_signature", worker="0x" + worker.hex(), error=str(error))
        return None
    if signer != worker:
        _log.warning("group_signed_by_another_key", worker="0x" + worker.hex())
        return None
    return signature
