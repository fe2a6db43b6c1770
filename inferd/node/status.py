"""Reads the running parts for people and monitors: /v1/status, health, gauges."""

from __future__ import annotations

import time
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from eth_utils.address import to_checksum_address

from indexer.database import Pool
from indexer.forget import count_requests
from indexer.types import Address
from inferd import __version__
from inferd.node import metrics
from inferd.node.account_views import funds_view
from inferd.node.api_models import (
    IndexView,
    PosterView,
    ProcessView,
    SettlementView,
    StatusView,
    WorkerStatusView,
)
from inferd.node.crew import Crew
from inferd.node.health import Health
from inferd.node.index_views import index_view, measure_endpoints, repaired_blocks
from inferd.node.others import Others
from inferd.node.roles import ALL, Role, Roles, is_whole
from inferd.node.settings import Settings
from inferd.node.told import Said
from inferd.settlement.runway import FundsState
from inferd.settlement.settings import KeyStatus, PausedReason, SettlementStatus
from inferd.workers import service_stats
from scheduler.model import WorkerId

if TYPE_CHECKING:
    from inferd.node.session import Session

_STALLED_S = 10
_KNOW_WORKERS = frozenset({Role.SCHEDULE, Role.DISPATCH})
_ASK_WORKERS = frozenset({Role.DISPATCH, Role.SETTLE})
"""To compute, or to sign for a post."""


