"""Versioned migrations: numbered SQL files per component, run once each, under a lock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from indexer.database import Connection
from indexer.errors import DatabaseNewer, DatabaseOlder

_LOCK_KEY = 0x696E6665_72640001  # "inferd", and which of its locks: migrations
_APPLIED = "SELECT coalesce(max(version), 0) FROM public.inferd_migration WHERE component = $1"
_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered SQL file."""

    version: int
    sql: str


def migrations_in(folder: Traversable) -> tuple[Migration, ...]:
    """The folder's migrations in order. Raises ValueError where the numbers are not 1, 2, 3, ..."""
    found = []
    for entry in folder.iterdir():
        match = _FILE_NAME.fullmatch(entry.name)
        if match:
            found.append(Migration(int(match[1]), entry.read_text()))
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations in {folder} are not numbered without gaps from 0001")
    return tuple(found)


def chain_migrations() -> tuple[Migration, ...]:
    """The indexer's own."""
    return migrations_in(files("indexer.schema"))


async def require_current(
    connection: Connection, component: str, migrations: tuple[Migration, ...]
) -> None:
    """For those who use the tables and must not change them under a daemon of another release.

    Raises DatabaseNewer, DatabaseOlder.
    """
    applied = 0
    if await connection.fetchval("SELECT to_regclass('public.inferd_migration') IS NOT NULL"):
        applied = await connection.fetchval(_APPLIED, component)
    _refuse_newer(component, applied, migrations)
    if applied < len(migrations):
        raise DatabaseOlder(
            f"the database has version {applied} of the {component} tables,"
            f" this release of inferd needs {len(migrations)}",
            help_text="start `inferd node` of this release: it brings the tables up to date",
        )


async def migrate(connection: Connection, component: str, migrations: tuple[Migration, ...]) -> int:
    """Brings one component's tables up to date; returns how many migrations it ran.

    Several processes may call it at once: one works, the others wait and find nothing to do.
    Raises DatabaseNewer where the database has a migration this release does not know.
    """
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK_KEY)
        await connection.execute(
            """
            CREATE TABLE IF NOT EXISTS public.inferd_migration (
                component  text NOT NULL,
                version    integer NOT NULL,
                applied_at timestamptz NOT NULL DEFAULT now(),
                PRIMARY KEY (component, version)
            )
            """
        )
        applied: int = await connection.fetchval(_APPLIED, component)
        _refuse_newer(component, applied, migrations)
        pending = migrations[applied:]
        for migration in pending:
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO public.inferd_migration (component, version) VALUES ($1, $2)",
                component,
                migration.version,
            )
    return len(pending)


def _refuse_newer(component: str, applied: int, migrations: tuple[Migration, ...]) -> None:
    if applied > len(migrations):
        raise DatabaseNewer(
            f"the database has version {applied} of the {component} tables,"
            f" this release of inferd knows {len(migrations)}",
            help_text="run the newer inferd that migrated it, or point `database_url`"
            " at another database",
        )
