"""One digest a request, for ever, whatever happens to the process, the disk or the lock."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import sqlite3
import stat
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from indexer.errors import ExitCode
from indexer.types import Address, Hash32
from inferd.protocol.request import Commitment
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import group_digest, sign_digest
from inferd.workers.job import SignedResult, Spoken, WorkerFailed
from inferd.workers.service.log import (
    Asker,
    SignatureFile,
    Signed,
    open_log,
)
from inferd.workers.service.log_schema import SignatureLogInUse, SignatureLogUnusable
from scheduler.model import RequestKey
from tests.workers.service.support import RESULTS_DOMAIN, WORKER, WORKER_KEY

ONE, OTHER = Asker(Address(b"\x01" * 20), 1), Asker(Address(b"\x02" * 20), 1)
CONTENT = Hash32(b"\x05" * 32)


def a_key(number: int = 1) -> RequestKey:
    return RequestKey(number, number.to_bytes(20, "big"))


def a_result(output: bytes = b"out", number: int = 1) -> SignedResult:
    key, digest = a_key(number), digest_of(output)
    items = pack_items([ResultItem(key.id, Commitment(key.commitment), digest)])
    return SignedResult(
        key,
        WORKER,
        digest,
        output,
        "text/plain",
        {"model": "m", "tokens": 3},
        sign_digest(WORKER_KEY, group_digest(RESULTS_DOMAIN, items)),
        7,
    )


def signed(output: bytes = b"out", number: int = 1, *askers: Asker) -> Signed:
    return Signed(a_result(output, number), CONTENT, askers or (ONE,))


def opened(folder: Path, worker: Address = WORKER, domain: Hash32 = RESULTS_DOMAIN) -> Any:
    return open_log(folder, worker, domain)


async def test_the_first_digest_stays(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert await log.recorded(WORKER, a_key()) is None
    assert await log.record(signed(b"first")) == a_result(b"first")
    assert await log.record(signed(b"second")) == a_result(b"first")
    await log.close()
    log = opened(tmp_path)
    assert await log.record(signed(b"second")) == a_result(b"first")
    assert await log.recorded(WORKER, a_key()) == a_result(b"first")
    assert await log.signatures(WORKER, [a_key(), a_key(2)]) == {
        a_key(): (digest_of(b"first"), a_result(b"first").signature)
    }
    await log.acknowledge(ONE, a_key())
    spoken = Spoken(digest_of(b"first"), a_result(b"first").signature)
    assert await log.recorded(WORKER, a_key()) == spoken
    assert await log.record(signed(b"second")) == spoken
    assert await log.record(signed(b"first")) == a_result(b"first"), "its output is kept again"
    assert await log.recorded(OTHER.operator, a_key()) is None, "it is of one worker"
    await log.close()


async def test_an_answer_to_another_content_is_not_given_out_for_this_one(tmp_path: Path) -> None:
    """As where a job is cancelled while its answer is being written, and another model asked."""
    log = opened(tmp_path)
    assert await log.record(signed(b"of one model")) == a_result(b"of one model")
    spoken = Spoken(digest_of(b"of one model"), a_result(b"of one model").signature)
    for output in (b"of one model", b"of another"):
        other = Signed(a_result(output), Hash32(b"\x06" * 32), (OTHER,))
        assert await log.record(other) == spoken
    assert await log.answer_to(OTHER, a_key()) is None
    assert await log.answer_to(ONE, a_key()) == a_result(b"of one model")
    await log.close()


async def test_what_is_written_together_is_judged_one_by_one(tmp_path: Path) -> None:
    log = opened(tmp_path)
    texts = [b"%d" % (number % 7) for number in range(60)]
    kept = await asyncio.gather(
        *(log.record(signed(text, 1 + at % 5)) for at, text in enumerate(texts))
    )
    by_key = {result.key: result.digest for result in kept}
    assert len(by_key) == 5
    assert all(result.digest == by_key[result.key] for result in kept)
    await log.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        code = pool.apply(_try_to_open, (str(tmp_path),))
    assert code == ("signature_log_in_use", ExitCode.TRY_AGAIN)
    with pytest.raises(SignatureLogInUse):
        opened(tmp_path)
    log.close_now()
    opened(tmp_path).close_now()


def _try_to_open(folder: str) -> tuple[str, int]:
    try:
        opened(Path(folder)).close_now()
    except SignatureLogInUse as error:
        return error.code, error.exit_code
    return "", 0


async def test_two_processes_without_the_lock_still_give_one_digest(tmp_path: Path) -> None:
    one = opened(tmp_path)
    (tmp_path / "lock").unlink()
    other = opened(tmp_path)
    for number in range(1, 21):
        kept = await asyncio.gather(
            one.record(signed(b"one", number)), other.record(signed(b"other", number))
        )
        assert kept[0].digest == kept[1].digest
    await one.close()
    await other.close()


def test_a_file_of_another_worker_or_deployment_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close_now()
    (file,) = tmp_path.glob("*.db")
    other_domain = Hash32(b"\x77" * 32)
    opened(tmp_path, domain=other_domain).close_now()
    assert len(list(tmp_path.glob("*.db"))) == 2, "a deployment has its own"
    with pytest.raises(SignatureLogUnusable, match="another worker"):
        opened(tmp_path, worker=OTHER.operator)
    for left in tmp_path.glob("*.db-*"):
        left.unlink()
    file.rename(tmp_path / f"signatures-{other_domain.hex()[:16]}.db")
    with pytest.raises(SignatureLogUnusable, match="another worker or another deployment"):
        opened(tmp_path, domain=other_domain)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close_now()
    (file,) = tmp_path.glob("*.db")
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(SignatureLogUnusable, match="version 99"):
        opened(tmp_path)
    file.write_bytes(b"no database at all" * 100)
    with pytest.raises(SignatureLogUnusable, match="cannot be used"):
        opened(tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(SignatureLogUnusable, match="cannot be used"):
        opened(blocked)


async def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    opened(tmp_path / "new").close_now()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


async def test_the_table_itself_refuses_changes(tmp_path: Path) -> None:
    log = opened(tmp_path)
    await log.record(signed())
    await log.close()
    (file,) = tmp_path.glob("*.db")
    with contextlib.closing(sqlite3.connect(file)) as db:
        for statement in ("UPDATE result SET digest = zeroblob(32)", "DELETE FROM result"):
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(statement)


async def test_a_full_disk_fails_the_job_and_signs_nothing(tmp_path: Path) -> None:
    log: SignatureFile = opened(tmp_path)
    await log.record(signed(b"first", 1))
    (pages,) = log._db.execute("PRAGMA page_count").fetchone()
    log._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(WorkerFailed, match="full"):
        await log.record(signed(b"x" * 100_000, 2))
    assert await log.recorded(WORKER, a_key(2)) is None
    assert await log.recorded(WORKER, a_key(1)) == a_result(b"first", 1)
    log._db.execute("PRAGMA max_page_count = 100000")
    assert await log.record(signed(b"y", 2)) == a_result(b"y", 2)
    await log.close()


async def test_old_outputs_go_and_the_word_stays(tmp_path: Path) -> None:
    log = opened(tmp_path)
    await log.record(signed())
    assert await log.counts() == (1, 3)
    assert await log.drop_outputs(before_s=0) == 0
    assert await log.drop_outputs(before_s=2**40) == 1
    assert await log.counts() == (0, 0)
    assert isinstance(await log.recorded(WORKER, a_key()), Spoken)
    assert not await log.add_asker(OTHER, a_key())
    assert await log.answer_to(ONE, a_key()) is None
    await log.close()


async def test_a_manifest_that_is_no_json_is_not_signed(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for manifest in ({"speed": float("nan")}, {"bytes": b"x"}):
        with pytest.raises((ValueError, TypeError)):
            await log.record(Signed(replace(a_result(), manifest=manifest), CONTENT, (ONE,)))
    assert await log.recorded(WORKER, a_key()) is None
    await log.close()


class Histories(RuleBasedStateMachine):
    """Against a dictionary; the log is closed and opened at any time."""

    numbers = st.integers(1, 3)
    outputs = st.sampled_from([b"a", b"b"])
    askers = st.sampled_from([ONE, OTHER, replace(ONE, attempt=2)])

    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.log = opened(Path(self.folder.name))
        self.first: dict[int, bytes] = {}
        self.kept: dict[int, set[Asker]] = {}

    def do(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    @rule(number=numbers, output=outputs, asker=askers)
    def record(self, number: int, output: bytes, asker: Asker) -> None:
        said = self.do(self.log.record(signed(output, number, asker)))
        first = self.first.setdefault(number, output)
        assert said.digest == digest_of(first)
        if number in self.kept or output == first:
            assert said == a_result(first, number)
            self.kept.setdefault(number, set()).add(asker)
        else:
            assert isinstance(said, Spoken)

    @rule(number=numbers, asker=askers)
    def join(self, number: int, asker: Asker) -> None:
        assert self.do(self.log.add_asker(asker, a_key(number))) == (number in self.kept)
        if number in self.kept:
            self.kept[number].add(asker)

    @rule(number=numbers, asker=askers)
    def acknowledge(self, number: int, asker: Asker) -> None:
        self.do(self.log.acknowledge(asker, a_key(number)))
        if asker in self.kept.get(number, ()):
            self.kept[number].discard(asker)
            if not self.kept[number]:
                del self.kept[number]

    @rule()
    def restart(self) -> None:
        self.do(self.log.close())
        self.log = opened(Path(self.folder.name))

    @invariant()
    def says_what_it_said(self) -> None:
        for number in range(1, 4):
            known = self.do(self.log.recorded(WORKER, a_key(number)))
            assert (None if known is None else known.digest) == (
                digest_of(self.first[number]) if number in self.first else None
            )
            assert isinstance(known, SignedResult) == (number in self.kept)
            for asker in (ONE, OTHER):
                answer = self.do(self.log.answer_to(asker, a_key(number)))
                assert (answer is not None) == (asker in self.kept.get(number, ()))

    def teardown(self) -> None:
        self.do(self.log.close())
        self.loop.close()
        self.folder.cleanup()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