class StatusReader:
    """Joins the session's parts, where there is one, with the tables."""

    def __init__(
        self,
        settings: Settings,
        chain_id: int,
        health: Health,
        crew: Crew,
        roles: Roles = ALL,
    ) -> None:
        self._settings = settings
        self._roles = roles
        self._chain_id = chain_id
        self._health = health
        self._crew = crew
        self.session: Session | None = None
        self.others: Others | None = None
        """The processes of the same node, where it is split."""
        self.db: Pool | None = None

    def observe(self, session: Session) -> None:
        """Brings health and gauges up to date; called twice a second while leading."""
        self._health.set("starting", self._is_starting(session))
        if Role.INDEX in self._roles:
            self._observe_index(session)
        if session.settlement is not None:
            self._observe_settlement(session.settlement.status)
        if self._roles & _KNOW_WORKERS:
            self._observe_workers(session)
        if self._roles & _ASK_WORKERS:
            unsigned = session.roster.unsigned
            self._health.warn("no_operator_key", bool(unsigned), str(unsigned))
        if Role.SCHEDULE in self._roles:
            self._observe_inputs(session)
        if not is_whole(self._roles):
            missing = session.others.missing
            self._health.warn("role_missing", bool(missing), ", ".join(missing))
        metrics.READY.set(self._health.ready)

    def _observe_workers(self, session: Session) -> None:
        views, health = session.outlook.worker_views, self._health
        nobody = views is not None and not any(view.available for view in views)
        known = _known_workers(session)
        if Role.DISPATCH not in self._roles:
            known = f"{len(views or ())} are known to those that dispatch"
        health.set("no_workers", nobody, known)
        unwritten = session.dispatcher.unwritten
        health.warn(
            "outputs_not_written",
            bool(unwritten.count),
            f"{unwritten.count} at the moment ({unwritten.reason})",
        )
        metrics.OUTPUTS_UNWRITTEN.set(unwritten.count)
        _measure_workers(session)

    def _observe_inputs(self, session: Session) -> None:
        inputs = session.inputs
        self._health.warn(
            "inputs_full",
            bool(inputs.waiting_for_room),
            f"{inputs.waiting_for_room} more contents have no room, {inputs.room.held_bytes} bytes"
            " are kept",
        )
        metrics.INPUT_BYTES.set(inputs.room.held_bytes)

    def _is_starting(self, session: Session) -> bool:
        """Before it has seen that its own roles work."""
        if Role.INDEX in self._roles and session.indexer.status.last_progress_monotonic is None:
            return True
        knows_workers = bool(self._roles & _KNOW_WORKERS)
        return knows_workers and session.caught_up and session.outlook.worker_views is None

    def _observe_index(self, session: Session) -> None:
        index, health = session.indexer.status, self._health
        moved = index.last_progress_monotonic
        still_s = 0 if moved is None else int(time.monotonic() - moved)
        health.set("indexing_stalled", still_s > _STALLED_S, str(still_s))
        away = not index.rpc_ok and index.last_error is not None
        health.set("rpc_unreachable", away, index.last_error or "")
        lag = index.lag_blocks or 0
        health.set("indexing_behind", lag > self._settings.index.max_lag_blocks, str(lag))
        behind = index.head_behind_blocks
        health.set("endpoint_behind", behind > self._settings.index.max_lag_blocks, str(behind))
        measure_endpoints(session)
        metrics.HEAD_BLOCK.set(index.head or 0)
        metrics.INDEXED_BLOCK.set(index.indexed or 0)
        metrics.INDEX_LAG_SECONDS.set(index.lag_s or 0)
        metrics.INDEX_RANGE_BLOCKS.set(index.range_blocks)
        metrics.REORGS.set(index.reorgs)
        metrics.DEEPEST_REORG.set(index.deepest_reorg)
        metrics.BACKFILL_LEFT_SECONDS.set(index.left_s or 0)
        metrics.QUARANTINED.set(index.quarantined)
        metrics.RECHECKED_BLOCK.set(session.recheck.status.checked or 0)
        metrics.REPAIRED_BLOCKS.set(repaired_blocks(session))

    def _observe_settlement(self, settlement: SettlementStatus) -> None:
        health = self._health
        if Role.INDEX not in self._roles:
            health.set("rpc_unreachable", settlement.error is not None, settlement.error or "")
        details = {
            PausedReason.INSUFFICIENT_FUNDS: funds_words(settlement),
            PausedReason.GAS_PRICE_OVER_CAP: settlement.posting,
            PausedReason.SPENDING_OVER_CAP: settlement.posting,
            PausedReason.TRANSACTION_REFUSED: settlement.last_error or "see the log",
            PausedReason.SIGNER_UNAVAILABLE: settlement.last_error or "see the log",
            PausedReason.NO_CONTRACT_CODE: settlement.last_error or "see the log",
            PausedReason.KEY_IN_USE: ", ".join(_paused_keys(settlement)),
        }
        for reason, detail in details.items():
            health.set(reason.value, settlement.paused_reason is reason, detail)
        set_apart = " ".join(filter(None, settlement.set_apart.values()))
        health.warn("set_apart", bool(set_apart), set_apart)
        crowded_out = settlement.crowded_out
        health.warn(
            "posting_behind",
            crowded_out >= self._settings.most_unposted,
            f"{crowded_out:,}",
        )
        going_on = settlement.paused_reason is None
        paused = _paused_keys(settlement) if going_on else []
        health.warn("poster_paused", bool(paused), ", ".join(paused))
        low = [key for key in settlement.keys if key.funds is FundsState.LOW]
        health.warn("balance_low", bool(low), "; ".join(_funds_of_key(key) for key in low))
        for key in settlement.keys:
            _measure_key(key)
        metrics.TX_IN_FLIGHT.set(settlement.in_flight)
        metrics.RESULTS_READY.set(settlement.ready)
        metrics.CALLBACKS_OWED.set(settlement.callbacks_owed)
        metrics.DISPUTES_OPEN.set(settlement.open_disputes.disputes)
        metrics.BONDS_STAKED.set(settlement.open_disputes.bonds_wei)
        health.warn("lie_undisputed", bool(settlement.undisputed), settlement.undisputed)

    @property
    def posting(self) -> str:
        """The newest posting decision in one sentence; empty while there is none."""
        if self.session is not None and self.session.settlement is not None:
            return self.session.settlement.status.posting
        return next((said.posting for said in self._settling()), "")

    @property
    def delivering(self) -> str:
        """Why callbacks wait, in words; empty while none does."""
        if self.session is not None and self.session.settlement is not None:
            return self.session.settlement.status.delivering
        return next((said.delivering for said in self._settling()), "")

    def _settling(self) -> Iterable[Said]:
        return self.others.saying(Role.SETTLE) if self.others is not None else ()

    async def read(self) -> StatusView:
        """Whatever can be told now; without a database the counts are empty."""
        session = self.session
        return StatusView(
            version=__version__,
            chain_id=self._chain_id,
            role=self._health.role,
            ready=self._health.ready,
            problems=list(self._health.problems.values()),
            warnings=list(self._health.warnings.values()),
            index=self._index_view(session),
            requests=await self._counts(),
            workers=await self._workers(session),
            settlement=await self.settlement_view(session),
            processes=self._processes(),
        )

    def _index_view(self, session: Session | None) -> IndexView:
        if Role.INDEX not in self._roles and self.others is not None:
            told = (said.index for said in self.others.saying(Role.INDEX))
            return next((view for view in told if view is not None), index_view(None))
        return index_view(session)

    def _processes(self) -> list[ProcessView]:
        return [
            ProcessView(
                holder=one.holder,
                roles=sorted(one.roles),
                ready=one.said.ready,
                told_s=one.age_s,
                problems=one.said.problems,
                warnings=one.said.warnings,
            )
            for one in (self.others.processes if self.others is not None else ())
        ]

    async def _counts(self) -> dict[str, int]:
        if self.db is None:
            return {}
        async with self.db.acquire() as connection:
            return await count_requests(connection)

    async def _workers(self, session: Session | None) -> list[WorkerStatusView]:
        stats = {}
        if self.db is not None:
            async with self.db.acquire() as connection:
                stats = await service_stats.read_all(connection)
        seen = session.outlook.worker_views if session else None
        views = {view.id: view for view in seen or ()}
        found = []
        for member in self._crew.members:
            view = views.get(WorkerId(member.address))
            for number, backend in member.models.items():
                stat = stats.get((member.address, number))
                found.append(
                    WorkerStatusView(
                        address=to_checksum_address(member.address),
                        name=member.settings.name,
                        model=backend.name,
                        slots=member.settings.slots,
                        in_flight=view.in_flight if view else 0,
                        available=view.available if view else False,
                        completed=stat.completed if stat else 0,
                        failed=stat.failed if stat else 0,
                    )
                )
        return found

    async def settlement_view(self, session: Session | None) -> SettlementView | None:
        """By this process, or by the one that settles; None where nobody does."""
        if session is None or session.settlement is None:
            return None if self.others is None else self.others.settlement
        status = session.settlement.status
        former = [key for key in status.former.values() if key.in_flight]
        posters = [await self._poster_view(key, former=False) for key in status.keys]
        posters += [await self._poster_view(key, former=True) for key in former]
        return SettlementView(
            posters=posters,
            in_flight=status.in_flight,
            ready=status.ready,
            paused_reason=status.paused_reason,
            confirmed=status.confirmed_transactions,
            callbacks_owed=status.callbacks_owed,
            delivering=status.delivering,
            disputes_open=status.open_disputes.disputes,
            bonds_staked_wei=str(status.open_disputes.bonds_wei),
            disputing=status.disputing,
            releasing=status.releasing,
        )

    async def _poster_view(self, key: KeyStatus, *, former: bool) -> PosterView:
        funds = None
        if self.db is not None:
            async with self.db.acquire() as connection:
                funds = await funds_view(connection, key)
        return PosterView(
            address=to_checksum_address(key.address),
            former=former,
            balance_wei=None if key.balance_wei is None else str(key.balance_wei),
            funds=funds,
            in_flight=key.in_flight,
            confirmed=key.confirmed_transactions,
            paused_reason=key.paused_reason,
            error=key.last_error,
        )


