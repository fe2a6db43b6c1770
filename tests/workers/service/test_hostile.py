"""A hostile operator, and strangers: nothing crashes, nothing grows, nothing is computed.

The agent is a real one on loopback. What it must still do after each attack is to answer an honest
operator, and its back end must not have been asked.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from eth_keys.datatypes import PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexer.types import Address, Hash32
from inferd.protocol.worker_api import (
    JOBS,
    SIGN,
    ErrorBody,
    JobDone,
    SignedHeartbeat,
    SignRequest,
    decode,
    encode,
)
from inferd.protocol.worker_api_signing import checked_heartbeat, parse_authorization
from inferd.workers.service import app as app_module
from inferd.workers.service.agent import Agent
from tests.workers.service.support import (
    API_DOMAIN,
    WORKER,
    Operator,
    a_request,
    an_agent,
    read,
)
from tests.workers.support import Scripted, until

_SMALL_BODY = 16_384
_HEADER = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[tuple[Agent, Operator, Scripted]]:
    backend = Scripted()
    async with an_agent(
        tmp_path,
        backend,
        max_body_bytes=_SMALL_BODY,
        body_timeout_s=0.5,
        rate_per_s=100_000,
        rate_burst=100_000,
        max_connections=20,
    ) as (running, operator):
        yield running, operator, backend


async def is_unharmed(operator: Operator, backend: Scripted) -> None:
    assert backend.calls == []
    job = a_request(999_999)
    assert isinstance(await operator.ask(job), JobDone)
    await operator.drop(job.id)
    backend.calls.clear()


async def raw(url: str, sent: bytes) -> bytes:
    """What comes back for these bytes, until the agent hangs up or is silent for a moment."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        await writer.drain()
        async with asyncio.timeout(10):
            return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        return b""
    finally:
        writer.close()


async def test_the_heartbeat_answers_one_request(
    scene: tuple[Agent, Operator, Scripted],
) -> None:
    _, operator, backend = scene
    header = operator.header("GET", "/v1/health", b"")
    status, body, _ = await operator.send("GET", "/v1/health", header=header)
    assert status == 200
    beat = checked_heartbeat(
        decode(body, SignedHeartbeat),
        nonce=parse_authorization(header).nonce,
        worker=WORKER,
        domain=API_DOMAIN,
    )
    assert (beat.slots, beat.running, beat.queued, beat.stopping) == (2, 0, 0, False)
    assert beat.free_memory_mb > 0
    assert [(model.name, model.loaded, model.tokens_per_s) for model in beat.models] == [
        (backend.name, True, 50.0)
    ]


async def test_every_wrong_signature_is_refused(scene: tuple[Agent, Operator, Scripted]) -> None:
    agent, operator, backend = scene
    stranger = Operator(agent.url, PrivateKey(b"\x66" * 32), operator.session)
    body = encode(a_request())
    good = operator.header("POST", JOBS, body)
    wrong = [
        "",
        "Bearer x",
        good[:-1],
        good + "0",
        stranger.header("POST", JOBS, body),
        stranger.header("POST", JOBS, body).replace(stranger.address.hex(), operator.address.hex()),
        operator.header("POST", SIGN, body),
        operator.header("GET", JOBS, body),
        operator.header("POST", JOBS, body + b" "),
        operator.header("POST", JOBS, body, expires_in_s=-60),
        operator.header("POST", JOBS, body, expires_in_s=10_000),
        operator.header("POST", JOBS, body, worker=Address(bytes(20))),
        operator.header("POST", JOBS, body, domain=Hash32(bytes(32))),
    ]
    for header in wrong:
        answer = await operator.send("POST", JOBS, body, header=header)
        assert (answer[0], read(answer).code) == (401, "unauthorised"), header  # type: ignore[union-attr]
    await is_unharmed(operator, backend)


async def test_a_request_is_heard_once(scene: tuple[Agent, Operator, Scripted]) -> None:
    _, operator, backend = scene
    for method, target, body in (
        ("POST", JOBS, encode(a_request(5, model="none"))),
        ("GET", "/v1/health", b""),
        ("DELETE", a_request(5).id.path, b""),
        ("POST", SIGN, encode(SignRequest(b""))),
    ):
        header = operator.header(method, target, body)
        assert (await operator.send(method, target, body, header=header))[0] != 401
        replayed = await operator.send(method, target, body, header=header)
        assert (replayed[0], read(replayed).message) == (  # type: ignore[union-attr]
            401,
            "the request's nonce was used before",
        )
    await is_unharmed(operator, backend)


