"""Named inputs in PostgreSQL: which are wanted, and what came of trying to have them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from indexer.database import Connection, plain_text
from inferd.inputs.tries import Wanted
from scheduler.model import Reason

NO_ROOM = "this node keeps as much content as `inputs.total_mb` allows"
"""The trouble of what is not fetched for want of room."""

_DELETED_AT_ONCE = 64

# A request waits for its input where the newest decision says so: what would not be served
# whatever its input is, or is not worth its gas, makes this node fetch nothing.
_SELECT_WAITING = f"""
    SELECT r.id, r.input, r.deadline_s, i.state, i.tries, i.newest_request, i.trouble,
           extract(epoch FROM i.next_try_at)::double precision AS next_try_s
    FROM chain.request r
    CROSS JOIN LATERAL (SELECT d.reason FROM node.decision d
                        WHERE d.request_id = r.id AND d.commitment = r.commitment
                        ORDER BY d.id DESC LIMIT 1) newest
    LEFT JOIN node.input i ON i.key = sha256(r.input)
    WHERE r.status = 'pending' AND r.input_kind = 1 AND newest.reason = '{Reason.INPUT_AWAITED}'
      AND r.deadline_s >= (SELECT timestamp_s FROM chain.cursor)
      AND NOT EXISTS (SELECT FROM node.refusal f WHERE f.request_id = r.id
                      AND f.commitment = r.commitment AND f.deadline_s = r.deadline_s)
"""  # noqa: S608 - a constant


async def load_wanted(connection: Connection) -> tuple[list[Wanted], list[int]]:
    """What is to be fetched, and the ids of requests that still wait for what was decided
    meanwhile: they came while that was being written."""
    found: dict[bytes, Wanted] = {}
    overlooked: list[int] = []
    for row in await connection.fetch(_SELECT_WAITING):
        lost = row["state"] == "lost"
        if row["state"] == "here" or (lost and row["id"] <= row["newest_request"]):
            overlooked.append(row["id"])
            continue
        other = found.get(row["input"])
        found[row["input"]] = Wanted(
            key=sha256(row["input"]).digest(),
            input=row["input"],
            deadline_s=max(row["deadline_s"], other.deadline_s if other else 0),
            newest_request=max(row["id"], other.newest_request if other else 0),
            # What was given up is begun anew by a later request.
            tries=0 if lost else row["tries"] or 0,
            next_try_s=0.0 if lost else row["next_try_s"] or 0.0,
            told_of_room=row["trouble"] == NO_ROOM,
        )
    return list(found.values()), overlooked


async def touch(connection: Connection, ids: list[int]) -> None:
    """Has the next round look at the requests again."""
    await connection.execute("INSERT INTO node.touched SELECT * FROM unnest($1::bigint[])", ids)


async def begin_again(connection: Connection) -> None:
    """Gives what was given up another chance: the settings may be others now."""
    await connection.execute("DELETE FROM node.input WHERE state = 'lost'")


async def write_content(connection: Connection, wanted: Wanted, content: bytes) -> None:
    """The content is here, for all who name it so."""
    await connection.execute(
        """
        INSERT INTO node.input (key, state, content, tries, newest_request)
        VALUES (sha256($1), 'here', $2, $3, $4)
        ON CONFLICT (key) DO UPDATE SET state = 'here', content = excluded.content,
            tries = excluded.tries, trouble = NULL, next_try_at = NULL,
            newest_request = excluded.newest_request, changed_at = now()
        """,
        wanted.input,
        content,
        wanted.tries + 1,
        wanted.newest_request,
    )


async def write_failure(
    connection: Connection, wanted: Wanted, trouble: str, next_try_s: float | None
) -> None:
    """`next_try_s` is seconds since the epoch; None where it is given up."""
    await connection.execute(
        """
        INSERT INTO node.input (key, state, tries, trouble, next_try_at, newest_request)
        VALUES (sha256($1), $2, $3, $4, to_timestamp($5), $6)
        ON CONFLICT (key) DO UPDATE SET state = excluded.state, content = NULL,
            tries = excluded.tries, trouble = excluded.trouble,
            next_try_at = excluded.next_try_at, newest_request = excluded.newest_request,
            changed_at = now()
        """,
        wanted.input,
        "lost" if next_try_s is None else "trying",
        wanted.tries + 1,
        plain_text(trouble),
        next_try_s,
        wanted.newest_request,
    )


async def tell_of_room(
    connection: Connection, waiting: Sequence[Wanted], next_look_s: float
) -> None:
    """That these wait for room: no try of theirs is counted. `next_look_s` is seconds since the
    epoch."""
    await connection.execute(
        """
        INSERT INTO node.input (key, state, tries, trouble, next_try_at, newest_request)
        SELECT key, 'trying', tries, $4, to_timestamp($5), newest_request
        FROM unnest($1::bytea[], $2::int[], $3::bigint[]) AS one (key, tries, newest_request)
        ON CONFLICT (key) DO UPDATE SET state = excluded.state, content = NULL,
            tries = excluded.tries, trouble = excluded.trouble,
            next_try_at = excluded.next_try_at, newest_request = excluded.newest_request,
            changed_at = now()
        """,
        [one.key for one in waiting],
        [one.tries for one in waiting],
        [one.newest_request for one in waiting],
        NO_ROOM,
        next_look_s,
    )


async def held_bytes(connection: Connection) -> int:
    """How much content is kept."""
    return int(
        await connection.fetchval("SELECT coalesce(sum(octet_length(content)), 0) FROM node.input")
    )


async def make_room(connection: Connection, size_bytes: int) -> int:
    """Deletes content that no pending request names, that of the longest ago first, until so many
    bytes are free or there is none; gives how many bytes it deleted."""
    freed = 0
    while freed < size_bytes:
        rows = await connection.fetch(
            """
            DELETE FROM node.input WHERE key IN (
                SELECT i.key FROM node.input i
                WHERE i.state = 'here' AND NOT EXISTS (
                    SELECT FROM chain.request r WHERE sha256(r.input) = i.key
                    AND r.input_kind = 1 AND r.status = 'pending')
                ORDER BY i.changed_at LIMIT $1)
            RETURNING octet_length(content) AS size_bytes
            """,
            _DELETED_AT_ONCE,
        )
        if not rows:
            break
        freed += sum(row["size_bytes"] for row in rows)
    return freed


async def forget(connection: Connection, older_than_s: float) -> int:
    """Deletes what no pending request names and nothing has changed of for so long."""
    rows = await connection.fetch(
        """
        DELETE FROM node.input i WHERE i.changed_at < now() - $1 * interval '1 second'
        AND NOT EXISTS (SELECT FROM chain.request r WHERE sha256(r.input) = i.key
                        AND r.input_kind = 1 AND r.status = 'pending')
        RETURNING i.key
        """,
        older_than_s,
    )
    return len(rows)
