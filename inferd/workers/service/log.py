"""What a worker has put its name to, in one SQLite file: kept for ever, and consulted each time.

A worker's stake hangs on it, so its safety does not rest on the code that calls it: the table's key
allows one digest for a request, triggers refuse to change or delete one, and each commit is on the
disk (WAL with synchronous=FULL) before it is told of. Outputs are kept beside it until whoever
asked has them, or for the retention time.

One file belongs to one worker and one deployment. One process has it at a time, by a lock on the
folder; if that were circumvented, both would still give the first digest.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from indexer.errors import OperatorError
from indexer.types import Address, Hash32
from inferd.protocol.typed_data import CompactSignature
from inferd.protocol.worker_api import JobId
from inferd.workers.grouping import Grouped
from inferd.workers.job import SignedResult, Spoken, WorkerBusy, WorkerFailed
from inferd.workers.service.log_schema import (
    SignatureLogInUse,
    SignatureLogUnusable,
    prepare,
    transaction,
)
from scheduler.model import RequestKey

_T = TypeVar("_T")

MOST_ASKERS = 64
"""Of one request: attempts and operators that may still fetch its output."""
_MOST_AT_ONCE = 64
_BUSY_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Asker:
    """Which operator asked, and in which attempt."""

    operator: Address
    attempt: int


@dataclass(frozen=True, slots=True)
class Signed:
    """A result to be recorded: of which content, and who asked for it."""

    result: SignedResult
    content: Hash32
    askers: tuple[Asker, ...]


class SignatureFile:
    """The log, a `SignatureLog`. Every method raises WorkerFailed where the disk fails."""

    def __init__(self, path: Path, worker: Address, lock: int) -> None:
        """Use `open_log`."""
        self._worker = worker
        self._lock = lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="signatures")
        self._db = sqlite3.connect(
            path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._records = Grouped(
            self._record_all,
            most=_MOST_AT_ONCE,
            apart=lambda signed: signed.result.key,
        )

    def prepare(self, domain: Hash32) -> None:
        """Makes or checks the tables. Raises sqlite3.Error and SignatureLogUnusable."""
        prepare(self._db, self._worker, domain)

    async def recorded(self, worker: Address, key: RequestKey) -> SignedResult | Spoken | None:
        """What the worker has said on the request."""
        if worker != self._worker:
            return None
        return await self._do(lambda: self._recorded(key))

    async def signatures(
        self, worker: Address, keys: Sequence[RequestKey]
    ) -> Mapping[RequestKey, tuple[Hash32, CompactSignature]]:
        """Digest and signature of each; requests without one are absent."""
        if worker != self._worker:
            return {}

        def read() -> dict[RequestKey, tuple[Hash32, CompactSignature]]:
            found = {}
            for key in keys:
                spoken = self._spoken(key)
                if spoken is not None:
                    found[key] = (spoken.digest, spoken.signature)
            return found

        return await self._do(read)

    async def record(self, signed: Signed) -> SignedResult | Spoken:
        """Makes the result the worker's word, for good; returns what is its word.

        That is an earlier one where there is one, and `Spoken` where that is of another digest and
        its output is gone, or was computed of another content: of another model, say. Only what
        this returns may leave the process.
        """
        return await self._records.do(signed)

    async def content_of(self, key: RequestKey) -> Hash32 | None:
        """The content that was computed for the request."""
        return await self._do(lambda: self._content(key))

    async def answer_to(self, asker: Asker, key: RequestKey) -> SignedResult | None:
        """The result with its output, where this one asked for it and has not acknowledged it."""

        def read() -> SignedResult | None:
            if self._has_asked(asker, key):
                known = self._recorded(key)
                return known if isinstance(known, SignedResult) else None
            return None

        return await self._do(read)

    async def add_asker(self, asker: Asker, key: RequestKey) -> bool:
        """One more asks for a recorded result; False where its output is not kept.

        Raises WorkerBusy where too many others have asked and not acknowledged it.
        """

        def write() -> bool:
            if self._has_asked(asker, key):
                return True
            with transaction(self._db):
                if not isinstance(self._recorded(key), SignedResult):
                    return False
                if self._askers(key) >= MOST_ASKERS:
                    raise WorkerBusy("too many wait for this request already")
                self._add_askers(key, (asker,))
            return True

        return await self._do(write)

    async def acknowledge(self, asker: Asker, key: RequestKey) -> None:
        """This one has the answer. The output goes once nobody else is to have it."""

        def write() -> None:
            if not self._has_asked(asker, key):
                return
            at = _sql(key)
            with transaction(self._db):
                self._db.execute(
                    "DELETE FROM asker WHERE request_id = ? AND commitment = ?"
                    " AND operator = ? AND attempt = ?",
                    (*at, asker.operator, asker.attempt),
                )
                self._db.execute(
                    "DELETE FROM output WHERE request_id = ?1 AND commitment = ?2 AND NOT EXISTS"
                    " (SELECT 1 FROM asker WHERE request_id = ?1 AND commitment = ?2)",
                    at,
                )

        await self._do(write)

    async def drop_outputs(self, *, before_s: float) -> int:
        """Drops outputs that are kept since before then; returns how many."""

        def write() -> int:
            with transaction(self._db):
                return self._db.execute(
                    "DELETE FROM output WHERE kept_since_s < ?", (int(before_s),)
                ).rowcount

        return await self._do(write)

    async def counts(self) -> tuple[int, int]:
        """Outputs that are kept, and their bytes."""
        found: tuple[int, int] = await self._do(
            lambda: self._db.execute(
                "SELECT count(*), coalesce(sum(length(output)), 0) FROM output"
            ).fetchone()
        )
        return found

    async def close(self) -> None:
        """Waits for what is under way and gives the lock back."""
        await self._records.close()
        await asyncio.to_thread(self._thread.shutdown, wait=True)
        self.close_now()

    def close_now(self) -> None:
        """As `close`, where nothing was begun."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        os.close(self._lock)

    async def _do(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise WorkerFailed(f"its log of signatures fails: {error}") from error

    async def _record_all(self, given: Sequence[Signed]) -> list[SignedResult | Spoken]:
        def write() -> list[SignedResult | Spoken]:
            with transaction(self._db):
                return [self._record(signed) for signed in given]

        return await self._do(write)

    def _record(self, signed: Signed) -> SignedResult | Spoken:
        result, key = signed.result, _sql(signed.result.key)
        now_s = int(time.time())
        self._db.execute(
            "INSERT INTO result VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*key, signed.content, result.digest, result.signature, now_s),
        )
        known = self._recorded(result.key)
        if known is None:
            raise sqlite3.DatabaseError("a row that was written is not there")
        if self._content(result.key) != signed.content:
            return Spoken(known.digest, known.signature)
        if isinstance(known, Spoken) and known.digest == result.digest:
            self._db.execute(
                "INSERT INTO output VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *key,
                    result.output,
                    result.media_type,
                    json.dumps(dict(result.manifest), allow_nan=False),
                    result.compute_ms,
                    now_s,
                ),
            )
            known = self._recorded(result.key) or known
        if isinstance(known, SignedResult):
            self._add_askers(result.key, signed.askers)
        return known

    def _recorded(self, key: RequestKey) -> SignedResult | Spoken | None:
        spoken = self._spoken(key)
        if spoken is None:
            return None
        row = self._db.execute(
            "SELECT output, media_type, manifest, compute_ms FROM output"
            " WHERE request_id = ? AND commitment = ?",
            _sql(key),
        ).fetchone()
        if row is None:
            return spoken
        return SignedResult(
            key=key,
            worker=self._worker,
            digest=spoken.digest,
            output=row[0],
            media_type=row[1],
            manifest=json.loads(row[2]),
            signature=spoken.signature,
            compute_ms=row[3],
        )

    def _content(self, key: RequestKey) -> Hash32 | None:
        row = self._db.execute(
            "SELECT content FROM result WHERE request_id = ? AND commitment = ?", _sql(key)
        ).fetchone()
        return None if row is None else Hash32(row[0])

    def _spoken(self, key: RequestKey) -> Spoken | None:
        row = self._db.execute(
            "SELECT digest, signature FROM result WHERE request_id = ? AND commitment = ?",
            _sql(key),
        ).fetchone()
        return None if row is None else Spoken(Hash32(row[0]), CompactSignature(row[1]))

    def _has_asked(self, asker: Asker, key: RequestKey) -> bool:
        found = self._db.execute(
            "SELECT 1 FROM asker WHERE request_id = ? AND commitment = ?"
            " AND operator = ? AND attempt = ?",
            (*_sql(key), asker.operator, asker.attempt),
        ).fetchone()
        return found is not None

    def _askers(self, key: RequestKey) -> int:
        count: int = self._db.execute(
            "SELECT count(*) FROM asker WHERE request_id = ? AND commitment = ?", _sql(key)
        ).fetchone()[0]
        return count

    def _add_askers(self, key: RequestKey, askers: Sequence[Asker]) -> None:
        self._db.executemany(
            "INSERT INTO asker VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [(*_sql(key), asker.operator, asker.attempt) for asker in askers],
        )