def _known_workers(session: Session) -> str:
    elsewhere = session.roster.entries
    own = [view for view in session.outlook.worker_views or () if Address(view.id) not in elsewhere]
    return f"{len(own)} of its own and {len(elsewhere)} of other machines are known"


def _paused_keys(settlement: SettlementStatus) -> list[str]:
    return [
        f"{to_checksum_address(key.address)}: {key.paused_reason}"
        for key in settlement.keys
        if key.paused_reason is not None
    ]


def _measure_key(key: KeyStatus) -> None:
    poster = to_checksum_address(key.address)
    metrics.POSTER_BALANCE.labels(poster).set(key.balance_wei or 0)
    metrics.POSTER_LOW.labels(poster).set(key.funds is not FundsState.ENOUGH)
    metrics.POSTER_IN_FLIGHT.labels(poster).set(key.in_flight)
    metrics.POSTER_PAUSED.labels(poster).set(key.paused_reason is not None)
    if key.projection is not None:
        runway = key.projection.runway_results
        metrics.POSTER_SPEND.labels(poster).set(key.projection.spend_wei)
        metrics.POSTER_RUNWAY.labels(poster).set(inf if runway is None else runway)


def _funds_of_key(key: KeyStatus) -> str:
    return f"{to_checksum_address(key.address)}: {funds_words(key)}"


def funds_words(held: SettlementStatus | KeyStatus) -> str:
    """What the posters hold, or one of them, and what that has to pay for."""
    seen = held.projection
    if seen is None:
        return f"it holds {held.balance_wei} wei"
    return (
        f"it holds {held.balance_wei} wei; transactions under way can cost"
        f" {seen.in_flight_wei}, waiting work some {seen.waiting_wei}, one more result"
        f" {seen.result_wei}"
    )


def _measure_workers(session: Session) -> None:
    views = session.outlook.worker_views or ()
    given = sum(view.available for view in views)
    metrics.POOL_WORKERS.labels("yes").set(given)
    metrics.POOL_WORKERS.labels("no").set(len(views) - given)
    metrics.LATE_ANSWERS.set(session.dispatcher.waiting_late)
    metrics.RETRIES_LEFT.set(session.retries.tokens)
