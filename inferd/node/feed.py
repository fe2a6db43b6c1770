"""Which requests are to be computed: read once as a whole, then only what has changed.

Triggers on all tables that the answer depends on write the ids of what a transaction touches to
node.touched. A round takes the ids out and asks about them alone, in one REPEATABLE READ
transaction: what it takes out was committed before what it reads, and a change that commits later
is taken out later, whatever order transactions commit in. So nothing is missed, a reorganisation
included. Where what was taken out may not have been taken in (an error on the way, a new leader,
another process), everything is read anew.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from indexer.database import Connection, Fence
from indexer.types import Address
from inferd.node.snapshot import RoundInputs, load_moment, request_of
from inferd.protocol.private import HEAD_BYTES
from inferd.protocol.request import Delivery, ModelId
from inferd.settlement.postable import POSTABLE
from inferd.settlement.quorum import TALLY
from inferd.settlement.terms import TERMS_OF_REQUEST
from inferd.workers import length_stats
from inferd.workers.leases import FailureKind
from inferd.workers.length_stats import Lengths
from scheduler.model import Moment, RequestKey
from scheduler.planner import Changes

_UNCOUNTED = "|".join(kind for kind in FailureKind if not kind.counts)

# Computed once more is what has no result that could be posted and is in no transaction. After the
# n-th failure a request rests for 2^(n-1) seconds, or a quarter of its time left: a back end that
# restarts must not use up all attempts within a second.
# What asks for a quorum is computed until it is agreed on; a lease that brought an answer is no
# failure of it, and whoever has answered is not asked again, nor another worker of the same owner.

_SELECT = f"""
    SELECT r.id, r.commitment, r.requester, r.model_id, r.fee_wei, r.created_at_s, r.deadline_s,
           r.batchable, r.max_tokens, length(r.input) AS input_bytes, r.memory_mb, r.delivery,
           r.callback_gas_limit, r.quorum, r.under_terms, terms.verifier, r.input_kind,
           CASE WHEN i.state <> 'lost' OR r.id <= i.newest_request THEN i.state END AS input_state,
           i.trouble AS input_trouble, length(i.content) AS content_bytes,
           substr(CASE WHEN r.input_kind = 0 THEN r.input ELSE i.content END, 1, {HEAD_BYTES})
               AS head,
           q.agreeing, said.answers, said.excluded,
           coalesce(l.attempts, 0) AS attempts, l.tried || beside.tried AS tried,
           l.bad_input, l.charged,
           CASE WHEN l.failed_at IS NOT NULL AND l.bad_input IS NULL
                THEN extract(epoch FROM l.failed_at - clock_timestamp())::double precision
                     + least(power(2, l.attempts - 1), greatest(0, r.deadline_s - $1) / 4.0)
                ELSE 0 END AS rests_s
    FROM chain.request r
    LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE state <> 'active' AND counts) AS attempts,
               array_agg(DISTINCT worker) FILTER (WHERE counts) AS tried,
               max(ended_at) FILTER (WHERE state <> 'active' AND counts) AS failed_at,
               min(failure) FILTER (WHERE failure LIKE '{FailureKind.BAD_INPUT}: %') AS bad_input,
               bool_or(state = 'active') AS leased, count(*) > 0 AS charged
        FROM (SELECT *, coalesce(failure, '') !~ '^({_UNCOUNTED}): '
                        AND NOT (r.quorum > 1 AND EXISTS (
                            SELECT FROM node.result n
                            WHERE n.request_id = r.id AND n.commitment = r.commitment
                              AND n.worker = given.worker)) AS counts
              FROM node.lease given
              WHERE request_id = r.id AND commitment = r.commitment) attempt
    ) l ON true
    LEFT JOIN LATERAL ({TERMS_OF_REQUEST}) terms ON r.under_terms
    CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT f.worker) AS tried
        FROM node.lease given JOIN node.worker_failure f ON f.lease_id = given.id
        WHERE r.quorum > 1 AND given.request_id = r.id AND given.commitment = r.commitment
    ) beside
    CROSS JOIN LATERAL ({TALLY}) q
    CROSS JOIN LATERAL (
        SELECT count(DISTINCT n.worker) AS answers, array_agg(DISTINCT w.signer) AS excluded
        FROM node.result n LEFT JOIN chain.worker o ON o.signer = n.worker
        LEFT JOIN LATERAL (
            SELECT o.signer UNION ALL
            SELECT mate.signer FROM chain.worker mate
            WHERE mate.owner = o.owner AND o.enabled AND o.staked) w ON true
        WHERE r.quorum > 1 AND n.request_id = r.id AND n.commitment = r.commitment
    ) said
    LEFT JOIN node.input i ON i.key = CASE WHEN r.input_kind = 1 THEN sha256(r.input) END
    WHERE r.status = 'pending'
      AND l.leased IS NOT TRUE
      AND NOT EXISTS (SELECT FROM node.result n
                      WHERE r.quorum = 1
                        AND n.request_id = r.id AND n.commitment = r.commitment AND {POSTABLE})
      AND NOT q.agreed
      AND NOT EXISTS (SELECT FROM node.tx_item i
                      WHERE i.request_id = r.id AND i.commitment = r.commitment AND i.live)
      AND NOT EXISTS (SELECT FROM node.refusal
                      WHERE request_id = r.id AND commitment = r.commitment
                        AND deadline_s = r.deadline_s)
