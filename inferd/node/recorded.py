"""What rounds saw, stored so that they can be computed once more."""

from __future__ import annotations

from dataclasses import dataclass

from indexer.database import Connection
from scheduler import recording
from scheduler.decision import Plan
from scheduler.model import Moment
from scheduler.planner import Planner
from scheduler.recording import Recording


@dataclass(frozen=True, slots=True)
class Recorded:
    """The snapshot of one round."""

    digest: bytes
    """Part of the leaf of each of the round's decisions."""
    stored: bytes
    """Compressed."""


def record(planner: Planner, moment: Moment, plan: Plan) -> Recorded:
    """Of the plan that the planner has just made at that moment. Takes a while: for a thread."""
    snapshot = planner.snapshot(moment)
    encoded = recording.encode(Recording(plan.policy, plan.policy_version, snapshot))
    return Recorded(recording.digest(encoded), recording.compress(encoded))


async def write(connection: Connection, round_id: int, recorded: Recorded) -> None:
    """Within the transaction that writes the round."""
    await connection.execute(
        "INSERT INTO node.round_snapshot (round_id, encoding) VALUES ($1, $2)",
        round_id,
        recorded.stored,
    )


async def forget(connection: Connection, hours: int, most_bytes: int) -> None:
    """Deletes snapshots of rounds that are older, and the oldest beyond so many bytes; their
    digests stay in the leaves."""
    await connection.execute(
        """
        DELETE FROM node.round_snapshot s USING node.round r
        WHERE r.id = s.round_id AND r.created_at < now() - $1 * interval '1 hour'
        """,
        hours,
    )
    await connection.execute(
        """
        DELETE FROM node.round_snapshot WHERE round_id <= (
            SELECT max(round_id) FROM (
                SELECT round_id, sum(octet_length(encoding)) OVER (ORDER BY round_id DESC) AS bytes
                FROM node.round_snapshot) newer
            WHERE bytes > $1)
        """,
        most_bytes,
    )
