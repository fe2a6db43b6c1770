"""Workers for people: registry, heartbeats, what the pool knows and what their leases came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from eth_utils.address import to_checksum_address

from indexer.database import Connection
from indexer.types import Address
from inferd.node.pool_models import (
    CheckCountView,
    DisagreementBriefView,
    ModelReputationView,
    PoolView,
    PoolWorkerDetailView,
    PoolWorkerView,
    SignedKeyView,
    WorkerFailureView,
)
from inferd.protocol.request import ModelId
from inferd.workers import reputation
from inferd.workers.checks import counts, evidence
from inferd.workers.pool import Standing, Worker
from inferd.workers.remote.membership import Registered
from inferd.workers.remote.roster import Entry, registered
from inferd.workers.remote.worker import RemoteOffer
from inferd.workers.reputation import Reputation
from scheduler.model import ServiceEstimate, WorkerId, WorkerView

if TYPE_CHECKING:
    from inferd.node.session import Session

_TYPICAL_TOKENS = 64
_FAILURES_SHOWN = 20
_DISAGREEMENTS_SHOWN = 10
_NOT_LEADING = "this process gives no work: it stands by, starts, or answers beside one that does"


@dataclass(frozen=True, slots=True)
class _Known:
    """All there is to be told of one worker."""

    address: Address
    row: Registered | None
    worker: Worker | None
    standing: Standing | None
    entry: Entry | None
    view: WorkerView | None
    reputations: Sequence[Reputation]
    probation: float


async def load_pool(
    connection: Connection,
    session: Session | None,
    names: Mapping[bytes, str],
    told: Mapping[str, PoolWorkerView] = MappingProxyType({}),
) -> PoolView:
    """Every worker that is embedded, registered, or has computed for this node; `told` are those of
    other processes by address, and go before what this one knows."""
    known = await _load(connection, session)
    own = (PoolWorkerView(**_fields(one, names)) for one in known.values())
    return PoolView(workers=[told.get(view.address, view) for view in own])


async def load_worker(
    connection: Connection,
    session: Session | None,
    names: Mapping[bytes, str],
    address: Address,
    told: Mapping[str, PoolWorkerView] = MappingProxyType({}),
) -> PoolWorkerDetailView | None:
    """None where nothing is known of it. What only its dispatcher knows is left out where that is
    another process."""
    one = (await _load(connection, session)).get(address)
    if one is None:
        return None
    failures = await reputation.last_failures(connection, address, _FAILURES_SHOWN)
    suspension = (await reputation.suspensions(connection)).get(address)
    heard = None if one.entry is None else one.entry.heard
    heartbeat = None if heard is None else heard.heartbeat
    offset = None if heard is None else heard.offset
    standing, elsewhere = one.standing, told.get(to_checksum_address(address))
    return PoolWorkerDetailView(
        **(dict(elsewhere) if elsewhere is not None else _fields(one, names)),
        owner=None if one.row is None else to_checksum_address(one.row.owner),
        memory_mb=one.worker.memory_mb if one.worker else one.row.memory_mb if one.row else 0,
        opens_in_s=standing.opens_in_s if standing else 0.0,
        failure_share=standing.failure_share if standing else 0.0,
        slow_share=standing.slow_share if standing else 0.0,
        rests_s=standing.rests_s if standing else 0.0,
        skew_error_ms=None if offset is None else offset.error_ms,
        trouble=None if heard is None else heard.trouble,
        version=None if heartbeat is None else heartbeat.version,
        running=None if heartbeat is None else heartbeat.running,
        queued=None if heartbeat is None else heartbeat.queued,
        free_memory_mb=None if heartbeat is None else heartbeat.free_memory_mb,
        encryption_keys=[
            SignedKeyView(key=one.key, signature=one.signature)
            for one in (heartbeat.encryption_keys if heartbeat else ())
        ],
        suspended=None if suspension is None else suspension.reason,
        suspended_by=None if suspension is None else suspension.suspended_by,
        failures=[
            WorkerFailureView(
                at=failure.at.isoformat(),
                id=failure.request_id,
                model=_name(failure.model_id, names),
                failure=failure.failure,
            )
            for failure in failures
        ],
        checks=[
            CheckCountView(
                model=_name(count.model_id, names),
                kind=str(count.kind),
                passed=count.passed,
                failed=count.failed,
                undecided=count.undecided,
                not_done=count.not_done,
            )
            for count in await counts.load(connection, address)
        ],
        disagreements=[
            DisagreementBriefView(
                id=each.id,
                at=each.at.isoformat(),
                kind=str(each.disagreement.kind),
                request_id=each.disagreement.key.id,
                decided=each.disagreement.decided,
                reason=each.disagreement.reason,
            )
            for each in await evidence.of_worker(connection, address, limit=_DISAGREEMENTS_SHOWN)
        ],
    )


async def _load(connection: Connection, session: Session | None) -> dict[Address, _Known]:
    rows = await registered(connection)
    counts: dict[Address, list[Reputation]] = {}
    for one in await reputation.load(connection):
        counts.setdefault(one.worker, []).append(one)
    pool = {} if session is None else {one.address: one for one in session.workers.workers}
    views = {view.id: view for view in (session.outlook.worker_views or ())} if session else {}
    probation = session.probation_success if session else 0.0
    return {
        address: _Known(
            address,
            rows.get(address),
            pool.get(address),
            session.workers.standing(address) if session and address in pool else None,
            session.roster.entries.get(address) if session else None,
            views.get(WorkerId(address)),
            counts.get(address, ()),
            probation,
        )
        for address in sorted({*rows, *counts, *pool})
    }


def _fields(one: _Known, names: Mapping[bytes, str]) -> dict[str, Any]:
    standing, row, entry = one.standing, one.row, one.entry
    offset = None if entry is None else entry.heard.offset
    reason = _reason(one)
    embedded = one.worker is not None and entry is None
    return {
        "address": to_checksum_address(one.address),
        "name": one.worker.name if one.worker is not None and embedded else "",
        "embedded": embedded,
        "endpoint": "" if row is None else row.endpoint,
        "in_pool": not reason,
        "reason": reason,
        "slots": one.worker.slots if one.worker else row.slots if row else 0,
        "limit": None if standing is None else standing.limit,
        "in_flight": 0 if standing is None else standing.in_flight,
        "circuit": "" if standing is None else str(standing.circuit),
        "heartbeat_age_s": None if entry is None else entry.heard.age_s,
        "skew_ms": None if offset is None else offset.skew_ms,
        "stake_wei": None if row is None else str(row.stake_wei),
        "models": _models(one, names),
    }


def _reason(one: _Known) -> str:
    """Why it is given no work; empty where it is."""
    if one.entry is not None and one.entry.membership.why_not is not None:
        return one.entry.membership.why_not
    if one.row is None:
        return "it is not registered"
    if one.worker is None:
        return _NOT_LEADING
    if not one.row.enabled:
        return "its owner has taken it out of service"
    if not one.row.staked:
        return "its stake is below the minimum"
    standing = one.standing
    if standing is not None and standing.held is not None:
        return standing.held
    if standing is not None and standing.circuit == "open":
        return f"its circuit is open for {standing.opens_in_s:.0f} s more: too many calls failed"
    return ""


def _models(one: _Known, names: Mapping[bytes, str]) -> list[ModelReputationView]:
    counted = {each.model_id: each for each in one.reputations}
    offered = dict(one.worker.models) if one.worker else {}
    registered_models = one.row.models if one.row else frozenset()
    found = []
    for model in sorted({*counted, *offered, *registered_models}):
        count, offer = counted.get(model), offered.get(model)
        estimate = None if one.view is None else one.view.service.get(model)  # type: ignore[call-overload]
        told = offer.tokens_per_s if isinstance(offer, RemoteOffer) else None
        found.append(
            ModelReputationView(
                model=_name(model, names),
                good=count.good if count else 0,
                late=count.late if count else 0,
                failed=count.failed if count else 0,
                timeouts=count.timeouts if count else 0,
                lies=count.lies if count else 0,
                mean_ms=None if estimate is None else _mean_ms(estimate),
                tokens_per_s=told or None,
                success_lower=None if estimate is None else estimate.success_lower,
                on_probation=None
                if estimate is None or one.view is None
                else not one.view.owned and estimate.success_lower < one.probation,
                loaded=None if offer is None else offer.loaded,
            )
        )
    return found


def _mean_ms(estimate: ServiceEstimate) -> float:
    return estimate.base_ms + estimate.per_token_ms * _TYPICAL_TOKENS


def _name(model: ModelId, names: Mapping[bytes, str]) -> str:
    return names.get(model) or "0x" + model.hex()
