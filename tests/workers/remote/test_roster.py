"""The pool follows registry, heartbeats and the operator while it is in use; with a real agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from eth_keys.datatypes import PrivateKey
from structlog.testing import capture_logs

from indexer.database import Pool
from indexer.types import Address
from inferd.net.guarded import GuardedClient
from inferd.net.reach import OWN_MACHINE_AND_NETWORKS, PUBLIC, Reach
from inferd.protocol.request import ModelId, model_id
from inferd.protocol.worker_api_signing import parse_authorization
from inferd.workers import reputation
from inferd.workers.dispatch import Dispatcher
from inferd.workers.pool import WorkerPool
from inferd.workers.remote.client import Operator
from inferd.workers.remote.membership import Bar, Terms
from inferd.workers.remote.roster import Roster, RosterTerms
from inferd.workers.retries import RetryBudget
from scheduler.model import WorkerId
from tests.workers.remote.scripted import OPERATOR, OPERATOR_KEY, ScriptedWorker, listening
from tests.workers.service import support as agents
from tests.workers.support import MODEL, Scripted, a_job, a_worker, lease_for, until

OWNER = Address(b"\x22" * 20)
QUICK = RosterTerms(Terms(stale_after_s=1.0), heartbeat_s=0.1, timeout_s=20.0)


class Office:
    """A roster that runs, and the pool it keeps."""

    def __init__(self, database: Pool, stack: AsyncExitStack) -> None:
        self.database = database
        self.stack = stack
        self.pool = WorkerPool([])
        self.names: dict[bytes, str] = {}
        self.changes = 0

    async def open(
        self,
        terms: RosterTerms = QUICK,
        operator: Operator | None = OPERATOR,
        reach: Reach = OWN_MACHINE_AND_NETWORKS,
    ) -> None:
        http = await self.stack.enter_async_context(GuardedClient(reach))
        self.budget = RetryBudget()
        self.roster = Roster(
            self.pool,
            self.database,
            http,
            operator,
            self.budget,
            self.names,
            terms=terms,
            on_change=self._changed,
        )
        running = asyncio.create_task(self.roster.run())

        async def stop() -> None:
            running.cancel()
            await asyncio.wait({running})

        self.stack.push_async_callback(stop)

    def _changed(self) -> None:
        self.changes += 1

    async def register(self, address: Address, endpoint: str, **changes: Any) -> None:
        values = {"enabled": True, "staked": True, "slots": 4, **changes}
        await self.database.execute(
            """
            INSERT INTO chain.worker VALUES ($1, $2, $3, $4, $5, 1000, $6, $7, 1, 0, 1)
            ON CONFLICT (signer) DO UPDATE SET endpoint = $4, slots = $5, enabled = $6, staked = $7
            """,
            address,
            OWNER,
            [model_id(MODEL)],
            endpoint.encode(),
            values["slots"],
            values["enabled"],
            values["staked"],
        )

    def bar(self, address: Address) -> Bar | str | None:
        entry = self.roster.entries.get(address)
        return "unknown" if entry is None else entry.membership.bar

    async def until_bar(self, address: Address, bar: Bar | None) -> None:
        await until(lambda: self.bar(address) is bar)

    async def available(self, address: Address) -> bool:
        async with self.database.acquire() as connection:
            views = {view.id: view for view in await self.pool.views(connection)}
        view = views.get(WorkerId(address))
        return view is not None and view.available


@pytest.fixture
async def office(pool: Pool) -> AsyncIterator[Office]:
    async with AsyncExitStack() as stack:
        yield Office(pool, stack)


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedWorker]:
    async with listening(ScriptedWorker()) as worker:
        yield worker


async def test_workers_join_and_leave_without_a_restart(
    office: Office, scripted: ScriptedWorker
) -> None:
    await office.open()
    await until(lambda: office.roster.entries == {} and office.pool.workers == ())
    await office.register(scripted.address, scripted.url)
    await office.until_bar(scripted.address, None)
    assert await office.available(scripted.address)
    assert office.names == {model_id(MODEL): MODEL}, "the heartbeat tells names"
    assert office.changes, "a round is rung for"
    await office.register(scripted.address, scripted.url, enabled=False)
    await office.until_bar(scripted.address, Bar.DISABLED)
    assert scripted.address not in office.pool
    beats = scripted.beats
    await office.register(scripted.address, scripted.url)
    await office.until_bar(scripted.address, None)
    assert scripted.beats > beats
    await office.database.execute("DELETE FROM chain.worker")
    await until(lambda: office.roster.entries == {})
    assert scripted.address not in office.pool


async def test_one_that_stops_beating_is_drained_and_comes_back(
    office: Office, scripted: ScriptedWorker
) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    await office.open()
    await office.register(scripted.address, scripted.url)
    await office.until_bar(scripted.address, None)
    office.pool.reserve(scripted.address)
    scripted.beat_fault = silent
    await office.until_bar(scripted.address, Bar.SILENT)
    assert not await office.available(scripted.address)
    assert scripted.address in office.pool, "what it has in hand stays"
    entry = office.roster.entries[scripted.address]
    assert entry.heard.trouble is not None
    assert set(entry.membership.announced.models) == {model_id(MODEL)}, "its requests wait for it"
    scripted.beat_fault = None
    await office.until_bar(scripted.address, None)
    assert await office.available(scripted.address)


@pytest.mark.parametrize(
    ("spoil", "bar"),
    [
        (lambda worker: setattr(worker, "skew_ms", 120_000), Bar.SKEWED),
        (lambda worker: setattr(worker, "skew_ms", -120_000), Bar.SKEWED),
        (lambda worker: setattr(worker, "stopping", True), Bar.STOPPING),
        (lambda worker: setattr(worker, "model", "another"), Bar.NO_MODEL),
        (lambda worker: setattr(worker, "slots", 0), Bar.NO_SLOTS),
    ],
)
async def test_what_a_heartbeat_says_keeps_work_from_it(
    office: Office,
    scripted: ScriptedWorker,
    spoil: Callable[[ScriptedWorker], None],
    bar: Bar,
) -> None:
    spoil(scripted)
    await office.open()
    await office.register(scripted.address, scripted.url)
    await office.until_bar(scripted.address, bar)
    assert not await office.available(scripted.address)


async def test_a_tolerated_skew_is_measured(office: Office, scripted: ScriptedWorker) -> None:
    scripted.skew_ms = 30_000
    await office.open()
    await office.register(scripted.address, scripted.url)
    await office.until_bar(scripted.address, None)
    offset = office.roster.entries[scripted.address].heard.offset
    assert offset is not None
    assert abs(offset.skew_ms - 30_000) <= offset.error_ms + 10


async def test_a_worker_whose_clock_is_ahead_is_asked_by_its_own_time(
    office: Office, scripted: ScriptedWorker
) -> None:
    """It takes no request that has expired by its clock; its refusal says what that shows."""
    scripted.skew_ms = 45_000

    async def strict(request: web.Request) -> web.StreamResponse | None:
        now_s = time.time() + 45
        if parse_authorization(request.headers["Authorization"]).expires_at_s > now_s:
            return None
        body = {"code": "unauthorised", "message": ""}
        return web.json_response(body, status=401, headers={"Date": formatdate(now_s, usegmt=True)})

    scripted.beat_fault = strict
    await office.open()
    await office.register(scripted.address, scripted.url)
    await office.until_bar(scripted.address, None)
    assert scripted.beats > 1


async def forged(request: web.Request) -> web.StreamResponse:
    """As another worker would sign it."""
    other = ScriptedWorker(PrivateKey(b"\x77" * 32))
    return await other._beat(request, _nonce(request))


async def replayed(request: web.Request) -> web.StreamResponse:
    """Its own, but of another request."""
    other = ScriptedWorker()
    return await other._beat(request, b"\x01" * 32)  # type: ignore[arg-type]


async def garbage(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"\xff" * 1000)


async def huge(request: web.Request) -> web.StreamResponse:
    return web.Response(body=bytes(10**6))


def _nonce(request: web.Request) -> Any:
    return parse_authorization(request.headers["Authorization"]).nonce


@pytest.mark.parametrize("fault", [forged, replayed, garbage, huge])
async def test_a_heartbeat_that_is_not_its_own_is_none(
    office: Office, scripted: ScriptedWorker, fault: Any
) -> None:
    scripted.beat_fault = fault
    await office.open()
    await office.register(scripted.address, scripted.url)
    await until(lambda: scripted.beats > 1)
    await until(
        lambda: (
            (entry := office.roster.entries.get(scripted.address)) is not None
            and entry.heard.trouble is not None
        )
    )
    assert office.bar(scripted.address) is Bar.UNHEARD
    assert not await office.available(scripted.address)


async def test_the_operator_suspends_and_resumes_while_it_runs(
    office: Office, scripted: ScriptedWorker
) -> None:
    await office.open()
    await office.register(scripted.address, scripted.url)
    await office.until_bar(scripted.address, None)
    async with office.database.acquire() as connection:
        await reputation.suspend(connection, scripted.address, "looks odd", "me")
    await office.until_bar(scripted.address, Bar.SUSPENDED)
    why_not = office.roster.entries[scripted.address].membership.why_not
    assert why_not == "it is suspended: looks odd"
    assert not await office.available(scripted.address)
    async with office.database.acquire() as connection:
        assert await reputation.resume(connection, scripted.address)
        assert not await reputation.resume(connection, scripted.address)
    await office.until_bar(scripted.address, None)


async def test_other_terms_hold_from_the_next_look(
    office: Office, scripted: ScriptedWorker
) -> None:
    await office.open(replace(QUICK, heartbeat_s=3_600.0))
    await office.register(scripted.address, scripted.url)
    await office.until_bar(scripted.address, None)
    beats = scripted.beats
    office.roster.adopt(QUICK)
    await until(lambda: scripted.beats > beats + 1)
    office.roster.adopt(replace(QUICK, terms=Terms(deny=frozenset({scripted.address}))))
    await office.until_bar(scripted.address, Bar.DENIED)
    assert scripted.address not in office.pool
    office.roster.adopt(QUICK)
    await office.until_bar(scripted.address, None)


async def test_endpoints_lead_only_where_they_may(office: Office, scripted: ScriptedWorker) -> None:
    await office.open(reach=PUBLIC)
    await office.register(scripted.address, scripted.url)
    other = Address(b"\x55" * 20)
    await office.register(other, "file:///etc/passwd")
    await until(
        lambda: (
            (entry := office.roster.entries.get(scripted.address)) is not None
            and entry.heard.trouble is not None
        )
    )
    entry = office.roster.entries[scripted.address]
    assert entry.membership.why_not == ("no heartbeat has come yet: it leads to a loopback address")
    await office.until_bar(other, Bar.BAD_ENDPOINT)
    assert scripted.beats == 0


async def test_without_an_operators_key_nobody_is_asked(
    office: Office, scripted: ScriptedWorker
) -> None:
    with capture_logs() as lines:
        await office.open(operator=None)
        assert office.roster.unsigned == 0, "without such workers there is nothing to tell"
        await office.register(scripted.address, scripted.url)
        await office.register(Address(b"\x33" * 20), "http://127.0.0.1:1", enabled=False)
        await office.until_bar(scripted.address, Bar.BAD_ENDPOINT)
        await office.roster.look()
    assert scripted.beats == 0
    assert office.roster.unsigned == 1
    (told,) = [line for line in lines if line["event"] == "no_operator_key"]
    assert (told["workers"], "pool.operator" in told["reason"]) == (1, True)


async def test_who_wants_no_workers_of_other_machines_is_not_told_of_a_key(
    office: Office, scripted: ScriptedWorker
) -> None:
    await office.open(replace(QUICK, terms=Terms(max_workers=0)), operator=None)
    await office.register(scripted.address, scripted.url)
    await office.until_bar(scripted.address, Bar.BAD_ENDPOINT)
    assert office.roster.unsigned == 0


async def test_embedded_workers_are_left_alone(pool: Pool) -> None:
    async with AsyncExitStack() as stack:
        office = Office(pool, stack)
        embedded = a_worker(pool, Scripted())
        office.pool = WorkerPool([embedded])
        await office.open()
        await office.register(embedded.address, "https://example.org")
        other = Address(b"\x55" * 20)
        await office.register(other, "file://")
        await office.until_bar(other, Bar.BAD_ENDPOINT)
        assert embedded.address not in office.roster.entries
        assert await office.available(embedded.address)
        async with pool.acquire() as connection:
            await reputation.suspend(connection, embedded.address, "too warm", "me")
        await until(lambda: office.pool.standing(embedded.address).held)
        assert not await office.available(embedded.address), "but for the operator's word"


async def test_a_new_endpoint_is_asked_in_place_of_the_old(
    office: Office, scripted: ScriptedWorker
) -> None:
    await office.open()
    await office.register(scripted.address, scripted.url)
    await office.until_bar(scripted.address, None)
    async with listening(ScriptedWorker()) as moved:
        await office.register(moved.address, moved.url)
        await until(lambda: moved.beats)
        await office.until_bar(moved.address, None)
        (worker,) = office.pool.workers
        assert worker.client.endpoint == moved.url  # type: ignore[attr-defined]


async def test_a_real_agent_computes_for_the_pool(office: Office, tmp_path: Path) -> None:
    """The worker's side as `inferd worker` has it: its log, its signatures, its limits."""
    backend = Scripted()
    async with agents.an_agent(tmp_path, backend, agents.Operator("", OPERATOR_KEY)) as (agent, _):
        operator = Operator(
            OPERATOR.address, OPERATOR.signer, agents.API_DOMAIN, agents.RESULTS_DOMAIN
        )
        await office.open(operator=operator)
        await office.register(agents.WORKER, agent.url)
        await office.until_bar(agents.WORKER, None)
        dispatcher = Dispatcher(
            office.pool, office.database, fence=None, on_change=lambda _: None, budget=office.budget
        )
        for number in range(1, 6):
            job = a_job(number, b"hello")
            lease = await lease_for(office.database, job, agents.WORKER)
            dispatcher.start(lease, job)
        count = "SELECT count(*) FROM node.result WHERE output = 'answer to hello'"
        async with asyncio.timeout(60):
            while await office.database.fetchval(count) < 5:
                await asyncio.sleep(0.05)
        await until(lambda: dispatcher.running == 0 and not dispatcher._drops)
        await dispatcher.close()
    assert len(backend.calls) == 5
    states = await office.database.fetch("SELECT DISTINCT state FROM node.lease")
    assert [row["state"] for row in states] == ["done"]
    async with office.database.acquire() as connection:
        (found,) = await reputation.load(connection, agents.WORKER)
    assert (found.good, found.model_id) == (5, ModelId(model_id(MODEL)))


async def test_an_agent_that_does_not_trust_us_is_told_apart(
    office: Office, tmp_path: Path
) -> None:
    async with agents.an_agent(tmp_path, Scripted()) as (agent, _):
        stranger = PrivateKey(b"\x13" * 32)
        operator = Operator(
            Address(stranger.public_key.to_canonical_address()),
            OPERATOR.signer,
            agents.API_DOMAIN,
            agents.RESULTS_DOMAIN,
        )
        await office.open(operator=operator)
        await office.register(agents.WORKER, agent.url)
        await until(
            lambda: (
                (entry := office.roster.entries.get(agents.WORKER)) is not None
                and entry.heard.trouble is not None
            )
        )
        why_not = office.roster.entries[agents.WORKER].membership.why_not
    assert why_not is not None
    assert "does not take this operator's requests" in why_not
