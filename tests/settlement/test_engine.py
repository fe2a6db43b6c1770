"""The engine on a real chain and a real database, when only the work itself is difficult."""

from __future__ import annotations

import pytest
from eth_account import Account
from eth_keys.datatypes import PrivateKey

from indexer.database import Connection
from indexer.types import Address
from inferd.chain.signers import LocalSigner
from inferd.protocol import calls
from inferd.protocol.result import ResultItem, pack_items
from inferd.settlement.engine import Settlement
from inferd.settlement.settings import PausedReason, SettlementSettings
from tests.settlement.scripted import ScriptedRpc, no_answer
from tests.settlement.world import ETHER, GWEI, POSTER_BPS, World

FEE = ETHER // 100


async def test_results_of_two_workers_are_settled_in_one_transaction(world: World) -> None:
    ids = await world.submit(5)
    await world.compute(ids[:3], 0)
    await world.compute(ids[3:], 1)
    await world.decide([b"\x01" * 32, b"\x02" * 32])
    settlement = world.settlement()
    await world.tick(settlement)
    assert settlement.status.in_flight == 1
    await world.tick(settlement, 3)

    assert set((await world.statuses()).values()) == {"fulfilled"}
    assert await world.posted() == 1
    assert sorted(world.groups_signed) == sorted([(world.workers[0], 3), (world.workers[1], 2)])
    (intent,) = await world.intents()
    assert intent["state"] == "confirmed"
    assert intent["closed_at"] is not None
    assert {tuple(o) for o in (await world.items()).values()} == {("settled",)}
    assert settlement.status.items_by_outcome == {"settled": 5}
    assert settlement.status.in_flight == 0
    assert await world.credit(world.poster.address) == 5 * FEE * POSTER_BPS // 10_000
    anchored = await world.pool.fetchval(
        "SELECT count(*) FROM node.decision WHERE intent_id = $1", intent["id"]
    )
    assert anchored == 2
    root = await world.pool.fetchval(
        "SELECT topics[2] FROM chain.log WHERE kind = 'DecisionsAnchored'"
    )
    assert root == intent["decisions_root"]
    observed = await world.pool.fetchrow("SELECT groups, items, gas_used FROM node.gas_observation")
    assert (observed["groups"], observed["items"]) == (2, 5)
    fitted = await settlement.gas_model()
    assert fitted.of(2, 5) == pytest.approx(observed["gas_used"], rel=0.01)


async def test_a_worker_that_does_not_sign_costs_gas_and_no_result(world: World) -> None:
    ids = await world.submit(3)
    await world.compute(ids)

    async def refuse(worker: Address, items: bytes) -> bytes:
        raise ConnectionError("gone")

    world.sign_group = refuse  # type: ignore[assignment,method-assign]
    await world.tick(world.settlement(), 4)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await world.posted() == 1


async def test_a_signature_by_another_key_is_not_used(world: World) -> None:
    ids = await world.submit(2)
    await world.compute(ids, 0)
    honest = world.sign_group

    async def swapped(worker: Address, items: bytes) -> bytes:
        return await honest(world.workers[1], items)

    world.sign_group = swapped  # type: ignore[assignment,method-assign]
    await world.tick(world.settlement(), 4)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    (paid,) = await world.pool.fetch(
        "SELECT DISTINCT worker FROM chain.payment WHERE role = 'worker'"
    )
    assert paid["worker"] == world.workers[0]


async def test_results_that_the_chain_would_skip_are_held_back(world: World) -> None:
    ids = await world.submit(3)
    await world.compute(ids[:2], 0)
    stranger = PrivateKey(bytes(Account.from_key(b"\x07" * 32).key))
    address = Address(stranger.public_key.to_canonical_address())
    world.worker_keys[address] = stranger
    await world.compute(ids[2:], address)
    await world.pool.execute(  # the index lags: the chain does not know it any more
        "INSERT INTO chain.worker SELECT $1, owner, models, endpoint, slots, memory_mb, enabled,"
        " staked, stake_wei, unbonding_wei, registered_block FROM chain.worker LIMIT 1",
        address,
    )
    settlement = world.settlement()
    await world.tick(settlement, 5)
    assert await world.fulfilled_events() == dict.fromkeys(ids[:2], 1)
    assert await world.posted() == 1
    assert list(await world.items()) == ids[:2]
    assert (settlement.status.ready, settlement.status.held) == (1, 1)


async def test_not_batchable_travels_alone_and_no_more_than_allowed_are_in_flight(
    world: World,
) -> None:
    alone = await world.submit(3, batchable=False)
    await world.compute(alone)
    settlement = world.settlement(max_in_flight=2)
    await settlement.step(await world.index())
    assert settlement.status.in_flight == 2
    assert settlement.status.ready == 1
    await world.tick(settlement, 5)
    assert await world.fulfilled_events() == dict.fromkeys(alone, 1)
    assert await world.posted() == 3
    nonces = [attempt["nonce"] for attempt in await world.attempts()]
    assert nonces == [0, 1, 2]