def open_log(folder: Path, worker: Address, domain: Hash32) -> SignatureFile:
    """The log of one worker for one deployment, whose `ResultGroup` domain is `domain`; in its own
    folder, which nobody else may read.

    Raises SignatureLogInUse and SignatureLogUnusable.
    """
    lock = -1
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        log = SignatureFile(folder / f"signatures-{domain.hex()[:16]}.db", worker, lock)
    except BlockingIOError:
        os.close(lock)
        raise SignatureLogInUse(
            f"another process has the log of signatures in {folder}",
            help_text="one agent runs for a key: stop the other one, or wait until it has ended",
        ) from None
    except (OSError, sqlite3.Error) as error:
        if lock >= 0:
            os.close(lock)
        raise _unusable(folder, error) from error
    try:
        log.prepare(domain)
    except sqlite3.Error as error:
        log.close_now()
        raise _unusable(folder, error) from error
    except OperatorError:
        log.close_now()
        raise
    return log


def asker_of(operator: Address, job: JobId) -> tuple[Asker, RequestKey]:
    """Who asks, and about what."""
    return Asker(operator, job.attempt), RequestKey(job.request_id, job.commitment)


def _unusable(folder: Path, error: Exception) -> SignatureLogUnusable:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return SignatureLogUnusable(
        f"the log of signatures in {folder} cannot be used: {reason}",
        help_text="mend the disk or the folder's permissions; never delete the file while results"
        " of it may still be posted, since without it two answers to one request can be signed",
    )


def _sql(key: RequestKey) -> tuple[int, bytes]:
    return key.id, bytes(key.commitment)
