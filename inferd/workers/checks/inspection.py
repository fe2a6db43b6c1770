"""What is looked at when results are stored, in the same transaction: lies, two answers of one
worker, known answers, and which results are to be computed once more."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import structlog

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.private import INPUT_MAGIC
from inferd.protocol.request import ModelId
from inferd.protocol.result import digest_of
from inferd.protocol.typed_data import CompactSignature
from inferd.workers.checks import canaries, counts
from inferd.workers.checks.canaries import Canary, Question
from inferd.workers.checks.counts import Outcome
from inferd.workers.checks.evidence import Disagreement, Kind, Side
from inferd.workers.checks.peers import has_peer, is_new, on_probation, trusts
from inferd.workers.checks.rules import FIRST_CHECKED, KEY_BYTES, CheckRules, Use, chosen
from inferd.workers.checks.suspension import accuse, suspend_liar
from inferd.workers.endings import Ending, Failure, Written
from inferd.workers.job import Job, SignedResult
from inferd.workers.leases import FailureKind
from inferd.workers.pool import WorkerPool

_LONGEST_S = 366 * 86_400.0
"""For which a check is remembered."""

log = structlog.get_logger("workers")


class Inspection:
    """One session's. `look` is called with each transaction that ends leases."""

    def __init__(
        self,
        pool: WorkerPool,
        rules: CheckRules,
        *,
        proved: Callable[[], float] = lambda: 1.0,
        on_outcome: Callable[[Kind, Outcome], None] = lambda kind, outcome: None,
    ) -> None:
        """`proved` is how surely a worker must succeed to be off probation."""
        self.rules = rules
        self._pool = pool
        self._proved = proved
        self.on_outcome = on_outcome
        self._key: bytes | None = None
        self._known: Mapping[Question, Canary] = {}
        self._asked_models: frozenset[ModelId] = frozenset()
        self.due: set[tuple[Address, ModelId]] = set()
        """Workers that are to be sent a canary of that model."""

    async def begin(self, connection: Connection) -> None:
        """Before the first look: makes this node's key, or reads it. In a transaction."""
        await connection.execute(
            "INSERT INTO node.check_key (key) VALUES ($1) ON CONFLICT DO NOTHING",
            secrets.token_bytes(KEY_BYTES),
        )
        self._key = await connection.fetchval("SELECT key FROM node.check_key")
        self.know(await canaries.load(connection))

    def know(self, found: Iterable[Canary]) -> None:
        """The canaries that there are now."""
        self._known = canaries.by_question(found)
        self._asked_models = frozenset(canary.model_id for canary in self._known.values())

    def trusts(self, worker: Address, owner: Address | None = None) -> bool:
        """Whether it is this operator's own, whom its `owner` tells where it may have left."""
        return trusts(self._pool, worker, owner)

    async def look(
        self, connection: Connection, together: Sequence[Ending], written: Sequence[Written]
    ) -> None:
        """After `endings.write` and `reputation.record`, with what they were given and returned."""
        news = [ending for ending, outcome in zip(together, written, strict=True) if outcome.anew]
        results = [
            (ending.job, ending.outcome)
            for ending in news
            if isinstance(ending.outcome, SignedResult) and not self.trusts(ending.outcome.worker)
        ]
        for ending in news:
            await self._look_at_lies(connection, ending)
        if not results:
            return
        await self.look_for_equivocation(connection, results)
        stored = {
            ending.lease.id
            for ending, outcome in zip(together, written, strict=True)
            if outcome.stored
        }
        for ending in news:
            if ending.lease.id in stored and isinstance(ending.outcome, SignedResult):
                await self._look_at_result(connection, ending.job, ending.outcome)

    async def look_at_lie(
        self, connection: Connection, job: Job, worker: Address, failure: Failure
    ) -> None:
        """What follows from a lie, which is counted already."""
        signed = failure.signed
        if signed is not None:
            is_digest = digest_of(signed.output) == signed.digest
            await self.look_for_equivocation(connection, [(job, signed)])
            await accuse(
                connection,
                Disagreement(
                    kind=Kind.MANIFEST if is_digest else Kind.LIE,
                    key=job.key,
                    model_id=job.model_id,
                    accused=Side.of(signed),
                    others=(),
                    reason=failure.reason,
                ),
                self.rules.suspension,
            )
        await suspend_liar(connection, worker, self.rules.suspension)

    async def look_for_equivocation(
        self, connection: Connection, said: Sequence[tuple[Job, SignedResult]]
    ) -> None:
        """Whether one of these workers has signed another digest for the same request before."""
        rows = await connection.fetch(
            """
            SELECT said.place, n.digest, n.signature
            FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[])
                 WITH ORDINALITY AS said (request_id, commitment, worker, digest, place)
            CROSS JOIN LATERAL (
                SELECT digest, signature FROM node.result r
                WHERE r.request_id = said.request_id AND r.commitment = said.commitment
                  AND r.worker = said.worker
                UNION ALL
                SELECT digest, signature FROM node.disagreement d
                WHERE d.request_id = said.request_id AND d.commitment = said.commitment
                  AND d.accused = said.worker) n
            WHERE n.digest <> said.digest
            """,
            [job.request_id for job, _ in said],
            [job.commitment for job, _ in said],
            [result.worker for _, result in said],
            [result.digest for _, result in said],
        )
        for row in rows:
            job, result = said[row["place"] - 1]
            before = Side(
                result.worker, row["digest"], CompactSignature(row["signature"]), None, None
            )
            found = Disagreement(
                kind=Kind.EQUIVOCATION,
                key=job.key,
                model_id=job.model_id,
                accused=Side.of(result),
                others=(before,),
                reason="it signed two answers to one request",
            )
            number = await accuse(connection, found, self.rules.suspension)
            if number is not None:
                log.error(
                    "equivocation",
                    worker="0x" + result.worker.hex(),
                    request_id=job.request_id,
                    record=number,
                    next="inferd workers evidence --save, then inferd worker report-equivocation",
                )

    async def judge_canary(
        self,
        connection: Connection,
        canary: Canary,
        job: Job,
        result: SignedResult,
        *,
        on_chain: bool,
    ) -> Outcome:
        """A worker's answer to a question whose answer is known."""
        comparator = self.rules.of(job.model_id).comparator
        right = await asyncio.to_thread(canary.is_answered_by, result.output, comparator)
        outcome = Outcome.PASSED if right else Outcome.FAILED
        if not right:
            found = Disagreement(
                kind=Kind.CANARY,
                key=job.key,
                model_id=job.model_id,
                accused=Side.of(result),
                others=(canary.side,),
                reason=f"it is not the known answer of canary {canary.id}",
                on_chain=on_chain,
            )
            await accuse(connection, found, self.rules.suspension)
        await counts.count(connection, result.worker, job.model_id, Kind.CANARY, outcome)
        self.on_outcome(Kind.CANARY, outcome)
        return outcome

    async def _look_at_lies(self, connection: Connection, ending: Ending) -> None:
        lies = list(ending.lies)
        if isinstance(ending.outcome, Failure) and ending.outcome.kind is FailureKind.LIED:
            lies.append((ending.by, ending.outcome))
        for worker, failure in lies:
            await self.look_at_lie(connection, ending.job, worker, failure)

    async def _look_at_result(self, connection: Connection, job: Job, result: SignedResult) -> None:
        if self.trusts(result.worker):
            return
        canary = self._known.get(canaries.question(job.model_id, job.max_tokens, job.input))
        if canary is not None:
            await self.judge_canary(connection, canary, job, result, on_chain=True)
        elif job.model_id in self._asked_models and self._chosen(
            Use.CANARY, job, self.rules.canary_ppm
        ):
            self.due.add((result.worker, job.model_id))
        new = on_probation(self._pool, result.worker, job.model_id, proved=self._proved())
        rate_ppm = self.rules.spot_rate_ppm(job.model_id, on_probation=new)
        if not rate_ppm or job.quorum > 1 or job.input.startswith(INPUT_MAGIC):
            return
        if not self._chosen(Use.SPOT, job, rate_ppm):
            if not has_peer(self._pool, result.worker, job.model_id):
                return
            new = is_new(self._pool, result.worker, job.model_id, proved=self._proved())
            if not await _is_drawn_in_any_case(connection, job, result.worker, new=new):
                return
        await self._want_check(connection, job, result)

    def _chosen(self, use: Use, job: Job, ppm: int) -> bool:
        return self._key is not None and chosen(self._key, use, job.key, ppm)

    async def _want_check(self, connection: Connection, job: Job, result: SignedResult) -> None:
        held_until_s = self.rules.held_until_s(time.time(), job.deadline_s)
        # What a quorum computes is compared by itself.
        await connection.execute(
            """
            INSERT INTO node.spot_check
                (request_id, commitment, model_id, worker, held_until, until_at)
            SELECT $1, $2, $3, $4, $5, $6 FROM chain.request r
            WHERE r.id = $1 AND r.commitment = $2 AND r.quorum = 1
            ON CONFLICT DO NOTHING
            """,
            job.request_id,
            job.commitment,
            job.model_id,
            result.worker,
            None if held_until_s is None else _moment(held_until_s),
            _moment(job.deadline_s),
        )