async def test_a_stranger_reaches_no_path(scene: tuple[Agent, Operator, Scripted]) -> None:
    _, operator, _ = scene
    assert operator.session is not None
    for target in ("/", "/v1/health", "/metrics", JOBS, SIGN, "/v2/x", "//", "/v1/jobs/../x"):
        for method in ("GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "TRACE"):
            async with operator.session.request(method, operator.url + target) as response:
                assert response.status == 401, (method, target)
    for target in ("/metrics", "/", "/v2/jobs", "/v1/jobs/", "/v1/jobs/x", "/v1/health?x=1"):
        answer = await operator.send("GET", target)
        assert (answer[0], read(answer).code) == (400, "bad_request"), target  # type: ignore[union-attr]


_junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


_good = json.loads(encode(a_request()))
_mangled = st.dictionaries(st.sampled_from([*_good, "later"]), _junk, min_size=1, max_size=4).map(
    lambda but: json.dumps({**_good, **but}).encode()
)
_paths = st.sampled_from([JOBS, SIGN, "/v1/health", a_request().id.path, "/v1/jobs/9-9-9", "/x"])
_attacks = st.tuples(
    st.sampled_from(["GET", "POST", "DELETE", "PUT", "PATCH"]),
    st.one_of(
        _paths,
        st.tuples(_paths, st.text("abcxyz=&?0123456789", max_size=20)).map("?".join),
        st.text("abc/.-0123456789", max_size=60).map("/v1/jobs/a".__add__),
    ),
    st.one_of(st.binary(max_size=200), _mangled, _mangled.map(lambda body: body[:-1])),
)


def test_signed_rubbish_is_refused(tmp_path: Path) -> None:
    """Signed as it must be, so that it is read: every field of any type, any bytes, any path."""
    backend = Scripted()

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(_attacks)
    def attack(what: tuple[str, str, bytes]) -> None:
        answer = runner.run(operator.send(*what))
        assert answer[0] != 500 or b"unexpected" not in answer[1]
        if answer[0] not in {200, 202}:
            assert isinstance(read(answer), ErrorBody)
        # Whatever passed for a job was one, to the letter.
        for job in backend.calls:
            assert job.model == backend.name
            assert 0 <= job.request_id < 2**63

    with asyncio.Runner() as runner:
        context = an_agent(
            tmp_path, backend, rate_per_s=1e6, rate_burst=1_000_000, request_window_s=60
        )
        _, operator = runner.run(context.__aenter__())
        attack()
        backend.calls.clear()
        runner.run(is_unharmed(operator, backend))
        runner.run(context.__aexit__(None, None, None))


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nAuthorization: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"H%d: x\r\n" % n for n in range(10_000)) + b"\r\n",
        _HEADER + b"Content-Length: -5\r\n\r\n",
        _HEADER + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        _HEADER + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n",
        b"POST /v1/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused(
    scene: tuple[Agent, Operator, Scripted], sent: bytes
) -> None:
    agent, operator, backend = scene
    answer = await raw(agent.url, sent)
    assert answer == b"" or answer.split()[1] in {b"400", b"401"}
    await is_unharmed(operator, backend)


async def test_no_body_is_read_of_who_is_not_known(
    scene: tuple[Agent, Operator, Scripted],
) -> None:
    agent, operator, backend = scene
    sent = _HEADER + b"Content-Length: 10000000000\r\n\r\n" + b"x" * 1000
    assert (await raw(agent.url, sent)).split()[1] == b"401"
    await is_unharmed(operator, backend)


async def test_huge_and_packed_bodies_are_refused(
    scene: tuple[Agent, Operator, Scripted],
) -> None:
    agent, operator, backend = scene
    header = operator.header("POST", JOBS, b"x").encode()
    head = b"Content-Length: 10000000000\r\nAuthorization: %s\r\n\r\n" % header
    assert (await raw(agent.url, _HEADER + head)).split()[1] == b"413", "before a byte has come"
    body = encode(a_request(1, b"x" * _SMALL_BODY))
    answer = await operator.send("POST", JOBS, body)
    assert (answer[0], read(answer).code) == (413, "too_large")  # type: ignore[union-attr]

    async def in_pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 1000):
            yield body[at : at + 1000]

    assert operator.session is not None
    headers = {"Authorization": operator.header("POST", JOBS, body)}
    async with operator.session.post(
        operator.url + JOBS, data=in_pieces(), headers=headers
    ) as response:
        assert response.status == 413
    bomb = gzip.compress(b" " * 10_000_000)
    headers = {"Authorization": operator.header("POST", JOBS, bomb), "Content-Encoding": "gzip"}
    async with operator.session.post(operator.url + JOBS, data=bomb, headers=headers) as response:
        assert response.status == 400, "it is read as the bytes that came"
    await is_unharmed(operator, backend)