"""  # noqa: S608 - constants

_SELECT_THESE = _SELECT + " AND r.id = ANY($2::bigint[])"

_TAKE_TOUCHED = """
    WITH taken AS (DELETE FROM node.touched RETURNING request_id)
    SELECT DISTINCT request_id FROM taken
"""

_ROWS_AT_ONCE = 500
_LOOKED_AT_AGAIN = 0.75
"""Part of a rest after which it is looked at again: a rest is a share of the time that is left, and
ends the sooner the less of it there is."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one round has read."""

    moment: Moment
    asked: Sequence[int] | None
    """The ids that were asked about; None = all."""
    rows: Sequence[Any]
    """Of those among them that are to be computed, or will be after their rest."""
    lengths: Lengths
    """What is known of the outputs of their models and requesters."""
    max_gas: int
    read_at_s: float
    """Seconds of `time.monotonic`."""


class Feed:
    """The pending requests as changes since the last reading. One reading at a time."""

    def __init__(self) -> None:
        self._whole = True
        self._max_gas = 0
        self._known: dict[int, RequestKey] = {}
        """What was handed out as pending, by id."""
        self._callbacks: set[int] = set()
        """Those among them whose consumer is to be called."""
        self._rests: dict[int, float] = {}
        """When to ask again about requests that rest, in seconds of `time.monotonic`."""

    async def read(
        self, connection: Connection, inputs: RoundInputs, fence: Fence
    ) -> Reading | None:
        """Takes out what was touched and reads it; None before the first indexed block."""
        async with connection.transaction(isolation="repeatable_read"):
            await fence(connection)
            moment = await load_moment(connection, inputs)
            if moment is None:
                return None
            touched = [row["request_id"] for row in await connection.fetch(_TAKE_TOUCHED)]
            max_gas = inputs.gas_cap(moment.block.gas_limit)
            now_s, head_s = time.monotonic(), moment.block.timestamp_s
            if self._whole or None in touched:
                rows = await _in_parts(connection, _SELECT, head_s)
                lengths = await _lengths(connection, rows)
                return Reading(moment, None, rows, lengths, max_gas, now_s)
            due = [number for number, until_s in self._rests.items() if until_s <= now_s]
            # The gas limit of blocks moves with every block; only calls depend on it.
            refit = self._callbacks if max_gas != self._max_gas else ()
            asked = sorted({*touched, *due, *refit})
            if len(asked) > _ROWS_AT_ONCE:
                rows = await _in_parts(connection, _SELECT_THESE, head_s, asked)
            else:
                rows = await connection.fetch(_SELECT_THESE, head_s, asked) if asked else []
            lengths = await _lengths(connection, rows)
            return Reading(moment, asked, rows, lengths, max_gas, now_s)

    async def skip(self, connection: Connection, fence: Fence) -> None:
        """Forgets what was touched: the next reading is of everything."""
        self._whole = True
        async with connection.transaction():
            await fence(connection)
            await connection.execute("DELETE FROM node.touched")

    def take_in(self, reading: Reading) -> Changes:
        """The reading as changes to what was handed out before. Touches no connection."""
        asked = list(self._known) if reading.asked is None else reading.asked
        before = {number: self._known.pop(number, None) for number in asked}
        if reading.asked is None:
            self._rests.clear()
            self._callbacks.clear()
        for number in asked:
            self._rests.pop(number, None)
            self._callbacks.discard(number)
        added = []
        for row in reading.rows:
            if row["rests_s"] > 0:
                self._rests[row["id"]] = reading.read_at_s + _LOOKED_AT_AGAIN * row["rests_s"]
                continue
            request = request_of(row, reading.max_gas, reading.lengths)
            self._known[row["id"]] = request.key
            if row["delivery"] == Delivery.CALLBACK:
                self._callbacks.add(row["id"])
            added.append(request)
        removed = [
            key
            for number, key in before.items()
            if key is not None and self._known.get(number) != key
        ]
        self._whole, self._max_gas = False, reading.max_gas
        return Changes(added=added, removed=removed)


async def _in_parts(connection: Connection, query: str, *args: object) -> list[Any]:
    """All rows, decoded a part at a time, so that the event loop can do other things between."""
    cursor = await connection.cursor(query, *args)
    rows: list[Any] = []
    while part := await cursor.fetch(_ROWS_AT_ONCE):
        rows += part
    return rows


async def _lengths(connection: Connection, rows: Sequence[Any]) -> Lengths:
    pairs = {(ModelId(row["model_id"]), Address(row["requester"])) for row in rows}
    return await length_stats.load(connection, pairs)
