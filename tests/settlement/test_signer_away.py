"""Settlement while its signer is away, slow or lying: late, and nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from eth_utils.address import to_canonical_address

from indexer.types import Address
from inferd.chain.remote_signer import RemoteSigner
from inferd.settlement.engine import Settlement
from inferd.settlement.settings import PausedReason
from tests.settlement.scripted import ScriptedRpc
from tests.settlement.signer_server import SignerServer, signer_server
from tests.settlement.world import ETHER, GWEI, World


class Later:
    """A clock on which every pause is over when it is looked at again."""

    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 60
        return self.now_s


@pytest.fixture
async def server(world: World) -> AsyncIterator[SignerServer]:
    """Signs as the world's poster from now on."""
    account = world.anvil.config.account(6)
    async with signer_server(account) as running:
        address = Address(to_canonical_address(account.address))
        remote = RemoteSigner(running.url, address, timeout_s=0.3, clock=Later())
        world.poster = remote
        yield running
        await remote.close()


async def _ready(world: World, count: int = 1) -> list[int]:
    ids = await world.submit(count, batchable=False)
    await world.compute(ids)
    return ids


async def _next_nonce(world: World) -> int:
    return await world.pool.fetchval("SELECT coalesce(max(next_nonce), 0) FROM node.sender")  # type: ignore[no-any-return]


async def test_posts_are_signed_elsewhere(world: World, server: SignerServer) -> None:
    ids = await _ready(world, 3)
    settlement = world.settlement()
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert server.signatures() == await world.posted() == 3


@pytest.mark.parametrize("fault", ["silent", "status", "lie"])
async def test_without_a_signature_no_nonce_is_spent(
    world: World, server: SignerServer, fault: str
) -> None:
    ids = await _ready(world, 2)
    settlement = world.settlement()
    if fault == "silent":
        server.silent = True
    elif fault == "status":
        server.status = 503
    else:
        server.lie = lambda transaction: transaction | {"nonce": transaction["nonce"] + 1}
    await world.tick(settlement, 3)
    assert settlement.status.paused_reason is PausedReason.SIGNER_UNAVAILABLE
    assert "signer at http://127.0.0.1" in (settlement.status.last_error or "")
    assert await _next_nonce(world) == 0
    assert await world.attempts() == []
    # One intent waits for its signature; no others pile up behind it.
    assert [intent["state"] for intent in await world.intents()] == ["planned"]
    server.silent, server.status, server.lie = False, 200, None
    await world.tick(settlement, 5)
    assert settlement.status.paused_reason is None
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert [attempt["nonce"] for attempt in await world.attempts()] == [0, 1]


async def test_what_is_signed_is_followed_and_kept_alive_meanwhile(
    world: World, server: SignerServer
) -> None:
    ids = await _ready(world, 2)
    settlement = world.settlement()
    await settlement.step(await world.index())
    server.silent = True
    for _ in range(4):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(20 * GWEI)])
        await world.tick(settlement)
    assert settlement.status.paused_reason is PausedReason.SIGNER_UNAVAILABLE
    first, second = await world.attempts()
    assert first["sends"] >= 2, "it cannot be raised, so the same bytes are sent again"
    assert (first["nonce"], second["nonce"]) == (0, 1)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
    await world.tick(settlement, 3)
    assert {intent["state"] for intent in await world.intents()} == {"confirmed"}
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_a_hole_that_cannot_be_filled_stops_nothing_else(
    world: World, server: SignerServer
) -> None:
    """The hole is of a foreign transaction that a reorganisation took."""
    (request_id,) = await _ready(world)
    before = await world.index()
    await world.poster_transfer(0)
    await world.mine()
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    await settlement.step(head := await world.index())
    server.silent = True
    await world.rpc.request("anvil_reorg", [head.number - before.number, []])
    for _ in range(5):
        looked = rpc.count("receipt")
        await world.tick(settlement)
        assert rpc.count("receipt") > looked, "the live intent was not followed"
    assert (await world.intents())[0]["state"] == "broadcast"
    server.silent = False
    await world.tick(settlement, 8)
    assert await world.fulfilled_events() == {request_id: 1}
    assert await world.posted() == 2


async def test_a_signer_without_end_holds_the_database_for_a_bounded_time(
    world: World, server: SignerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (request_id,) = await _ready(world)
    server.silent = True
    patient = RemoteSigner(server.url, world.poster.address, timeout_s=600, clock=Later())
    world.poster = patient
    monkeypatch.setattr("inferd.settlement.outbox.SIGN_WITHIN_S", 0.2)
    settlement = world.settlement()
    async with asyncio.timeout(60):
        await world.tick(settlement)
    assert settlement.status.paused_reason is PausedReason.SIGNER_UNAVAILABLE
    assert "has not signed within" in (settlement.status.last_error or "")
    assert await _next_nonce(world) == 0
    server.silent = False
    monkeypatch.undo()
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == {request_id: 1}
    await patient.close()


async def test_a_signature_refused_for_good_is_no_reason_to_cancel(
    world: World, server: SignerServer
) -> None:
    """Unlike bytes that an endpoint refuses, what was never signed has spent nothing."""
    (request_id,) = await _ready(world)
    server.lie = lambda transaction: {"error": {"code": -32000, "message": "sealed"}}
    settlement = world.settlement()
    await world.tick(settlement, 8)
    assert [intent["state"] for intent in await world.intents()] == ["planned"]
    await world.set_balance(ETHER)
    server.lie = None
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == {request_id: 1}


async def _waits_for_its_signature(world: World, server: SignerServer) -> tuple[Settlement, int]:
    """A post that is planned, and the price of a gas at which it costs what it earns."""
    await _ready(world)
    settlement = world.settlement()
    server.silent = True
    await settlement.step(await world.index())
    (intent,) = await world.intents()
    assert intent["state"] == "planned"
    server.silent = False
    return settlement, int(intent["inputs"]["break_even_wei"])


async def test_what_is_signed_later_offers_no_more_than_it_earns(
    world: World, server: SignerServer
) -> None:
    settlement, break_even_wei = await _waits_for_its_signature(world, server)
    # Twice the base fee, as a first attempt offers, is more than the post is worth.
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(break_even_wei * 3 // 4)])
    await settlement.step(await world.mine())
    (attempt,) = await world.attempts()
    assert attempt["max_fee_wei"] == break_even_wei


async def test_what_is_worth_no_signature_any_more_is_given_back(
    world: World, server: SignerServer
) -> None:
    settlement, break_even_wei = await _waits_for_its_signature(world, server)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(break_even_wei * 3 // 2)])
    await settlement.step(await world.mine())
    assert await world.attempts() == []
    (intent,) = await world.intents()
    assert (intent["state"], intent["outcome"]) == ("cancelled", "not_sent")