async def test_a_body_that_drips_is_cut(scene: tuple[Agent, Operator, Scripted]) -> None:
    agent, operator, backend = scene
    body = encode(a_request())
    header = operator.header("POST", JOBS, body).encode()
    head = b"Content-Length: %d\r\nAuthorization: %s\r\n\r\n" % (len(body), header)
    answer = await raw(agent.url, _HEADER + head + body[:10])
    assert answer.split()[1] == b"400"
    await is_unharmed(operator, backend)


async def test_an_answer_that_is_not_read_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "_LEAST_BYTES_PER_S", 10**9)

    async def much(job: Any) -> bytes:
        return bytes(16_000_000)

    async with an_agent(tmp_path, Scripted(much), body_timeout_s=0.5) as (agent, operator):
        host, port = agent.url.removeprefix("http://").split(":")
        body = encode(a_request())
        header = operator.header("POST", JOBS, body).encode()
        reader, writer = await asyncio.open_connection(host, int(port))
        head = b"Content-Length: %d\r\nAuthorization: %s\r\n\r\n" % (len(body), header)
        writer.write(_HEADER + head + body)
        await reader.readuntil(b"\r\n\r\n")
        transport: Any = writer.transport
        transport.pause_reading()
        stuck = len(asyncio.all_tasks())
        await until(lambda: len(asyncio.all_tasks()) < stuck, 30)
        writer.close()
        monkeypatch.undo()
        assert isinstance(await operator.ask(a_request()), JobDone), "and it is still there"


async def test_headers_that_drip_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "_KEEPALIVE_S", 0.5)
    async with an_agent(tmp_path, Scripted()) as (agent, _):
        assert await raw(agent.url, b"GET /v1/health HTTP/1.1\r\nAuth") == b""


async def test_one_connection_too_many_is_closed(
    scene: tuple[Agent, Operator, Scripted],
) -> None:
    agent, operator, backend = scene
    host, port = agent.url.removeprefix("http://").split(":")
    idle = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
    with pytest.raises(aiohttp.ClientError):
        await operator.send("GET", "/v1/health")
    for _, writer in idle:
        writer.close()
    await until(lambda: all(writer.is_closing() for _, writer in idle))

    async def answers() -> bool:
        try:
            return (await operator.send("GET", "/v1/health"))[0] == 200
        except aiohttp.ClientError:
            return False

    async with asyncio.timeout(20):
        while not await answers():
            await asyncio.sleep(0.05)
    await is_unharmed(operator, backend)


async def test_who_asks_too_often_waits(tmp_path: Path) -> None:
    backend = Scripted()
    async with an_agent(tmp_path, backend, rate_per_s=0.001, rate_burst=3) as (_, operator):
        for _ in range(3):
            assert (await operator.send("GET", "/v1/health"))[0] == 200
        answer = await operator.send("POST", JOBS, encode(a_request()))
        assert (answer[0], read(answer).code) == (429, "rate")  # type: ignore[union-attr]
        assert int(answer[2]["Retry-After"]) > 1
        assert backend.calls == []


async def test_hang_ups_leave_nothing_behind(scene: tuple[Agent, Operator, Scripted]) -> None:
    """Operators vanish while they wait: the jobs go on, the tasks of their requests end."""
    agent, operator, backend = scene
    before = len(asyncio.all_tasks())
    go = asyncio.Event()

    async def wait(job: Any) -> bytes:
        await go.wait()
        return b"done"

    backend.answer = wait
    asking = [asyncio.create_task(operator.ask(a_request())) for _ in range(10)]
    await until(lambda: agent.jobs.running == 1)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    # The computation is one; those who waited had two each.
    await until(lambda: len(asyncio.all_tasks()) <= before + 3)
    assert agent.jobs.running == 1
    go.set()
    assert isinstance(await operator.look(a_request().id, 10_000), JobDone)
    backend.calls.clear()


async def test_memory_stays_flat_under_attack(scene: tuple[Agent, Operator, Scripted]) -> None:
    _, operator, backend = scene

    async def attack(rounds: int) -> None:
        for number in range(rounds):
            await operator.send("POST", JOBS, encode(a_request(number, b"x" * 10_000, model="no")))
            await operator.send("POST", JOBS, b"{" * 5_000)
            await operator.send("GET", a_request(number).id.path, header="Inferd x")

    await attack(10)
    gc.collect()
    tracemalloc.start()
    await attack(40)
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A failure's few words and a nonce are kept for a while: some 3 kB a request, never an input.
    assert grown < 40 * 6_000
    await is_unharmed(operator, backend)
