"""A hostile operator that does whatever it likes, in any order, to a real agent that also dies.

The back end never answers the same twice, so a second computation that got out would be a second
digest. What must hold after each step: one digest for each request, whoever asked; nothing signed
but what was computed; and neither disk nor slots taken by what was refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from eth_keys.datatypes import PrivateKey
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.worker_api import (
    JOBS,
    SIGN,
    ErrorBody,
    JobDone,
    JobId,
    JobRequest,
    SignRequest,
    encode,
    signed_item,
)
from inferd.workers.job import Job
from inferd.workers.service.log import MOST_ASKERS
from tests.workers.service.support import (
    RESULTS_DOMAIN,
    WORKER,
    Operator,
    a_request,
    an_agent,
    read,
)
from tests.workers.support import Scripted

_NUMBERS = st.integers(1, 3)
_ATTEMPTS = st.integers(1, 3)
_CONTENTS = st.sampled_from([b"hello", b"other"])
_WHO = st.sampled_from([0, 1])
_WAITS_MS = st.sampled_from([0, 5_000])
_SLOTS, _QUEUE = 1, 1
_JUNK = st.sampled_from(
    [
        b"",
        b"{}",
        b"[" * 5_000,
        b'{"request_id":"1"}',
        encode(a_request(1)).replace(b'"attempt":1', b'"attempt":NaN'),
        encode(a_request(1)).replace(b'"attempt":1', b'"attempt":-1'),
        encode(a_request(1, model="none")),
        encode(a_request(9, deadline_in_s=-60)),
        encode(a_request(9, model="x" * 200)),
    ]
)


async def never_the_same(job: Job) -> bytes:
    await asyncio.sleep(0)
    return secrets.token_bytes(16)


class HostileOperators(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.operators = [Operator("", PrivateKey(bytes([number]) * 32)) for number in (0x41, 0x42)]
        self.digests: dict[int, bytes] = {}
        self._start()

    def _start(self) -> None:
        context = an_agent(
            Path(self.folder.name),
            Scripted(never_the_same),
            *self.operators,
            slots=_SLOTS,
            queue=_QUEUE,
            rate_per_s=1e6,
            rate_burst=1_000_000,
        )
        self.agent, _ = self.runner.run(context.__aenter__())
        self.context = context

    def _stop(self) -> None:
        self.runner.run(self.context.__aexit__(None, None, None))

    def teardown(self) -> None:
        if hasattr(self, "context"):
            self._stop()
            self.runner.close()
            self.folder.cleanup()

    def _takes(self, job: JobId, answer: Any) -> None:
        if isinstance(answer, JobDone):
            item, _ = signed_item(answer, job, WORKER, RESULTS_DOMAIN)
            assert self.digests.setdefault(job.request_id, item.digest) == item.digest

    def _stored(self) -> dict[str, int]:
        (file,) = Path(self.folder.name).glob("worker-*/*.db")
        with contextlib.closing(sqlite3.connect(file)) as db:
            return {
                table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("result", "output", "asker")
            }

    def _stored_at_rest(self) -> dict[str, int]:
        """When what was asked before is computed: it stores something of its own."""

        async def rest() -> None:
            while self.agent.jobs.running or self.agent.jobs.queued:
                await asyncio.sleep(0.001)

        self.runner.run(rest())
        return self._stored()

    def _send(self, who: int, method: str, target: str, body: bytes = b"", **how: Any) -> Any:
        return self.runner.run(self.operators[who].send(method, target, body, **how))

    @rule(who=_WHO, number=_NUMBERS, attempt=_ATTEMPTS, content=_CONTENTS, wait_ms=_WAITS_MS)
    def asks(self, who: int, number: int, attempt: int, content: bytes, wait_ms: int) -> None:
        job = a_request(number, content, attempt=attempt, wait_ms=wait_ms)
        self._takes(job.id, self.runner.run(self.operators[who].ask(job)))

    @rule(who=_WHO, number=_NUMBERS, attempt=_ATTEMPTS, wait_ms=_WAITS_MS)
    def looks(self, who: int, number: int, attempt: int, wait_ms: int) -> None:
        job = a_request(number, attempt=attempt).id
        self._takes(job, self.runner.run(self.operators[who].look(job, wait_ms)))

    @rule(who=_WHO, number=_NUMBERS, attempt=_ATTEMPTS)
    def drops(self, who: int, number: int, attempt: int) -> None:
        assert (
            self.runner.run(self.operators[who].drop(a_request(number, attempt=attempt).id)) == 200
        )

    @rule(number=_NUMBERS)
    def asks_all_at_once(self, number: int) -> None:
        """And both operators other things of one request."""

        async def ask_all() -> list[tuple[JobRequest, Any]]:
            jobs = [
                a_request(number, content, attempt=attempt)
                for content in (b"hello", b"other")
                for attempt in (1, 2)
            ]
            asked = [(job, operator.ask(job)) for job in jobs for operator in self.operators]
            answers = await asyncio.gather(*(asking for _, asking in asked))
            return [(job, answer) for (job, _), answer in zip(asked, answers, strict=True)]

        for job, answer in self.runner.run(ask_all()):
            self._takes(job.id, answer)

    @rule(number=_NUMBERS)
    def asks_in_many_attempts(self, number: int) -> None:
        async def flood() -> None:
            for attempt in range(10, 10 + MOST_ASKERS + 6):
                answer = await self.operators[0].ask(a_request(number, attempt=attempt, wait_ms=0))
                self._takes(a_request(number, attempt=attempt).id, answer)

        self.runner.run(flood())

    @rule(who=_WHO, number=_NUMBERS, known=st.booleans())
    def wants_a_signature(self, who: int, number: int, known: bool) -> None:
        said = self.digests.get(number)
        digest = said if known and said is not None else digest_of(b"what it never said")
        job = a_request(number).id
        items = pack_items([ResultItem(number, job.commitment, digest)])  # type: ignore[arg-type]
        status = self._send(who, "POST", SIGN, encode(SignRequest(items)))[0]
        assert status == (200 if digest == said else 409)

    @rule(who=_WHO, junk=_JUNK, path=st.sampled_from([JOBS, SIGN, "/v1/health", "/"]))
    def sends_junk(self, who: int, junk: bytes, path: str) -> None:
        before = self._stored_at_rest()
        answer = self._send(who, "POST", path, junk)
        assert answer[0] >= 400
        assert isinstance(read(answer), ErrorBody)
        assert self._stored() == before

    @rule(who=_WHO, how=st.sampled_from(["replayed", "expired", "stranger", "other body"]))
    def is_not_believed(self, who: int, how: str) -> None:
        operator, body = self.operators[who], encode(a_request(1))
        header = operator.header("POST", JOBS, body)
        if how == "replayed":
            header = operator.header("GET", "/v1/health", b"")
            assert self._send(who, "GET", "/v1/health", header=header)[0] == 200
            assert self._send(who, "GET", "/v1/health", header=header)[0] == 401
            return
        if how == "expired":
            header = operator.header("POST", JOBS, body, expires_in_s=-100)
        elif how == "stranger":
            header = Operator("", PrivateKey(b"\x66" * 32)).header("POST", JOBS, body)
        else:
            body += b" "
        before = self._stored_at_rest()
        assert self._send(who, "POST", JOBS, body, header=header)[0] == 401
        assert self._stored() == before

    @rule()
    def is_started_again(self) -> None:
        self._stop()
        self._start()

    @invariant()
    def limits_hold(self) -> None:
        if not hasattr(self, "context"):
            return
        jobs = self.agent.jobs
        assert jobs.running <= _SLOTS
        assert jobs.running + jobs.queued <= _SLOTS + _QUEUE
        stored = self._stored()
        assert stored["result"] <= 3, "a row a request, of three that there are"
        assert stored["output"] <= stored["result"]
        assert stored["asker"] <= MOST_ASKERS * stored["output"]

    @invariant()
    def its_word_is_on_the_disk(self) -> None:
        if not hasattr(self, "context"):
            return
        (file,) = Path(self.folder.name).glob("worker-*/*.db")
        with contextlib.closing(sqlite3.connect(file)) as db:
            rows = dict(db.execute("SELECT request_id, digest FROM result").fetchall())
        for number, digest in self.digests.items():
            assert rows[number] == digest


TestHostileOperators = HostileOperators.TestCase
TestHostileOperators.settings = settings(max_examples=12, stateful_step_count=25)
