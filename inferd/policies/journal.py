"""Which policies are in force: the newest row of node.policy.

**Who wins.** `inferd policy set` adds a row; so does the settings file, at the daemon's start and
at SIGHUP, but only where it says something else than it said last. So what was set last is in
force, whether by command or by file, and a restart by itself changes nothing.
"""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from indexer.database import Connection
from scheduler.choice import Arm, Choice, Weights

POLICY_CHANNEL = "inferd_policy"
"""NOTIFY channel: node.policy has a new row."""

_COLUMNS = "id, source, policies, shares, weights, set_by, set_at"
_INSERT = f"""
    INSERT INTO node.policy (source, policies, shares, weights, set_by)
    VALUES ($1, $2, $3, $4, $5) RETURNING {_COLUMNS}
"""  # noqa: S608 - constants
_SELECT = f"SELECT {_COLUMNS} FROM node.policy"  # noqa: S608 - constants
_NEWEST = f"{_SELECT} ORDER BY id DESC LIMIT 1"
_NEWEST_OF = f"{_SELECT} WHERE source = $1 ORDER BY id DESC LIMIT 1"


class Source(StrEnum):
    SETTINGS = "settings"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of node.policy. Its id is the number of the experiment that a split is."""

    id: int
    source: Source
    choice: Choice
    set_by: str
    set_at: datetime


async def in_force(connection: Connection) -> Entry | None:
    """None before any daemon has started on this database."""
    row = await connection.fetchrow(_NEWEST)
    return None if row is None else _entry(row)


async def history(connection: Connection, limit: int) -> list[Entry]:
    """The newest entries, the newest first."""
    rows = await connection.fetch(f"{_SELECT} ORDER BY id DESC LIMIT $1", limit)
    return [_entry(row) for row in rows]


async def record(connection: Connection, source: Source, choice: Choice) -> Entry:
    """Puts the choice in force when the caller's transaction ends, and wakes the daemon."""
    weights = choice.weights
    row = await connection.fetchrow(
        _INSERT,
        source,
        [arm.policy for arm in choice.arms],
        list(choice.shares),
        None if weights is None else [weights.fee, weights.wait, weights.slack],
        _who(),
    )
    await connection.execute("SELECT pg_notify($1, '')", POLICY_CHANNEL)
    return _entry(row)


async def adopt_settings(connection: Connection, choice: Choice) -> Entry:
    """Takes over what the settings file says, where that is news; returns what is in force."""
    said = await connection.fetchrow(_NEWEST_OF, Source.SETTINGS)
    if said is None or _entry(said).choice != choice:
        return await record(connection, Source.SETTINGS, choice)
    newest = await in_force(connection)
    assert newest is not None  # noqa: S101 - `said` is at least as old
    return newest


def _who() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _entry(row: Any) -> Entry:
    arms = zip(row["policies"], row["shares"], strict=True)
    return Entry(
        id=row["id"],
        source=Source(row["source"]),
        choice=Choice(
            tuple(Arm(policy, share) for policy, share in arms),
            None if row["weights"] is None else Weights(*row["weights"]),
        ),
        set_by=row["set_by"],
        set_at=row["set_at"],
    )
