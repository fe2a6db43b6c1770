"""Results that are computed once more by workers of other owners.

What is to be checked is a row of node.spot_check, written with the result, so a check survives its
daemon: whoever leads next goes on with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from indexer.database import Connection, is_unstorable
from indexer.types import Address
from inferd.protocol.request import Commitment, ModelId
from inferd.workers import reputation, results
from inferd.workers.checks import evidence
from inferd.workers.checks.counts import Outcome
from inferd.workers.checks.desk import LEAST_WAIT_S, LONGEST_WAIT_S, Desk
from inferd.workers.checks.evidence import Disagreement, Kind, Side
from inferd.workers.checks.peers import free_for, owners_of, patience_s, trusts
from inferd.workers.checks.suspension import accuse
from inferd.workers.checks.verdict import MOST_ANSWERS, Answer, Verdict, verdict
from inferd.workers.job import Job, SignedResult
from inferd.workers.leases import FailureKind
from inferd.workers.pool import UnknownWorker
from scheduler.model import RequestKey

_NO_LEASE = 0
"""In place of a lease's id: they count from 1."""
_MOST_LOOKED_AT = 200
_REST_S, _LONG_REST_S = 1.0, 10.0
"""Until a check for which nobody was free is looked at again: while it holds its result back, and
when it does not."""

log = structlog.get_logger("workers")


@dataclass(frozen=True, slots=True)
class _Check:
    """A row of node.spot_check, with what its request asks."""

    job: Job
    worker: Address
    """Whose result is checked."""
    memory_mb: int
    undecided: bool
    held: bool
    """Whether the result waits for it."""
    left_s: float
    """Until it does not any more, or else until the deadline."""


