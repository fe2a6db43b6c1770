"""Hostile workers, byte by byte: whatever comes over the socket, the operator has a result that
holds, or a failure; and no memory goes to it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.database import Pool
from indexer.types import Hash32
from inferd.protocol.typed_data import DigestSigner
from inferd.protocol.worker_api import SignedHeartbeat, as_hex, encode
from inferd.protocol.worker_api_signing import (
    BadHeartbeat,
    body_hash,
    checked_heartbeat,
    heartbeat_digest,
)
from inferd.workers.job import Job, JobError, SignedResult
from inferd.workers.remote import worker as remote_module
from inferd.workers.remote.answers import job_id
from inferd.workers.remote.clocks import SkewFilter
from inferd.workers.remote.membership import Heard, Terms, membership
from inferd.workers.remote.worker import RemoteWorker
from inferd.workers.retries import RetryBudget
from tests.workers.remote.scripted import (
    API_DOMAIN,
    ScriptedWorker,
    listening,
    remote,
    signed,
)
from tests.workers.remote.test_answers import DONE, JOB, JSON, KEY, WORKER, holds
from tests.workers.remote.test_membership import BEAT, ROW
from tests.workers.remote.test_roster import QUICK, Office
from tests.workers.support import a_job, until

GOOD = encode(signed(job_id(JOB), b"an answer", KEY))
OTHERS = encode(signed(job_id(a_job(2)), b"an answer", KEY))
_MOST_BYTES = 10_000
_TIMEOUT_S = 0.4


@dataclass
class RawWorker:
    """Says the next pieces on each request, as long as the other end takes them, and then hangs
    up."""

    pieces: Callable[[], Iterator[bytes]] = lambda: iter(())
    targets: list[bytes] = field(default_factory=list)
    hung_up: int = 0
    stays: bool = False
    """Leaves the connection open after the last piece."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.targets.append(head.split(b" ")[1])
                length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                for piece in self.pieces():
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if not self.stays:
                    break
        self.hung_up += 1
        writer.close()


@asynccontextmanager
async def raw_worker() -> AsyncIterator[tuple[RawWorker, RemoteWorker]]:
    worker = RawWorker()
    server = await asyncio.start_server(worker.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    scripted = ScriptedWorker(KEY, url=url)
    try:
        async with remote(
            scripted,
            timeout_s=_TIMEOUT_S,
            max_output_bytes=_MOST_BYTES,
            budget=RetryBudget(reserve=0.0, share=0.0),
        ) as seen:
            yield worker, seen
    finally:
        server.close()
        await until(lambda: worker.hung_up == len(worker.targets) or worker.stays)


async def outcome(worker: RemoteWorker, job: Job = JOB) -> SignedResult | None:
    """None where there is no answer."""
    try:
        return await worker.compute(job)
    except JobError as error:
        assert len(error.reason) < 200
        return None


def head(*lines: bytes, status: bytes = b"200 OK") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, *lines, b"", b""])


def whole(body: bytes, *lines: bytes, status: bytes = b"200 OK") -> bytes:
    return head(b"Content-Length: %d" % len(body), *lines, status=status) + body


_BOMB = gzip.compress(bytes(10_000_000))
_LONG = b"x" * 60_000
_CHUNKED = head(b"Transfer-Encoding: chunked")
_FOR_EVER: dict[str, tuple[bytes, bytes]] = {
    "a status line": (b"HTTP/1.1 200 ", _LONG),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 5_000),
    "one header": (b"HTTP/1.1 200 OK\r\nA: ", _LONG),
    "cookies": (b"HTTP/1.1 200 OK\r\n", b"Set-Cookie: a=b\r\n" * 3_000),
    "continue": (b"", head(status=b"100 Continue") * 1_000),
    "early hints": (b"", head(b"Link: </a>", status=b"103 Early Hints") * 1_000),
    "a body without a length": (head(), _LONG),
    "a body longer than its length": (head(b"Content-Length: 5"), _LONG),
    "a body of a terabyte": (head(b"Content-Length: 1000000000000"), _LONG),
    "small chunks": (_CHUNKED, b"1\r\nx\r\n" * 5_000),
    "a chunk of a terabyte": (_CHUNKED + b"e8d4a51000\r\n", _LONG),
    "a chunk's extension": (_CHUNKED + b"1;", _LONG),
    "trailers": (_CHUNKED + b"0\r\n", b"A: b\r\n" * 5_000),
    "spaces before JSON": (_CHUNKED, b"ea60\r\n" + b" " * 60_000 + b"\r\n"),
    "whole answers": (b"", whole(GOOD) * 100),
    "zipped": (head(b"Content-Encoding: gzip"), _BOMB),
    "zipped, not said": (head(), _BOMB),
}


