"""Which results are ready, and how a batch of them becomes calldata."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import structlog

from indexer.database import Pool
from indexer.types import ZERO_HASH, Address, BlockRef, Hash32
from inferd.protocol import calls
from inferd.protocol.quorum import Answer
from inferd.protocol.request import Commitment, Delivery
from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.typed_data import BadSignature, CompactSignature, group_digest, recover
from inferd.settlement.apart import SUSPECT, Cohort, cohort_of_row, last_failure
from inferd.settlement.data_fee import NO_DATA_PRICE, DataPrice
from inferd.settlement.decisions import SELECT_DECISION, leaf_of
from inferd.settlement.delivery_gas import DELIVER_GAS, claim_bytes, claim_gas, fits
from inferd.settlement.postable import POSTABLE, RELEASED
from inferd.settlement.quorum import signers
from inferd.settlement.records import Item
from inferd.settlement.settings import SettlementSettings
from inferd.settlement.terms import proven_calldata, release_bytes, release_gas
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
    """What is in node.result of a request that is pending and in no live transaction: one worker's
    result, or one that a quorum agreed on."""

    item: ResultItem
    workers: tuple[Address, ...]
    """Who signed it, by rising address."""
    signatures: tuple[CompactSignature, ...]
    """Theirs, each over a group of this one item."""
    ready: ReadyResult
    deliverable: bool
    """False where it is for a contract and fits in no transaction to it."""
    cohort: Cohort | None = None
    """Those with which it was in a transaction that failed, maybe because of it."""
    later_bytes: int = 0
    """Of the calldata of the calls of contracts that follow from it."""
    under_terms: bool = False
    """It goes by `postProven`, and its payment is held back while it can be disputed."""

    def outbox_item(self) -> Item:
        first, *others = self.workers
        return Item(self.item.request_id, self.item.commitment, first, tuple(others))


@dataclass(frozen=True, slots=True)
class Group:
    """Results that the same workers signed together: one worker, or those of a quorum."""

    workers: tuple[Address, ...]
    items: tuple[ResultItem, ...]
    signatures: tuple[CompactSignature, ...]


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
    being checked. A request can have several, but where it asks for a quorum: then there is the
    one that as many workers of different owners agree on, or none.
    A request of a block after the head waits for the next step: at this one the contract does
    not know it.
    `max_gas` is what a transaction has at most, the one that calls a contract too; `data` is
    what that one costs beside its gas.
    """
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT r.id, r.commitment, r.fee_wei, r.deadline_s, r.batchable, r.delivery,"  # noqa: S608 - constants
            " r.callback_gas_limit, r.quorum, r.under_terms,"
            " octet_length(r.input) + coalesce(octet_length(n.output), n.file_bytes, 0)"
            " AS content_bytes,"
            " n.worker, n.digest, n.signature, owned.owner,"
            " extract(epoch FROM n.computed_at)::float8 AS computed_at_s,"
            " failure.failed_intent, failure.failed_size"
            " FROM chain.request r"
            " JOIN node.result n ON n.request_id = r.id AND n.commitment = r.commitment"
            " JOIN chain.worker owned ON owned.signer = n.worker"
            + last_failure("(f.worker = n.worker OR n.worker = ANY(f.others))", "$3")
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
    for signed in _signed_by(rows, settings):
        row = signed[0]
        workers = tuple(Address(one["worker"]) for one in signed)
        commitment: Commitment = row["commitment"]
        callback = (row["callback_gas_limit"], row["content_bytes"])
        last = max(signed, key=lambda one: one["failed_intent"] or 0)
        cohort = cohort_of_row(last["failed_intent"], last["failed_size"])
        # One that is alone in its company waits for nobody.
        in_company = cohort is None or cohort.most_together > 1
        to_contract = row["delivery"] == Delivery.CALLBACK
        later_gas = later_bytes = 0
        if to_contract:
            later_gas += DELIVER_GAS + claim_gas(*callback)
            later_bytes += claim_bytes(row["content_bytes"])
        if row["under_terms"]:
            later_gas += release_gas(len(workers))
            later_bytes += release_bytes(len(workers))
        ready = ReadyResult(
            key=RequestKey(row["id"], commitment),
            worker=WorkerId(workers[0]),
            others=tuple(map(WorkerId, workers[1:])),
            fee_wei=row["fee_wei"],
            revenue_wei=revenue_of(row["fee_wei"], [one["owner"] for one in signed], settings),
            deadline_s=row["deadline_s"],
            computed_at_s=max(one["computed_at_s"] for one in signed),
            batchable=row["batchable"] and in_company,
            delivery=DeliveryKind[Delivery(row["delivery"]).name],
            later_gas=later_gas,
            later_data_wei=data.of(later_bytes, later_gas) if later_bytes else 0,
        )
        item = ResultItem(row["id"], commitment, row["digest"])
        deliverable = not to_contract or fits(*callback, max_gas)
        found.append(
            StoredResult(
                item,
                workers,
                tuple(one["signature"] for one in signed),
                ready,
                deliverable,
                cohort,
                later_bytes,
                row["under_terms"],
            )
        )
    return found


