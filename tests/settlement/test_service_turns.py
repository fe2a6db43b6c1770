"""Refunds and deliveries, of which somebody else was first: each loses once and learns to wait."""

from __future__ import annotations

from collections.abc import Sequence

from inferd.chain.signers import LocalSigner
from inferd.protocol import calls
from inferd.protocol.request import params_hash
from inferd.settlement.engine import Settlement
from inferd.settlement.params import params_of
from inferd.settlement.records import Item
from inferd.settlement.rivalry import MEMORY_BLOCKS, WIDEST_BLOCKS
from inferd.settlement.turns import DELIVERIES, REFUNDS, RESULTS
from tests.settlement.world import GWEI, World

_RIVAL = 3


async def _first(world: World, target: bytes, data: bytes) -> None:
    """Somebody else's transaction, at a price that is mined before those of ours."""
    rival = LocalSigner(world.anvil.config.account(_RIVAL))
    signed = await rival.sign(
        {
            "type": 2,
            "chainId": world.contracts.chain_id,
            "nonce": await world.rpc.nonce(rival.address),
            "to": target,
            "value": 0,
            "data": data,
            "gas": 2_000_000,
            "maxFeePerGas": 100 * GWEI,
            "maxPriorityFeePerGas": 50 * GWEI,
        }
    )
    await world.rpc.send_raw_transaction(signed.raw)


async def _refunds_first(world: World, ids: Sequence[int]) -> None:
    rows = await world.pool.fetch("SELECT * FROM chain.request WHERE id = ANY($1::bigint[])", ids)
    claims = [(row["id"], row["requester"], params_hash(params_of(row))) for row in rows]
    await _first(world, world.contracts.requests, calls.refund(claims))


async def _expired(world: World, number: int) -> list[int]:
    ids = await world.submit(number, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    await world.mine()
    return ids


async def _refund_race(world: World, settlement: Settlement, requests: int = 3) -> bool:
    """Whether we sent a refund before the rival's was mined."""
    ids = await _expired(world, requests)
    before = len(await world.intents())
    await settlement.step(await world.index())
    await _refunds_first(world, ids)
    await world.tick(settlement)
    assert {(await world.statuses())[one] for one in ids} == {"refunded"}
    return len(await world.intents()) > before


async def test_who_loses_refunds_waits_and_saves_its_gas(world: World) -> None:
    settlement = world.settlement(confirmations=1)
    assert await _refund_race(world, settlement)
    await world.tick(settlement, 2)
    # However long ago it was: refunds are rare.
    await world.mine(2 * MEMORY_BLOCKS)
    sent = [await _refund_race(world, settlement) for _ in range(6)]
    assert sum(sent) <= 2
    # What the rival leaves is refunded within the window, and together.
    ids = await _expired(world, 5)
    before = await world.posted()
    for _ in range(WIDEST_BLOCKS + 3):
        await world.tick(settlement)
    assert {(await world.statuses())[one] for one in ids} == {"refunded"}
    assert await world.posted() == before + 1


async def test_it_says_that_refunds_wait_for_a_turn(world: World) -> None:
    settlement = world.settlement(confirmations=1)
    await _refund_race(world, settlement, 5)
    await world.tick(settlement, 2)
    told = set()
    for _ in range(4):
        await _expired(world, 1)
        await settlement.step(await world.index())
        told.add(settlement.status.refunding)
        await world.tick(settlement, WIDEST_BLOCKS)
    assert any("waiting for a turn, as others were first" in one for one in told), told


async def test_a_refund_that_is_seen_in_the_pool_is_left_to_its_sender(world: World) -> None:
    ids = await _expired(world, 3)
    await _refunds_first(world, ids[:2])
    settlement = world.settlement()
    await settlement.step(await world.index())
    assert sorted(await world.items()) == ids[2:]
    await world.tick(settlement, 3)
    assert set((await world.statuses()).values()) == {"refunded"}
    assert await world.items() == {ids[2]: ["refunded"]}


async def test_who_loses_deliveries_waits(world: World) -> None:
    settlement = world.settlement(confirmations=1)
    diary = await world.new_diary()

    async def race() -> bool:
        request_id = await world.ask_by(diary)
        await world.compute([request_id])
        await settlement.step(await world.index())
        await world.tick(settlement)  # posted, and the delivery sent if its turn has come
        assert (await world.statuses())[request_id] == "fulfilled"
        sent = (await world.intents())[-1]["kind"] == "deliver"
        row = await world.pool.fetchrow("SELECT * FROM chain.request WHERE id = $1", request_id)
        claim = (request_id, row["requester"], params_of(row), f"answer {request_id}".encode())
        await _first(world, world.contracts.results, calls.deliver([claim]))
        await world.tick(settlement, 2)
        assert await world.answer_of(diary, request_id) == claim[3]
        return sent

    assert await race()
    sent = [await race() for _ in range(6)]
    assert sum(sent) <= 4  # a wait can be none; five of six are so once in ten thousand times
    outcomes = {outcome for each in (await world.items()).values() for outcome in each}
    assert outcomes == {"settled", "skipped:not_owed"}
    # What nobody else delivers comes within the window.
    left = await world.ask_by(diary)
    await world.compute([left])
    await world.tick(settlement, WIDEST_BLOCKS + 4)
    assert await world.answer_of(diary, left) == f"answer {left}".encode()


async def test_what_another_transaction_of_ours_settled_is_no_rivals(world: World) -> None:
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    settlement = world.settlement(confirmations=1)
    await world.tick(settlement, 3)
    (done,) = await world.intents()
    await world.pool.execute(
        "WITH later AS (INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata,"
        " gas_limit, reason, inputs, outcome, closed_at) SELECT kind, '\\x01', 'confirmed', sender,"
        " target, calldata, 1, 'x', '{}', 'done', now() FROM node.tx_intent WHERE id = $1"
        " RETURNING id), item AS (INSERT INTO node.tx_item (intent_id, request_id, commitment,"
        " live, outcome) SELECT later.id, request_id, commitment, false, 'skipped:already_settled'"
        " FROM node.tx_item, later WHERE intent_id = $1)"
        " INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,"
        " priority_fee_wei, gas_limit, raw, state, mined_block, gas_used, effective_gas_price_wei)"
        " SELECT '\\x02', later.id, chain_id, sender, nonce + 1, 1, 1, 1, '\\x02', 'mined',"
        " mined_block, 1, 1 FROM node.tx_attempt, later WHERE intent_id = $1",
        done["id"],
    )
    await settlement.step(await world.index())
    assert not settlement._poster._turns.has_rivals


def test_neighbours_draw_together_where_one_alone_is_dear() -> None:
    lots = {REFUNDS.lot(Item(number, bytes([number]) * 20, None), 7) for number in range(256)}  # type: ignore[arg-type]
    assert len(lots) == 1
    assert REFUNDS.lot(Item(256, b"", None), 7) not in lots  # type: ignore[arg-type]
    assert REFUNDS.lot(Item(1, b"", None), 8) not in lots  # type: ignore[arg-type]
    for one in (RESULTS, DELIVERIES):
        assert one.lot(Item(1, b"a" * 20, None), 7) != one.lot(Item(1, b"b" * 20, None), 7)  # type: ignore[arg-type]