async def test_expired_requests_are_refunded_when_gas_is_cheap(world: World) -> None:
    ids = await world.submit(3, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    settlement = world.settlement(refund_max_fee_per_gas_wei=1)
    await world.tick(settlement, 2)
    assert await world.intents() == []
    off = world.settlement(refunds=False)
    await world.tick(off, 2)
    assert await world.intents() == []
    settlement = world.settlement(refund_max_claims=2)
    await world.tick(settlement, 6)
    assert await world.statuses() == dict.fromkeys(ids, "refunded")
    assert [intent["kind"] for intent in await world.intents()] == ["refund", "refund"]
    assert await world.credit(world.requester.address) == 3 * FEE
    assert settlement.status.items_by_outcome == {"refunded": 3}


async def test_nothing_is_posted_at_a_loss(world: World) -> None:
    ids = await world.submit(1, fee_wei=2 * GWEI)
    await world.compute(ids)
    settlement = world.settlement()
    await world.tick(settlement, 2)
    assert settlement.status.paused_reason is PausedReason.UNPROFITABLE
    # The model may be too kind: then the node's estimate decides.
    dearer = await world.submit(1, fee_wei=300_000 * GWEI)
    await world.compute(dearer)
    await world.pool.execute(
        "INSERT INTO node.gas_observation (tx_hash, groups, items, gas_used)"
        " SELECT n::text::bytea, 1, n, 21000 FROM generate_series(1, 9) n"
    )
    await world.tick(settlement, 2)
    assert (await settlement.gas_model()).of(1, 1) < 30_000
    assert settlement.status.paused_reason is PausedReason.UNPROFITABLE
    assert await world.intents() == []


async def test_gas_price_over_the_cap_pauses_and_ends(world: World) -> None:
    ids = await world.submit(1)
    await world.compute(ids)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(50 * GWEI)])
    settlement = world.settlement(max_fee_per_gas_wei=10 * GWEI)
    await world.tick(settlement)
    assert settlement.status.paused_reason is PausedReason.GAS_PRICE_OVER_CAP
    assert await world.intents() == []
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
    await world.tick(settlement, 4)
    assert settlement.status.paused_reason is None
    assert await world.fulfilled_events() == {ids[0]: 1}


async def test_a_rival_was_faster(world: World) -> None:
    ids = await world.submit(2)
    await world.compute(ids)
    settlement = world.settlement()
    await settlement.step(await world.index())  # ours is in the pool
    rows = await world.pool.fetch("SELECT * FROM node.result ORDER BY request_id")
    item = ResultItem(rows[0]["request_id"], rows[0]["commitment"], rows[0]["digest"])
    data = calls.post([(pack_items([item]), [rows[0]["signature"]])], bytes(32))
    rival = LocalSigner(world.anvil.config.account(3))
    signed = await rival.sign(
        {
            "type": 2,
            "chainId": world.contracts.chain_id,
            "nonce": 0,
            "to": world.contracts.results,
            "value": 0,
            "data": data,
            "gas": 300_000,
            "maxFeePerGas": 100 * GWEI,
            "maxPriorityFeePerGas": 50 * GWEI,
        }
    )
    await world.rpc.send_raw_transaction(signed.raw)
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await world.items() == {ids[0]: ["skipped:already_settled"], ids[1]: ["settled"]}
    assert await world.pool.fetchval("SELECT count(*) FROM node.gas_observation") == 0


async def test_a_replaced_writer_signs_nothing(world: World) -> None:
    ids = await world.submit(1)
    await world.compute(ids)

    class Replaced(Exception):
        pass

    async def fence(connection: Connection) -> None:
        raise Replaced

    settlement = Settlement(
        rpc=world.rpc,
        db=world.pool,
        contracts=world.contracts,
        signers=[world.poster],
        sign_group=world.sign_group,
        settings=SettlementSettings(poster_bps=POSTER_BPS, guard_s=1e9),
        fence=fence,
    )
    with pytest.raises(Replaced):
        await settlement.step(await world.index())
    assert await world.intents() == []


async def test_what_a_former_key_signed_is_followed_to_its_end(world: World) -> None:
    ids = await world.submit(2)
    await world.compute(ids[:1])
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", no_answer)
    await world.settlement(rpc).step(await world.index())
    world.poster = LocalSigner(world.anvil.config.account(4))
    await world.compute(ids[1:])
    await world.tick(world.settlement(), 4)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    old, new = await world.intents()
    assert (old["state"], new["state"]) == ("confirmed", "confirmed")
    assert old["sender"] != new["sender"] == world.poster.address


async def test_results_whose_output_is_in_a_file_or_gone_are_posted(world: World) -> None:
    ids = await world.submit(3)
    await world.compute(ids)
    for request_id, file_bytes in ((ids[0], 500_000), (ids[1], None)):
        await world.pool.execute(
            "UPDATE node.result SET output = NULL, file_bytes = $2 WHERE request_id = $1",
            request_id,
            file_bytes,
        )
    await world.tick(world.settlement(), 3)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
