"""Results that the chain would refuse, or that the node fails on, in a batch of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from indexer.rpc import RpcError
from indexer.types import ZERO_HASH, BlockRef
from inferd.protocol.calls import post
from inferd.protocol.request import Commitment
from inferd.protocol.result import ResultItem, pack_items
from inferd.settlement.engine import Settlement
from inferd.settlement.holds import Holds
from inferd.settlement.records import Item
from inferd.settlement.settings import PausedReason
from tests.settlement.scripted import Real, ScriptedRpc, no_answer
from tests.settlement.world import World

MANY = 240


async def _settled_by_a_stranger(world: World, ids: Sequence[int]) -> BlockRef:
    """The head of a block in which somebody else posted these, of which the tables know nothing."""
    rows = await world.pool.fetch(
        "SELECT * FROM node.result WHERE request_id = ANY($1::bigint[])", list(ids)
    )
    groups = [
        (
            pack_items([ResultItem(row["request_id"], row["commitment"], row["digest"])]),
            [row["signature"]],
        )
        for row in rows
    ]
    await world.automine(True)
    if groups:
        await world.requester.send(world.contracts.results, post(groups, ZERO_HASH))
    await world.automine(False)
    head = await world.rpc.header("latest")
    assert head is not None
    return BlockRef(head.number, head.hash, head.timestamp_s, head.base_fee_wei, head.gas_limit)


@pytest.mark.parametrize(("dead", "most"), [(0, 1), (1, 11), (5, 43), (MANY, 2)])
async def test_calls_until_the_rest_is_sent(world: World, dead: int, most: int) -> None:
    """The batch, its items each under its own signature, some of their halves, and the rest."""
    ids = await world.submit(MANY)
    await world.compute(ids)
    spoilt = ids[:: MANY // dead][:dead] if dead else []
    head = await _settled_by_a_stranger(world, spoilt)
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc, max_results=MANY, max_gas=15_000_000)
    await settlement.step(head)
    calls = rpc.count("call")
    print(f"{dead} of {MANY} dead: {calls} calls")
    assert calls <= most
    items = await world.items()
    assert sorted(items) == [one for one in ids if one not in spoilt]


class Quirk:
    """A node that fails on some calldata, whatever else is in it."""

    def __init__(self, marker: bytes) -> None:
        self.marker = marker
        self.methods = ["call"]

    def put_before(self, rpc: ScriptedRpc, *methods: str) -> None:
        for method in methods:
            rpc.always(method, self._fails if method == "call" else self._fails_to_estimate)

    async def _fails(self, real: Real, to: Any, data: bytes, **options: Any) -> Any:
        if self.marker in data:
            raise RpcError(-32603, "internal error: cannot read slot")
        return await real(to, data, **options)

    async def _fails_to_estimate(
        self, real: Real, sender: Any, to: Any, data: bytes, value_wei: int
    ) -> Any:
        return await self._fails(real, sender, data, to=to)


async def _commitment(world: World, request_id: int) -> bytes:
    found: bytes = await world.pool.fetchval(
        "SELECT commitment FROM chain.request WHERE id = $1", request_id
    )
    return found


@pytest.mark.parametrize("company", [0, 6])
async def test_a_result_that_the_node_fails_on_holds_up_nothing(world: World, company: int) -> None:
    ids = await world.submit(company + 1)
    await world.compute(ids)
    odd = ids[company // 2]
    rpc = ScriptedRpc(world.rpc)
    Quirk(await _commitment(world, odd)).put_before(rpc, "call")
    settlement = world.settlement(rpc)
    await world.submit(1, lifetime_s=5)  # nor does it hold up what is of another kind
    await world.rpc.request("evm_increaseTime", [10])
    await world.tick(settlement, 4)
    healthy = [one for one in ids if one != odd]
    assert await world.fulfilled_events() == dict.fromkeys(healthy, 1)
    assert "refunded" in (await world.statuses()).values()
    assert settlement.status.paused_reason is None
    told = settlement.status.set_apart["post"]
    assert told.startswith("1 result set apart, as the endpoint fails on each: request")
    assert f"request {odd}, tried" in told
    assert "internal error: cannot read slot" in told
    assert told in settlement.status.posting
    # It is tried ever more seldom, and then no more.
    for _ in range(12):
        await world.mine(31)
        await settlement.step(await world.mine())
    assert "1 of them given up" in settlement.status.set_apart["post"]
    before = rpc.count("call")
    await settlement.step(await world.mine())
    assert rpc.count("call") == before
    # Another endpoint, after a restart, has an answer.
    await world.tick(world.settlement(), 4)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_a_result_whose_gas_the_node_cannot_estimate_is_set_apart(world: World) -> None:
    ids = await world.submit(4)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)
    commitment = await _commitment(world, ids[0])

    async def fails(real: Real, sender: Any, to: Any, data: bytes, value_wei: int) -> Any:
        if commitment in data:
            raise RpcError(-32603, "internal error: overflow")
        return await real(sender, to, data, value_wei)

    rpc.always("estimate_gas", fails)
    settlement = world.settlement(rpc)
    await world.tick(settlement, 6)
    assert await world.fulfilled_events() == dict.fromkeys(ids[1:], 1)
    assert "internal error: overflow" in settlement.status.set_apart["post"]


async def test_where_the_endpoint_has_no_answer_at_all_nothing_is_set_apart(world: World) -> None:
    ids = await world.submit(3)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)
    rpc.always("call", no_answer)
    settlement = world.settlement(rpc)
    await world.tick(settlement, 2)
    assert settlement.status.paused_reason is PausedReason.RPC_TROUBLE
    assert not any(settlement.status.set_apart.values())
    rpc.always("call", None)
    await world.tick(settlement, 3)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_a_refund_that_the_node_fails_on_holds_up_no_other(world: World) -> None:
    ids = await world.submit(6, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    await _refuse_claim(world, rpc, ids[3])
    await world.tick(settlement, 4)
    statuses = await world.statuses()
    assert statuses.pop(ids[3]) == "pending"
    assert set(statuses.values()) == {"refunded"}
    assert (
        f"1 refund set apart, as the endpoint fails on each: request {ids[3]}"
        in (settlement.status.set_apart["refund"])
    )


async def _refuse_claim(world: World, rpc: ScriptedRpc, request_id: int) -> None:
    Quirk(request_id.to_bytes(32, "big") + bytes(12) + _requester(world)).put_before(rpc, "call")


def _requester(world: World) -> bytes:
    return bytes.fromhex(world.anvil.config.account(1).address.removeprefix("0x"))


async def test_a_callback_that_the_node_fails_on_holds_up_no_other(world: World) -> None:
    diary = await world.new_diary()
    ids = [await world.ask_by(diary) for _ in range(3)]
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)
    settlement: Settlement = world.settlement(rpc)
    # The output is in the delivery's calldata alone.
    Quirk(f"answer {ids[1]}".encode()).put_before(rpc, "call")
    await world.tick(settlement, 12)
    for one in ids:
        expected = b"" if one == ids[1] else f"answer {one}".encode()
        assert await world.answer_of(diary, one) == expected
    assert settlement.status.paused_reason is None
    assert (
        f"1 callback set apart, as the endpoint fails on each: request {ids[1]}"
        in (settlement.status.set_apart["deliver"])
    )
    await world.hand_over(ids[1])
    await world.tick(settlement)
    assert not settlement.status.set_apart["deliver"]


async def test_what_is_told_beside_the_decision_is_told_once(world: World) -> None:
    """Also while no key has a slot, and nothing new is decided."""
    ids = await world.submit(2)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)
    Quirk(await _commitment(world, ids[1])).put_before(rpc, "call")
    settlement = world.settlement(rpc, max_in_flight=1)
    head = await world.index()
    for _ in range(4):
        await settlement.step(head)
        assert settlement.status.in_flight == 1
        assert settlement.status.posting.count("set apart") == 1


def test_only_what_the_node_fails_on_is_given_up_and_only_while_it_does() -> None:
    item, holds = Item(7, Commitment(bytes(32)), None), Holds()
    for block in range(20):
        holds.hold(item, block)
    assert not holds.told("result")
    holds.set_apart(item, 100, "too many requests")
    assert "tried 1 of 8 times" in holds.told("result")
    assert not holds.holds(item, 200)
    holds.hold(item, 200)
    assert not holds.told("result")
