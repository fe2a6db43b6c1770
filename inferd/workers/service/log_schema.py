"""The tables of a log of signatures, and when a file is refused as one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import ClassVar

from indexer.errors import OperatorError, TemporaryError
from indexer.types import Address, Hash32

_VERSION = 1

_SCHEMA = """
CREATE TABLE identity (worker BLOB NOT NULL, domain BLOB NOT NULL);
CREATE TABLE result (
    request_id   INTEGER NOT NULL CHECK (request_id >= 0),
    commitment   BLOB NOT NULL CHECK (length(commitment) = 20),
    content      BLOB NOT NULL CHECK (length(content) = 32),
    digest       BLOB NOT NULL CHECK (length(digest) = 32),
    signature    BLOB NOT NULL CHECK (length(signature) = 64),
    signed_at_s  INTEGER NOT NULL,
    PRIMARY KEY (request_id, commitment)
) WITHOUT ROWID;
CREATE TRIGGER result_is_final BEFORE UPDATE ON result
    BEGIN SELECT RAISE(ABORT, 'what was signed does not change'); END;
CREATE TRIGGER result_is_kept BEFORE DELETE ON result
    BEGIN SELECT RAISE(ABORT, 'what was signed is kept'); END;
CREATE TABLE output (
    request_id   INTEGER NOT NULL,
    commitment   BLOB NOT NULL,
    output       BLOB NOT NULL,
    media_type   TEXT NOT NULL,
    manifest     TEXT NOT NULL,
    compute_ms   INTEGER NOT NULL,
    kept_since_s INTEGER NOT NULL,
    PRIMARY KEY (request_id, commitment),
    FOREIGN KEY (request_id, commitment) REFERENCES result (request_id, commitment)
);
CREATE INDEX output_by_age ON output (kept_since_s);
CREATE TABLE asker (
    request_id   INTEGER NOT NULL,
    commitment   BLOB NOT NULL,
    operator     BLOB NOT NULL CHECK (length(operator) = 20),
    attempt      INTEGER NOT NULL,
    PRIMARY KEY (request_id, commitment, operator, attempt),
    FOREIGN KEY (request_id, commitment) REFERENCES output (request_id, commitment)
        ON DELETE CASCADE
) WITHOUT ROWID;
"""


class SignatureLogInUse(TemporaryError):
    """Another process has this worker's log of signatures."""

    code: ClassVar[str] = "signature_log_in_use"


class SignatureLogUnusable(OperatorError):
    """The worker's log of signatures cannot be read or written, or is another worker's."""

    code: ClassVar[str] = "signature_log_unusable"


def prepare(db: sqlite3.Connection, worker: Address, domain: Hash32) -> None:
    """Makes the tables, or checks that they are this worker's and deployment's.

    Raises sqlite3.Error and SignatureLogUnusable.
    """
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA secure_delete = ON")
    db.execute("PRAGMA synchronous = FULL")
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise SignatureLogUnusable(
            f"the disk of the log of signatures takes no write-ahead log ({mode})",
            help_text="put `data_dir` on a local disk",
        )
    with transaction(db):
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _statements(_SCHEMA):
                db.execute(statement)
            db.execute("INSERT INTO identity VALUES (?, ?)", (worker, domain))
            db.execute(f"PRAGMA user_version = {_VERSION}")
        elif version > _VERSION:
            raise SignatureLogUnusable(
                f"the log of signatures has version {version}, this release knows {_VERSION}",
                help_text="use the newer release of inferd that wrote it",
            )
    if db.execute("SELECT worker, domain FROM identity").fetchall() != [(worker, domain)]:
        raise SignatureLogUnusable(
            "the log of signatures is of another worker or another deployment",
            help_text="each worker and deployment needs its own: never copy one to another's",
        )


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Writes all or nothing; what was written is on the disk at its end."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _statements(schema: str) -> Iterator[str]:
    statement = ""
    for line in schema.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