def _signed_by(
    rows: Sequence[Mapping[str, Any]], settings: SettlementSettings
) -> Iterator[tuple[Mapping[str, Any], ...]]:
    """The rows of each result, one a signer; those of a request follow each other."""
    for _, of_request in groupby(rows, key=itemgetter("id", "commitment")):
        answers = list(of_request)
        quorum: int = answers[0]["quorum"]
        if quorum == 1:
            yield from ((answer,) for answer in answers)
            continue
        said = [
            Answer(one["worker"], one["owner"], one["digest"], one["computed_at_s"])
            for one in answers
        ]
        by_worker = {one["worker"]: one for one in answers}
        found = signers(said, quorum, settings.own_accounts)
        if found:
            yield tuple(by_worker[one.worker] for one in found)


def revenue_of(fee_wei: int, owners: Sequence[Address], settings: SettlementSettings) -> int:
    """What posting a result earns this operator, in wei: the poster's share, and those of the
    workers, in the order of the group, whose owners are the operator's accounts.

    The contract gives each an equal share, and what does not divide to the first. Under a dispute
    window it is earned when that is over.
    """
    poster_wei = fee_wei * settings.poster_bps // _BPS
    share_wei, rest_wei = divmod(fee_wei - poster_wei, len(owners))
    own = [owner in settings.own_accounts for owner in owners]
    return poster_wei + share_wei * sum(own) + (rest_wei if own[0] else 0)


async def build_groups(
    results: Sequence[StoredResult],
    sign_group: SignGroup,
    *,
    domain: Hash32,
    timeout_s: float,
) -> list[Group]:
    """One group per worker, or per workers of a quorum, under fresh signatures; a single result
    has its own already.

    All workers are asked at once. Where one does not sign, its results go as one group each:
    dearer, and never lost.
    """
    by_workers: dict[tuple[Address, ...], list[StoredResult]] = {}
    for result in sorted(results, key=lambda r: r.item.request_id):
        by_workers.setdefault(result.workers, []).append(result)

    async def groups_of(workers: tuple[Address, ...]) -> list[Group]:
        theirs = by_workers[workers]
        items = tuple(result.item for result in theirs)
        if len(theirs) > 1:
            packed = pack_items(items)
            asked = (_signed(worker, packed, sign_group, domain, timeout_s) for worker in workers)
            signatures = [one for one in await asyncio.gather(*asked) if one is not None]
            if len(signatures) == len(workers):
                return [Group(workers, items, tuple(signatures))]
        return [Group(workers, (result.item,), result.signatures) for result in theirs]

    # A poster is paid once for a run of groups with one signature each: those come first.
    in_order = sorted(by_workers, key=lambda workers: (len(workers), workers))
    made = await asyncio.gather(*map(groups_of, in_order))
    return [group for groups in made for group in groups]


def apart(groups: Sequence[Group], results: Sequence[StoredResult]) -> list[StoredResult]:
    """The results of workers that did not sign theirs together: dearer than was reckoned with, and
    no reason to keep those of others waiting."""
    groups_of = Counter(group.workers for group in groups)
    return [result for result in results if groups_of[result.workers] > 1]


def post_calldata(
    groups: Sequence[Group], decisions_root: Hash32, *, proven: bool = False
) -> bytes:
    """Calldata of `post`, or of `postProven` for results whose requests are under terms."""
    if proven:
        signed = [(group.items, group.signatures) for group in groups]
        return proven_calldata(signed, decisions_root)
    packed = [(pack_items(group.items), group.signatures) for group in groups]
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
