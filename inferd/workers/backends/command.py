"""Any program as a model: JSON in on stdin, the answer out on stdout. docs/operating.md has both.

Each request starts it anew, in a process group of its own, without a shell, with the variables of
an allow list. It is killed with everything in its group when it ends, is late, writes too much, or
nobody waits for it any more.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, ClassVar

import msgspec

from indexer.errors import OperatorError
from indexer.threads import in_thread
from inferd.workers.backends.base import ComputeThreads, StopAsked
from inferd.workers.backends.choice import CommandOptions
from inferd.workers.backends.manifest import manifest_of
from inferd.workers.job import BadInput, Completion, Job, WorkerBusy, WorkerFailed
from inferd.workers.model_files import Stamp, stamp_of

BAD_INPUT, BUSY = 65, 75
"""Exit codes with a meaning: EX_DATAERR and EX_TEMPFAIL of sysexits.h."""

_LAUNCHER = Path(__file__).with_name("command_launch.py")
_POLL_S = 0.05
_READ_BYTES = 65_536
_KEPT_STDERR_BYTES = 2_000
_LAST_WORDS_S = 1.0
"""How long its pipes may stay open after its group was killed: whoever left the group has them."""


class CommandUnusable(OperatorError):
    """The program of a worker cannot be started."""

    code: ClassVar[str] = "command_unusable"


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of one process."""

    exit_code: int
    """Negative: the signal that killed it."""
    output: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    """Its last words. They may repeat the input."""
    peak_memory_bytes: int


