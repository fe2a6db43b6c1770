"""The signed exchange through a real broker: the same answers as over HTTP, and no more trust."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from base64 import b64encode
from datetime import datetime
from pathlib import Path

import pytest
from celery.worker import state
from redis.exceptions import NoPermissionError

from indexer.types import Address, Hash32
from inferd.net.guarded import Limits, Malformed, TooLarge, TooSlow, Unreachable
from inferd.protocol.worker_api import JOBS, encode
from inferd.workers.job import Job, RefusedToSign, WorkerBusy, WorkerFailed
from inferd.workers.pull import names
from inferd.workers.pull.apps import asking, queue_of
from inferd.workers.pull.broker import Broker, BrokerRefused
from inferd.workers.pull.messages import arguments
from inferd.workers.pull.puller import PullingEnded
from inferd.workers.remote.answers import job_id
from inferd.workers.remote.client import NoBeat
from tests.settlement.certificates import make_certificates
from tests.workers.pull.redis_server import RedisServer
from tests.workers.pull.support import Asker, a_puller, an_asker, tls_before
from tests.workers.service.support import WORKER, Operator, a_request
from tests.workers.support import Scripted, a_job


async def test_jobs_heartbeats_and_signatures(redis: RedisServer, tmp_path: Path) -> None:
    large = bytes(range(256)) * 12_000

    async def answer(job: Job) -> bytes:
        return large if job.input == b"large" else b"small"

    backend = Scripted(answer, max_output_bytes=4_000_000)
    async with a_puller(redis, tmp_path, backend) as agent, an_asker(redis) as asker:
        assert agent.url == "pull:"
        beat = await asker.client.beat()
        assert (beat.heartbeat.slots, beat.heartbeat.stopping) == (2, False)
        assert [model.name for model in beat.heartbeat.models] == [backend.name]
        results = await asyncio.gather(
            *(asker.worker.compute(a_job(number)) for number in range(1, 6)),
            asker.worker.compute(a_job(6, b"large")),
        )
        assert [result.key.id for result in results] == [1, 2, 3, 4, 5, 6]
        assert results[5].output == large
        nonce = Hash32(b"\x07" * 32)
        target = f"{job_id(a_job(1)).path}?wait_ms=0"
        answer = await asker.client.call("GET", target, nonce=nonce)
        assert asker.client.vouched_for(answer, nonce)
        again = await asker.worker.compute(a_job(6, b"large"))
        assert again.digest == results[5].digest
        assert len(backend.calls) == 6
        await asker.worker.drop(a_job(1))
        with pytest.raises(RefusedToSign):
            await asker.worker.sign_group(b"\x01" * 84)


async def test_refusals_come_with_their_headers(redis: RedisServer, tmp_path: Path) -> None:
    release = asyncio.Event()

    async def waits(job: Job) -> bytes:
        await release.wait()
        return b"x"

    async with (
        a_puller(redis, tmp_path, Scripted(waits), slots=1, queue=0) as _,
        an_asker(redis) as asker,
    ):
        running = asyncio.create_task(asker.worker.compute(a_job(1)))
        while (await asker.client.beat()).heartbeat.running == 0:
            await asyncio.sleep(0.02)
        with pytest.raises(WorkerBusy) as busy:
            await asker.worker.compute(a_job(2))
        assert busy.value.retry_after_s >= 1
        release.set()
        await running


async def test_a_stranger_is_told_so_and_what_time_it_is(
    redis: RedisServer, tmp_path: Path
) -> None:
    other = ("0x" + "12" * 20,)
    async with a_puller(redis, tmp_path, Scripted(), operators=other), an_asker(redis) as asker:
        with pytest.raises(NoBeat, match="does not take this operator's requests") as refused:
            await asker.client.beat()
        assert abs((refused.value.clock_s or 0) - time.time()) < 600


async def test_a_message_that_comes_twice_changes_nothing(
    redis: RedisServer, tmp_path: Path
) -> None:
    """Once while the agent remembers its nonce, and once after it has forgotten."""
    backend = Scripted()
    operator = Operator("")
    body = encode(a_request(7, b"twice"))
    kwargs = arguments("POST", JOBS, {"authorization": operator.header("POST", JOBS, body)}, body)
    app = asking(Broker(redis.operator_url()))

    async def sent(number: int) -> tuple[int, str]:
        task = f"test-{number}"
        await asyncio.to_thread(
            app.send_task, names.TASK, kwargs=kwargs, task_id=task, queue=queue_of(WORKER)
        )
        with redis.client() as client:
            while (answer := client.get(names.answer(WORKER, task))) is None:
                await asyncio.sleep(0.02)
        told = json.loads(answer)["result"]
        return told["status"], json.loads(told["body"]).get("digest", "")

    async with a_puller(redis, tmp_path, backend):
        first, second = await sent(1), await sent(2)
    async with a_puller(redis, tmp_path, backend):
        third = await sent(3)
    assert first[0] == third[0] == 200
    assert first[1] == third[1] != ""
    assert second[0] == 401
    assert len(backend.calls) == 1


async def test_a_request_that_waited_too_long_is_not_answered(
    redis: RedisServer, tmp_path: Path
) -> None:
    backend = Scripted()
    app = asking(Broker(redis.operator_url()))
    operator = Operator("")
    body = encode(a_request(7))
    kwargs = arguments("POST", JOBS, {"authorization": operator.header("POST", JOBS, body)}, body)
    await asyncio.to_thread(
        app.send_task,
        names.TASK,
        kwargs=kwargs,
        task_id="old-1",
        queue=queue_of(WORKER),
        expires=0.001,
    )
    await asyncio.sleep(0.01)
    async with a_puller(redis, tmp_path, backend), an_asker(redis) as asker:
        await asker.client.beat()
        with redis.client() as client:
            while (answer := client.get(names.answer(WORKER, "old-1"))) is None:
                await asyncio.sleep(0.02)
    assert json.loads(answer)["status"] == "REVOKED"
    assert backend.calls == []


async def test_the_broker_comes_back(redis: RedisServer, tmp_path: Path) -> None:
    async with a_puller(redis, tmp_path, Scripted()), an_asker(redis, timeout_s=1.0) as asker:
        await until_beat(asker)
        redis.kill()
        with pytest.raises((Unreachable, TooSlow)):
            await asker.client.beat()
        await asyncio.to_thread(redis.start)
        redis.admit(WORKER)
        redis.operator_url()
        await until_beat(asker)
        assert (await asker.worker.compute(a_job(1))).output


async def test_an_answer_is_not_lost_with_the_connection(
    redis: RedisServer, tmp_path: Path
) -> None:
    release = asyncio.Event()

    async def waits(job: Job) -> bytes:
        await release.wait()
        return b"x"

    async with a_puller(redis, tmp_path, Scripted(waits)), an_asker(redis) as asker:
        computing = asyncio.create_task(asker.worker.compute(a_job(1)))
        while (await asker.client.beat()).heartbeat.running == 0:
            await asyncio.sleep(0.02)
        number = asker.next_number()
        with redis.client() as client:
            assert client.execute_command("CLIENT", "KILL", "TYPE", "pubsub") == 1
            release.set()
            assert (await computing).output == b"x"
        assert asker.next_number() == number + 1, "nothing was asked again"


async def test_nobody_empties_the_queue(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferd.workers.pull.client._MOST_QUEUED", 3)
    impatient = Limits(1_000, connect_s=60.0, head_s=0.05, body_s=0.05)
    async with an_asker(redis) as asker:
        for _ in range(5):
            with pytest.raises(TooSlow):
                await asker.pull.exchange(WORKER, {"method": "GET"}, impatient)
    with redis.client() as client:
        queued = client.lrange(names.queue(WORKER), 0, -1)
    assert len(queued) == 3
    ends = datetime.fromisoformat(json.loads(queued[0])["headers"]["expires"])
    assert 0 < ends.timestamp() - time.time() <= 90


async def test_a_worker_reaches_only_what_is_its_own(redis: RedisServer) -> None:
    other = Address(b"\x22" * 20)
    redis.admit(WORKER)
    with redis.client() as admin:
        admin.lpush(names.queue(other), "a job")
        user = type(admin).from_url(redis.admit(WORKER))
    with user:
        for forbidden in (
            lambda: user.brpop([names.queue(other)], 1),
            lambda: user.get(names.answer(other, "x-1")),
            lambda: user.publish(names.answer(other, "x-1"), "lies"),
            lambda: user.execute_command("PSUBSCRIBE", "*"),
            lambda: user.execute_command("KEYS", "*"),
            lambda: user.execute_command("CONFIG", "GET", "*"),
            user.flushall,
        ):
            with pytest.raises(NoPermissionError):
                forbidden()
        assert user.llen(names.queue(WORKER)) == 0


async def test_a_user_without_rights_is_told_at_the_start(
    redis: RedisServer, tmp_path: Path
) -> None:
    url = redis.admit(Address(b"\x22" * 20))
    with pytest.raises(BrokerRefused, match="may not do what is needed"):
        async with a_puller(redis, tmp_path, Scripted(), broker=Broker(url)):
            pass


async def test_what_a_worker_makes_up_is_not_believed(redis: RedisServer) -> None:
    """Answers by hand, as a worker that is none would put them there."""
    async with an_asker(redis, timeout_s=5.0, max_output_bytes=10_000) as asker:

        async def made_up(result: bytes) -> None:
            with redis.client() as client:
                while not (found := await asyncio.to_thread(client.brpop, queue, 1)):
                    pass
                task = json.loads(found[1])["headers"]["id"]
                client.publish(names.answer(WORKER, task), result)
                # Nobody waits for these.
                client.publish(names.answer(WORKER, task + "7"), result)
                client.publish(names.answer(Address(b"\x22" * 20), task), result)

        queue = [names.queue(WORKER)]
        for result, error in (
            (b"x" * 1_000_000, TooLarge),
            (b"no JSON", Malformed),
            (json.dumps({"status": "SUCCESS", "result": told("{}")}).encode(), NoBeat),
        ):
            lying = asyncio.create_task(made_up(result))
            with pytest.raises(error):
                await asker.client.beat()
            await lying
        lying = asyncio.create_task(
            made_up(json.dumps({"status": "SUCCESS", "result": told("[]")}).encode())
        )
        with pytest.raises(WorkerFailed, match="cannot be read"):
            await asker.worker.compute(a_job(1))
        await lying


async def test_prompts_and_passwords_are_in_no_log(
    redis: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with a_puller(redis, tmp_path, Scripted()), an_asker(redis) as asker:
        await asker.worker.compute(a_job(1, b"a very secret prompt"))
        with redis.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until_beat(asker)
    answer = b64encode(b"answer to a very secret prompt").decode()
    for secret in ("secret", "very secret prompt", answer):
        assert secret not in caplog.text


async def test_all_of_it_over_tls(redis: RedisServer, tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    async with tls_before(redis, files) as port:

        def over_tls(url: str) -> Broker:
            return Broker(
                url.replace("redis://", "rediss://").replace(f":{redis.port}/", f":{port}/"),
                files.ca,
            )

        async with (
            a_puller(redis, tmp_path, Scripted(), broker=over_tls(redis.admit(WORKER))),
            an_asker(redis, broker=over_tls(redis.operator_url())) as asker,
        ):
            assert (await asker.worker.compute(a_job(1))).output == b"answer to hello"


async def test_the_agent_ends_where_nothing_is_pulled_any_more(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with a_puller(redis, tmp_path, Scripted()) as agent:
        state.should_stop = 0  # as Celery does where it cannot go on
        with pytest.raises(PullingEnded):
            await agent.upkeep


async def test_it_ends_in_order(redis: RedisServer, tmp_path: Path) -> None:
    async def for_ever(job: Job) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with an_asker(redis) as asker:
        async with a_puller(redis, tmp_path, Scripted(for_ever)) as agent:
            computing = asyncio.create_task(asker.worker.compute(a_job(1)))
            while (await asker.client.beat()).heartbeat.running == 0:
                await asyncio.sleep(0.02)
            agent.jobs.stop_taking()
            assert (await asker.client.beat()).heartbeat.stopping
            await agent.jobs.drain(0.0)
            with pytest.raises(WorkerBusy):
                await computing
        with redis.client() as client:
            assert client.hlen(names.prefix(WORKER) + "unacked") == 0


def told(body: str) -> dict[str, object]:
    return {"status": 200, "headers": {}, "body": body}


async def until_beat(asker: Asker) -> None:
    while True:
        try:
            await asker.client.beat()
        except (Unreachable, TooSlow):
            await asyncio.sleep(0.05)
        else:
            return