async def test_what_never_ends_is_cut_and_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "_POLL_S", 0.0)  # the worker is not asked to wait
    async with raw_worker() as (raw, worker):

        async def attack() -> None:
            for first, rest in _FOR_EVER.values():
                raw.pieces = lambda first=first, rest=rest: iter((first, *repeat(rest, 10_000)))
                asked = len(raw.targets)
                result = await outcome(worker)
                assert result is None or holds(result)
                assert len(raw.targets) == asked + 1
                await until(lambda: raw.hung_up == len(raw.targets))

        await attack()
        gc.collect()
        tracemalloc.start()
        await attack()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        await attack()
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # Buffers of a socket on both ends and one answer; nothing of it stays.
    assert peak - before < 3_000_000
    assert after - before < 50_000


async def test_a_redirect_is_not_followed() -> None:
    async with raw_worker() as (raw, worker):
        for status in (b"301 Moved", b"302 Found", b"307 Temporary Redirect", b"308 Permanent"):
            raw.pieces = lambda status=status: iter(
                [whole(GOOD, b"Location: /elsewhere", status=status)]
            )
            assert await outcome(worker) is None
    assert set(raw.targets) == {b"/v1/jobs"}


async def test_an_answer_that_nobody_asked_for_is_not_the_next_requests() -> None:
    """Two answers to one call, on a connection that stays open: the second must not be believed
    to be the answer to what is asked next."""
    second = a_job(2, max_tokens=10)
    async with raw_worker() as (raw, worker):
        raw.stays = True
        raw.pieces = lambda: iter([whole(GOOD) + whole(GOOD)])
        assert await outcome(worker, JOB) is not None
        assert await outcome(worker, second) is None
        raw.pieces = lambda: iter([whole(GOOD) + whole(OTHERS)])
        assert await outcome(worker, JOB) is not None
        stale = await outcome(worker, second)
        assert stale is None or stale.key == second.key, "it is right, if early"


_BODIES = st.one_of(
    st.sampled_from(
        [
            GOOD,
            OTHERS,
            GOOD + GOOD,
            GOOD.replace(b'"digest"', b'"digest":"0x00","digest"', 1),
            GOOD[:-1] + b',"state":"running"}',
            GOOD.replace(b'"compute_ms":5', b'"compute_ms":NaN'),
            GOOD.replace(b'"compute_ms":5', b'"compute_ms":1e999'),
            GOOD.replace(b'"compute_ms":5', b'"compute_ms":' + b"9" * 4_000),
            GOOD.replace(b'{"model"', b'{"completion_tokens":Infinity,"model"'),
            GOOD.replace(b'{"model"', b'{"a":' + b"[" * 3_000 + b"]" * 3_000 + b',"model"'),
            msgspec.json.encode({**DONE, "output": "A" * 100_000}),
            gzip.compress(GOOD),
            b'{"code":"busy","message":"' + b"x" * 9_000 + b'"}',
        ]
    ),
    st.binary(max_size=60),
    st.integers(0, len(GOOD)).map(lambda cut: GOOD[:cut]),
)
_STATUS = st.sampled_from(
    [
        b"200 OK",
        b"202 x",
        b"204 x",
        b"206 x",
        b"304 x",
        b"404 x",
        b"429 x",
        b"503 x",
        b"999 x",
        b"0",
    ]
)
_LINES = st.lists(
    st.sampled_from(
        [
            b"Content-Length: 0",
            b"Content-Length: -1",
            b"Content-Length: 99999999999999999999",
            b"Content-Length: 7, 7",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip, chunked",
            b"Content-Encoding: gzip",
            b"Content-Encoding: br",
            b"Content-Type: text/html; charset=\xff",
            b"Connection: keep-alive",
            b"Retry-After: -1e999",
            b"Retry-After: " + b"9" * 400,
            b"Date: Mon, 01 Jan 0001 00:00:00 +2359",
            b"Location: http://[::1",
            b"Set-Cookie: \x00",
            b": none",
            b"A" * 9_000 + b": b",
        ]
    ),
    max_size=3,
)