async def _is_drawn_in_any_case(
    connection: Connection, job: Job, worker: Address, *, new: bool
) -> bool:
    """Whether it is one of the worker's first results of this model. Of a new one, those
    whose check is not over do not count, so that it cannot have more on the way than are checked;
    and all are drawn as long as one of its answers is contradicted."""
    ended: int = await connection.fetchval(
        "SELECT coalesce(sum(passed + failed + undecided + not_done), 0)::bigint"
        " FROM node.check_count WHERE worker = $1 AND model_id = $2 AND kind = $3",
        worker,
        job.model_id,
        str(Kind.SPOT),
    )
    if ended < FIRST_CHECKED:
        ended += await connection.fetchval(
            "SELECT count(*) FROM node.spot_check"
            " WHERE worker = $1 AND model_id = $2 AND NOT undecided"
            " AND NOT ($3 AND coalesce(held_until > clock_timestamp(), false))",
            worker,
            job.model_id,
            new,
        )
    if ended < FIRST_CHECKED or not new:
        return ended < FIRST_CHECKED
    contradicted: bool = await connection.fetchval(
        """
        SELECT EXISTS (SELECT FROM node.disagreement d
                       JOIN node.spot_check k USING (request_id, commitment)
                       WHERE d.accused = $1 AND NOT d.decided AND k.worker = $1 AND k.undecided)
        """,
        worker,
    )
    return contradicted


def _moment(at_s: float) -> datetime:
    """A deadline may lie beyond all that a datetime takes."""
    return datetime.fromtimestamp(min(at_s, time.time() + _LONGEST_S), UTC)