class SpotChecks:
    """One session's. All but `due` and `end_overdue` is of one check, of which there is one task at
    a time."""

    def __init__(self, desk: Desk, names: Mapping[bytes, str]) -> None:
        """`names` are model names by id."""
        self._desk = desk
        self._names = names
        self._failed: dict[RequestKey, set[Address]] = {}
        """Who was asked in a check that is under way, and gave no answer."""
        self._rests: dict[RequestKey, float] = {}
        """Until when, in seconds of `time.monotonic`."""
        self.asking: set[RequestKey] = set()
        """Whose checks some worker computes now."""

    async def due(self, connection: Connection) -> list[RequestKey]:
        """The checks that are to be gone on with now, those that hold results back first. What a
        model is called may be told only by its workers' next heartbeats."""
        rows = await connection.fetch(
            "SELECT request_id, commitment, model_id FROM node.spot_check"
            " WHERE model_id = ANY($2::bytea[])"
            " ORDER BY held_until > clock_timestamp() DESC NULLS LAST, random() LIMIT $1",
            _MOST_LOOKED_AT,
            list(self._names),
        )
        models = {row["model_id"] for row in rows}
        served = {model for model in models if free_for(self._desk.pool, ModelId(model))}
        keys = [RequestKey(row["request_id"], row["commitment"]) for row in rows]
        self._failed = {key: self._failed[key] for key in keys if key in self._failed}
        self._rests = {key: self._rests[key] for key in keys if key in self._rests}
        now_s = time.monotonic()
        # Without a free worker a look would only make it rest, and be too late for the next one.
        return [
            key
            for key, row in zip(keys, rows, strict=True)
            if row["model_id"] in served and self._rests.get(key, 0.0) <= now_s
        ]

    async def end_overdue(self) -> None:
        """Those whose request cannot be posted any more, and those of results that are not posted
        anyway: what others answer to these must not wait for it."""
        async with self._desk.writing() as connection:
            rows = await connection.fetch(
                "DELETE FROM node.spot_check k WHERE until_at <= clock_timestamp() OR EXISTS"
                " (SELECT FROM node.worker_suspension s WHERE s.worker = k.worker AND s.distrusted)"
                " RETURNING worker, model_id, undecided"
            )
            for row in sorted(rows, key=lambda row: (row["worker"], row["model_id"])):
                if not row["undecided"]:
                    await self._not_done(connection, row["worker"], row["model_id"])
        if rows:
            self._desk.on_change()

    async def check(self, key: RequestKey) -> None:
        """Until it is decided, or nobody else is free now."""
        pool = self._desk.pool
        while True:
            async with self._desk.database.acquire() as connection:
                check = await self._load(connection, key)
                given = await results.of_request(connection, key, self._desk.files)
                owners = await owners_of(connection, {*pool.seen, *(r.worker for r in given)})
                distrusted = await reputation.distrusted(connection)
            if check is None or all(result.worker != check.worker for result in given):
                await self._give_up(key)
                return
            found = await self._verdict(check, given, owners, distrusted)
            contradicted = sum(result.worker not in distrusted for result in given) > 1
            if found.decided or (contradicted and not check.undecided):
                await self._conclude(check, given, found, owners)
            elif check.undecided and not contradicted:
                await self._close_again(key)
            if found.decided:
                return
            peer = self._peer(check, {owners[result.worker] for result in given}, owners)
            if peer is None or len(given) >= MOST_ANSWERS:
                self._rests[key] = time.monotonic() + (_REST_S if check.held else _LONG_REST_S)
                return
            self.asking.add(key)
            try:
                if not await self._ask(peer, check, given, owners, distrusted):
                    return
            finally:
                self.asking.discard(key)

    def _peer(
        self, check: _Check, spoken: set[Address], owners: Mapping[Address, Address]
    ) -> Address | None:
        failed = self._failed.get(check.job.key, set())
        for address in free_for(self._desk.pool, check.job.model_id, check.memory_mb):
            if owners.get(address, address) not in spoken and address not in failed:
                return address
        return None

    async def _ask(
        self,
        peer: Address,
        check: _Check,
        given: Sequence[SignedResult],
        owners: Mapping[Address, Address],
        distrusted: Collection[Address],
    ) -> bool:
        """One more worker; writes what it said with what follows from it. Whether to go on."""
        patient_s = min(LONGEST_WAIT_S, patience_s(self._desk.pool, peer, check.job))
        limit_s = min(patient_s, max(LEAST_WAIT_S, check.left_s / 2))
        try:
            async with self._desk.ask(peer, check.job, limit_s) as outcome:
                if isinstance(outcome, SignedResult):
                    found = await self._verdict(check, [*given, outcome], owners, distrusted)
                    await self._conclude(check, [*given, outcome], found, owners, new=outcome)
                    return not found.decided
                if outcome.kind is not FailureKind.BUSY:
                    self._failed.setdefault(check.job.key, set()).add(peer)
                async with self._desk.writing() as connection:
                    await self._desk.note(connection, check.job, peer, outcome)
        except UnknownWorker:
            return False
        except Exception as error:
            if not is_unstorable(error):
                raise
            # Its text may quote the output.
            log.warning("answer_not_stored", worker="0x" + peer.hex(), error=type(error).__name__)
            self._failed.setdefault(check.job.key, set()).add(peer)
        return True

    async def _verdict(
        self,
        check: _Check,
        given: Sequence[SignedResult],
        owners: Mapping[Address, Address],
        distrusted: Collection[Address],
    ) -> Verdict:
        answers = [
            Answer(
                result.worker,
                owners.get(result.worker, result.worker),
                trusts(self._desk.pool, result.worker, owners.get(result.worker)),
                result.output,
                counts=result.worker not in distrusted,
            )
            for result in given
        ]
        comparator = self._desk.inspection.rules.of(check.job.model_id).comparator
        return await asyncio.to_thread(verdict, answers, comparator)

    async def _conclude(
        self,
        check: _Check,
        given: Sequence[SignedResult],
        found: Verdict,
        owners: Mapping[Address, Address],
        new: SignedResult | None = None,
    ) -> None:
        """Stores the new answer and what all of them come to, in one transaction."""
        key, desk = check.job.key, self._desk
        async with desk.writing() as connection:
            undecided = await connection.fetchval(
                "SELECT undecided FROM node.spot_check WHERE request_id = $1 AND commitment = $2"
                " FOR UPDATE",
                key.id,
                key.commitment,
            )
            if undecided is None:
                return
            if new is not None:
                await desk.inspection.look_for_equivocation(connection, [(check.job, new)])
                # Whose name stands under an answer that is compared keeps to it.
                await results.store(connection, [(new, _NO_LEASE, True)], desk.files)
            if found.decided:
                await self._decide(connection, check, given, found, owners)
            else:
                await self._leave_open(connection, check, given, owners, again=undecided)
        log.info(
            "checked" if found.decided else "check_undecided",
            request_id=key.id,
            answers=len(given),
            wrong=["0x" + worker.hex() for worker in sorted(found.wrong)],
        )
        desk.on_change()

    async def _decide(
        self,
        connection: Connection,
        check: _Check,
        given: Sequence[SignedResult],
        found: Verdict,
        owners: Mapping[Address, Address],
    ) -> None:
        key, model, desk = check.job.key, check.job.model_id, self._desk
        right = tuple(Side.of(result) for result in given if result.worker in found.right)
        ours = {
            result.worker
            for result in given
            if trusts(desk.pool, result.worker, owners.get(result.worker))
        }
        reason = (
            "the operator's own worker says otherwise"
            if ours & found.right
            else "most workers say otherwise"
        )
        await evidence.acquit(connection, Kind.SPOT, key, found.right)
        # In the order in which whoever stores results holds their rows, too.
        strangers = sorted(
            (result for result in given if result.worker not in ours),
            key=lambda result: result.worker,
        )
        for result in strangers:
            if result.worker in found.wrong:
                await self._accuse(connection, check, result, right, reason, decided=True)
        for result in strangers:
            outcome = Outcome.FAILED if result.worker in found.wrong else Outcome.PASSED
            await desk.count(connection, result.worker, model, Kind.SPOT, outcome)
        await connection.execute(
            "DELETE FROM node.spot_check WHERE request_id = $1 AND commitment = $2",
            key.id,
            key.commitment,
        )

    async def _leave_open(
        self,
        connection: Connection,
        check: _Check,
        given: Sequence[SignedResult],
        owners: Mapping[Address, Address],
        *,
        again: bool,
    ) -> None:
        key, model, desk = check.job.key, check.job.model_id, self._desk
        for result in given:
            if not trusts(desk.pool, result.worker, owners.get(result.worker)):
                others = tuple(Side.of(other) for other in given if other is not result)
                reason = "another worker says otherwise, and it is not known who is wrong"
                await self._accuse(connection, check, result, others, reason, decided=False)
        await connection.execute(
            "UPDATE node.spot_check SET undecided = true WHERE request_id = $1 AND commitment = $2",
            key.id,
            key.commitment,
        )
        if not again:
            await desk.count(connection, check.worker, model, Kind.SPOT, Outcome.UNDECIDED)

    async def _close_again(self, key: RequestKey) -> None:
        """Who contradicted it was found wrong elsewhere."""
        async with self._desk.writing() as connection:
            await connection.execute(
                "UPDATE node.spot_check SET undecided = false"
                " WHERE request_id = $1 AND commitment = $2",
                key.id,
                key.commitment,
            )
        self._desk.on_change()

    async def _accuse(
        self,
        connection: Connection,
        check: _Check,
        result: SignedResult,
        others: tuple[Side, ...],
        reason: str,
        *,
        decided: bool,
    ) -> None:
        found = Disagreement(
            kind=Kind.SPOT,
            key=check.job.key,
            model_id=check.job.model_id,
            accused=Side.of(result),
            others=others,
            reason=reason,
            decided=decided,
        )
        await accuse(connection, found, self._desk.inspection.rules.suspension)

    async def _give_up(self, key: RequestKey) -> None:
        """A reorganisation has taken the request, or its outputs are gone."""
        async with self._desk.writing() as connection:
            row = await connection.fetchrow(
                "DELETE FROM node.spot_check WHERE request_id = $1 AND commitment = $2"
                " RETURNING worker, model_id",
                key.id,
                key.commitment,
            )
            if row is not None:
                await self._not_done(connection, row["worker"], row["model_id"])
        self._desk.on_change()

    async def _not_done(self, connection: Connection, worker: Address, model: ModelId) -> None:
        await self._desk.count(connection, worker, model, Kind.SPOT, Outcome.NOT_DONE)

    async def _load(self, connection: Connection, key: RequestKey) -> _Check | None:
        row = await connection.fetchrow(
            """
            SELECT k.worker, k.undecided, r.model_id, r.max_tokens, r.deadline_s, r.requester,
                   r.memory_mb, CASE WHEN input_kind = 0 THEN r.input ELSE i.content END AS input,
                   coalesce(k.held_until > clock_timestamp(), false) AS held,
                   extract(epoch FROM CASE WHEN k.held_until > clock_timestamp()
                           THEN k.held_until ELSE k.until_at END - clock_timestamp())::float8
                       AS left_s
            FROM node.spot_check k
            JOIN chain.request r ON r.id = k.request_id AND r.commitment = k.commitment
            LEFT JOIN node.input i ON i.key = CASE WHEN r.input_kind = 1 THEN sha256(r.input) END
            WHERE k.request_id = $1 AND k.commitment = $2
            """,
            key.id,
            key.commitment,
        )
        if row is None or row["input"] is None:
            return None
        job = Job(
            request_id=key.id,
            commitment=Commitment(key.commitment),
            model_id=ModelId(row["model_id"]),
            model=self._names[row["model_id"]],
            input=row["input"],
            max_tokens=row["max_tokens"],
            deadline_s=row["deadline_s"],
            requester=Address(row["requester"]),
        )
        return _Check(
            job=job,
            worker=Address(row["worker"]),
            memory_mb=row["memory_mb"],
            undecided=row["undecided"],
            held=row["held"],
            left_s=row["left_s"],
        )