def test_any_bytes_give_a_result_that_holds_or_none() -> None:
    with asyncio.Runner() as runner:
        context = raw_worker()
        raw, worker = runner.run(context.__aenter__())

        @settings(max_examples=120)
        @given(_STATUS, _LINES, _BODIES, st.booleans())
        def attack(status: bytes, lines: list[bytes], body: bytes, measured: bool) -> None:
            said = whole(body, *lines, status=status) if measured else head(*lines, status=status)
            raw.pieces = lambda: iter([said, b"" if measured else body])
            result = runner.run(outcome(worker))
            assert result is None or holds(result)

        attack()
        runner.run(context.__aexit__(None, None, None))


_NONCE = Hash32(b"\x07" * 32)
_BEAT = {**msgspec.json.decode(encode(BEAT)), "nonce": as_hex(_NONCE)}
_NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([0, -1, 2**31, 2**32 - 1, 2**53, 2**64, 10**400])
)
_MODELS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["a", "b", "c", "a" * 200, "\x1b[2J", "\0"])
            | st.text(max_size=9),
            "loaded": st.booleans(),
            "load_ms": _NUMBERS,
            "prior_ms": _NUMBERS,
            "tokens_per_s": _NUMBERS,
        }
    ),
    max_size=70,
)
_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "at_ms": _NUMBERS,
        "slots": _NUMBERS,
        "running": _NUMBERS,
        "free_memory_mb": _NUMBERS,
        "models": _MODELS | JSON,
        "version": st.text(max_size=110) | JSON,
        "stopping": JSON,
        "later": JSON,
    },
)


@settings(max_examples=200)
@given(_CHANGES)
def test_a_heartbeat_of_any_numbers_offers_no_more_than_the_registry(
    changes: dict[str, Any],
) -> None:
    """Well signed by the worker's own key, as a liar's is."""
    body = json.dumps({**_BEAT, **changes}).encode()
    at_ms = changes.get("at_ms", 0)
    signed_ms = int(at_ms) if 0 <= at_ms < 2**64 else 0  # others have no form to be signed in
    digest = heartbeat_digest(API_DOMAIN, _NONCE, signed_ms, body_hash(body))
    told = SignedHeartbeat(body, as_hex(DigestSigner(KEY).sign(digest)))
    try:
        beat = checked_heartbeat(told, nonce=_NONCE, worker=WORKER, domain=API_DOMAIN)
    except BadHeartbeat:
        return
    skew = SkewFilter()
    skew.add(sent_ms=0.0, received_ms=10.0, theirs_ms=float(beat.at_ms))
    found = membership(ROW, Heard(beat, 0.0, skew.offset), Terms(), None)
    offered = found.announced
    assert 0 <= offered.slots <= ROW.slots
    assert offered.memory_mb == ROW.memory_mb
    assert set(offered.models) <= ROW.models
    for one in offered.models.values():
        assert 1.0 <= one.prior_ms <= 3_600_000.0
        assert 0.0 <= one.load_ms <= 3_600_000.0
        assert 0.0 <= one.tokens_per_s <= 1e12
    assert found.bar is not None or offered.slots >= 1
    assert len(found.why_not or "") < 300


_BEATS: list[tuple[int, bytes, dict[str, str]]] = [
    (200, b"", {}),
    (200, b"[" * 100_000, {}),
    (200, b'{"heartbeat":"AAAA","signature":"0x' + b"0" * 128 + b'"}', {}),
    (200, b" " * 300_000, {}),
    (500, b"\xff" * 1_000, {}),
    (401, b"{}", {"Date": "Mon, 01 Jan 0001 00:00:00 +2359"}),
    (401, b"{}", {"Date": "Fri, 31 Dec 9999 23:59:59 -2359"}),
    (401, b"{}", {"Date": "Mon, 99 Foo 2020 99:99:99 +9999"}),
    (401, b"{}", {"Date": "1"}),
    (302, b"", {"Location": "/v1/health"}),
]


@pytest.mark.parametrize(("status", "body", "headers"), _BEATS)
async def test_no_heartbeat_ends_the_asking_for_heartbeats(
    pool: Pool, status: int, body: bytes, headers: dict[str, str]
) -> None:
    async def nasty(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=headers)

    scripted = ScriptedWorker(KEY)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(listening(scripted))
        office = Office(pool, stack)
        await office.open(QUICK)
        await office.register(scripted.address, scripted.url)
        scripted.beat_fault = nasty
        await until(lambda: scripted.beats >= 2)
        assert not await office.available(scripted.address)
        beats, scripted.beat_fault = scripted.beats, None
        await until(lambda: scripted.beats > beats)
        await office.until_bar(scripted.address, None)
        assert await office.available(scripted.address)
