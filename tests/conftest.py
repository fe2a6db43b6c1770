"""Real parts for every test: PostgreSQL, Anvil, deployed contracts."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from msgspec.structs import replace

from indexer.database import Connection, Pool, connect, open_pool
from indexer.schema import chain_migrations, migrate, migrations_in
from inferd.chain.anvil import Anvil, load_anvil_config, start_anvil
from inferd.node.postgres import EmbeddedPostgres
from tests.stuck import AFTER_S, StuckTests

_TEMPLATE = "inferd_template"
_TEMP_ROOT = "PYTEST_DEBUG_TEMPROOT"

# Property tests are about what holds, never about how long it takes on a busy machine. The usual
# run draws the same cases each time, so that what fails there was changed; new ones are for `deep`.
settings.register_profile(
    "usual", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "deep", settings.get_profile("usual"), derandomize=False, max_examples=2_000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))


def pytest_configure(config: pytest.Config) -> None:
    """A temporary folder of this run's own, an end to tests that never end, and the same cases
    whatever the process has loaded.

    The common folder is closed to others by the next pytest of the same user, and as root the
    servers in it run as another user.

    Hypothesis also draws the strings and numbers that stand in the modules loaded so far: the usual
    cases would change with the tests that ran before in the process, and with any line of the code.
    """
    if _TEMP_ROOT not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="inferd-test-", ignore_cleanup_errors=True)
        os.environ[_TEMP_ROOT] = folder.name
        config.add_cleanup(folder.cleanup)
    config.pluginmanager.register(StuckTests(AFTER_S))
    if settings.get_current_profile_name() == "usual":
        patch = pytest.MonkeyPatch()
        patch.setattr(providers, "is_local_module_file", lambda _: False)
        config.add_cleanup(patch.undo)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command that runs in this process logs to the stderr of its time, which is its test's own,
    and at its level: neither is the next test's."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """One server per test process, fast instead of crash-safe."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), durable=False)
    server.ensure_running()
    yield server
    server.stop()


def database_url(server: EmbeddedPostgres, name: str) -> str:
    return server.url.replace("/postgres?", f"/{name}?")


@pytest.fixture
async def empty_database(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """URL of a new database without tables."""
    name = f"test_{secrets.token_hex(6)}"
    admin = await connect(postgres.url)
    await admin.execute(f"CREATE DATABASE {name}")
    yield database_url(postgres, name)
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@pytest.fixture
async def database(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """URL of a new database with all tables."""
    admin = await connect(postgres.url)
    exists = await admin.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", _TEMPLATE)
    if not exists:
        await admin.execute(f"CREATE DATABASE {_TEMPLATE}")
        template = await connect(database_url(postgres, _TEMPLATE))
        await migrate(template, "chain", chain_migrations())
        await migrate(template, "node", migrations_in(files("inferd.node") / "migrations"))
        await template.close()
    name = f"test_{secrets.token_hex(6)}"
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
    yield database_url(postgres, name)
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    opened = await open_pool(database)
    yield opened
    # It waits for whoever still has a connection, as what a failed test has begun.
    async with asyncio.timeout(30):
        await opened.close()


@pytest.fixture
async def connection(database: str) -> AsyncIterator[Connection]:
    opened = await connect(database)
    yield opened
    await opened.close()


@pytest.fixture
def anvil(tmp_path: Path) -> Iterator[Anvil]:
    """A chain of this test's own that mines when it is told to or a transaction comes."""
    config = replace(load_anvil_config(), port=0, block_time_s=0)
    with start_anvil(config, log=tmp_path / "anvil.log") as running:
        yield running