class CommandBackend:
    """One program."""

    def __init__(self, options: CommandOptions, *, name: str, threads: int) -> None:
        self._options = options
        self._name = name
        self._threads = ComputeThreads(name, threads)
        self._program: Path | None = None
        self._hash = _Hash()
        self._last: Ended | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def prior_ms(self) -> float:
        return 4000.0

    @property
    def max_output_bytes(self) -> int:
        return self._options.max_output_bytes

    @property
    def loaded(self) -> bool:
        return self._program is not None

    @property
    def load_ms(self) -> float:
        return 0.0

    @property
    def last(self) -> Ended | None:
        """What came of the last process that ended by itself."""
        return self._last

    async def start(self) -> None:
        """Finds the program. Raises CommandUnusable."""
        if self._program is None:
            self._program = await in_thread(self._found)

    async def unload(self) -> None:
        """Nothing of it is in memory between requests."""

    async def run(self, job: Job) -> Completion:
        """Raises BadInput, WorkerBusy or WorkerFailed. Cancelled, the program is killed."""
        program = self._program
        if program is None:
            raise WorkerFailed("the program has not been found yet")
        left_s = min(self._options.timeout_s, max(0.0, job.deadline_s - time.time()))
        sha256, ended = await self._threads.run(lambda stop: self._run(program, job, left_s, stop))
        self._last = ended
        match ended.exit_code:
            case 0:
                manifest = self._manifest(job, sha256)
                return Completion(ended.output, self._options.media_type, manifest)
            case code if code == BAD_INPUT:
                raise BadInput("the program does not take this input")
            case code if code == BUSY:
                raise WorkerBusy("the program has no capacity now")
            case code if code < 0:
                raise WorkerFailed(f"the program was killed by signal {-code}")
        raise WorkerFailed(f"the program ended with exit code {ended.exit_code}")

    async def close(self) -> None:
        await self._threads.close()

    def _manifest(self, job: Job, sha256: str) -> dict[str, object]:
        return manifest_of(
            model=self._name,
            weights=Path(self._options.argv[0]).name,
            backend="command",
            version=self._options.version,
            sampling={"seed": job.seed, "max_tokens": job.max_tokens},
            prompt_tokens=None,
            completion_tokens=None,
            finish_reason="stop",
            program_sha256=sha256,
        )

    def _found(self) -> Path:
        named, folder = self._options.argv[0], self._options.working_dir
        found = shutil.which(named)
        if found is None:
            raise _unusable(f"there is no program {named}")
        if folder is not None and not folder.is_dir():
            raise _unusable(f"there is no folder {folder}")
        path = Path(found).absolute()
        try:
            self._hash.of(path)
        except OSError as error:
            raise _unusable(f"{path} cannot be read: {error.strerror}") from error
        return path

    def _run(self, program: Path, job: Job, timeout_s: float, stop: StopAsked) -> tuple[str, Ended]:
        options = self._options
        # Each of its threads may be busy all the time.
        cpu_s = (int(timeout_s) + 1) * (os.cpu_count() or 1)
        limits = (options.memory_mb, cpu_s, os.getpid())
        launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), *map(str, limits), str(program)]
        try:
            sha256 = self._hash.of(program)
            process = subprocess.Popen(
                [*launcher, *options.argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=options.working_dir,
                env={n: os.environ[n] for n in options.environment if n in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerFailed(f"the program cannot be started: {error.strerror}") from error
        watched = _Watched(process, question(job), options.max_output_bytes)
        return sha256, watched.end(timeout_s, stop)


def question(job: Job) -> bytes:
    """What a program reads: one JSON object, with an input that is no UTF-8 in base64."""
    fields = {
        "schema_version": 1,
        "request_id": str(job.request_id),
        "commitment": "0x" + job.commitment.hex(),
        "model": job.model,
        "max_tokens": job.max_tokens,
        "seed": job.seed,
        "deadline_s": job.deadline_s,
    }
    try:
        fields["input"] = job.input.decode()
    except UnicodeDecodeError:
        fields["input_base64"] = base64.b64encode(job.input).decode()
    return msgspec.json.encode(fields) + b"\n"


class _Hash:
    """The SHA-256 of a file, made anew where the file is another one than before."""

    def __init__(self) -> None:
        self._stamp: Stamp | None = None
        self._digest = ""

    def of(self, path: Path) -> str:
        """Raises OSError."""
        with path.open("rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            if self._stamp != stamp:
                self._digest = hashlib.file_digest(file, "sha256").hexdigest()
                self._stamp = stamp
            return self._digest


class _Watched:
    """A process between its start and its end, in a thread of its own."""

    def __init__(self, process: subprocess.Popen[bytes], told: bytes, most_bytes: int) -> None:
        self._process = process
        self._left_to_tell = memoryview(told)
        self._most_bytes = most_bytes
        self._output, self._stderr = bytearray(), bytearray()
        self._selector = selectors.DefaultSelector()

    def end(self, timeout_s: float, stop: StopAsked) -> Ended:
        """Raises WorkerFailed where it had to be killed. Nothing of its group is left after."""
        process = self._process
        until = time.monotonic() + timeout_s
        assert process.stdin and process.stdout and process.stderr  # noqa: S101
        with process.stdin, process.stdout, process.stderr, self._selector:
            for pipe, event in (
                (process.stdin, selectors.EVENT_WRITE),
                (process.stdout, selectors.EVENT_READ),
                (process.stderr, selectors.EVENT_READ),
            ):
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, event)
            try:
                while not self._has_ended():
                    if stop():
                        raise WorkerFailed("stopped")
                    if time.monotonic() > until:
                        raise WorkerFailed(f"the program took longer than {timeout_s:.0f} s")
                    self._exchange()
            finally:
                status, peak_bytes = self._bury()
            last_words_until = time.monotonic() + _LAST_WORDS_S
            while self._reading() and time.monotonic() < last_words_until:
                self._exchange()
        return Ended(
            os.waitstatus_to_exitcode(status), bytes(self._output), bytes(self._stderr), peak_bytes
        )

    def _has_ended(self) -> bool:
        """It stays a zombie: its number is not anybody else's before its group was killed."""
        if not self._reading():
            # It has closed its pipes and computes on.
            time.sleep(_POLL_S)
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _bury(self) -> tuple[int, int]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return status, usage.ru_maxrss * 1024

    def _reading(self) -> bool:
        return any(key.events & selectors.EVENT_READ for key in self._selector.get_map().values())

    def _exchange(self) -> None:
        for key, _ in self._selector.select(_POLL_S):
            pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]
            if pipe is self._process.stdin:
                self._tell(pipe)
            elif not (piece := os.read(pipe.fileno(), _READ_BYTES)):
                self._selector.unregister(pipe)
            elif pipe is self._process.stdout:
                self._output += piece
                if len(self._output) > self._most_bytes:
                    raise WorkerFailed(f"the program wrote more than {self._most_bytes} bytes")
            else:
                self._stderr = (self._stderr + piece)[-_KEPT_STDERR_BYTES:]

    def _tell(self, pipe: IO[bytes]) -> None:
        try:
            told = os.write(pipe.fileno(), self._left_to_tell[:_READ_BYTES])
        except BrokenPipeError:  # it answers without having read all
            told = len(self._left_to_tell)
        self._left_to_tell = self._left_to_tell[told:]
        if not self._left_to_tell:
            self._selector.unregister(pipe)
            pipe.close()


def _unusable(why: str) -> CommandUnusable:
    return CommandUnusable(
        f"the program of the worker cannot be started: {why}",
        help_text="correct `argv` or `working_dir` of the section `command`",
    )
