"""Contracts that are gone: a call of an address without code succeeds, and is none of ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from indexer.errors import NoContractCode
from inferd.node.preflight import inspect_chain
from inferd.protocol.deployment import Deployment
from inferd.settlement.settings import PausedReason
from tests.settlement.scripted import ScriptedRpc
from tests.settlement.world import World


async def _take_code(world: World, name: str) -> str:
    address = "0x" + getattr(world.contracts, name).hex()
    code: str = await world.rpc.request("eth_getCode", [address, "latest"])
    await world.rpc.request("anvil_setCode", [address, "0x"])
    return code


async def _give_code(world: World, name: str, code: str) -> None:
    await world.rpc.request("anvil_setCode", ["0x" + getattr(world.contracts, name).hex(), code])


async def test_what_was_sent_into_the_void_is_no_success(world: World) -> None:
    ids = await world.submit(2)
    await world.compute(ids)
    settlement = world.settlement(max_item_failures=1)
    await settlement.step(await world.index())
    code = await _take_code(world, "results")
    await world.tick(settlement, 3)
    first, *later = await world.intents()
    assert (first["state"], first["outcome"]) == ("failed", "no_contract_code")
    assert first["diagnosis"].startswith("there is no contract at 0x")
    assert not later, "nothing is sent where nothing is"
    status = settlement.status
    assert status.paused_reason is PausedReason.NO_CONTRACT_CODE
    assert status.last_error == first["diagnosis"]
    assert (status.confirmed_transactions, status.failed_transactions) == (0, 1)
    # It was no result's fault, and each is posted once the contract is there.
    await _give_code(world, "results", code)
    await world.tick(settlement, 4)
    assert status.paused_reason is None
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await world.items() == {one: ["no_contract_code", "settled"] for one in ids}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("post", "results"),
        ("post", "requests"),
        ("refund", "requests"),
        ("deliver", "results"),
        ("deliver", "requests"),
    ],
)
async def test_nothing_is_sent_into_the_void(world: World, kind: str, name: str) -> None:
    settlement = world.settlement()
    if kind == "post":
        await world.compute(await world.submit(1))
    elif kind == "refund":
        await world.submit(1, lifetime_s=5)
        await world.rpc.request("evm_increaseTime", [10])
    else:
        await world.compute([await world.ask_by(await world.new_diary())])
        await world.tick(settlement, 2)  # posted and mined; the delivery is due with the next
        assert "fulfilled" in (await world.statuses()).values()
    head = await world.mine()
    code = await _take_code(world, name)
    before = len(await world.intents())
    # A head from which the code is gone, as the state of older ones has it still.
    head = await world.mine()
    await settlement.step(head)
    assert len(await world.intents()) == before
    if kind == "post" and name == "requests":
        return  # the other contract's call of it reverts, and the result is held back
    assert settlement.status.paused_reason is PausedReason.NO_CONTRACT_CODE
    assert "there is no contract at 0x" in str(settlement.status.last_error)
    assert not any(settlement.status.set_apart.values())
    await _give_code(world, name, code)
    await world.tick(settlement, 4)
    assert settlement.status.paused_reason is None
    assert [one["outcome"] for one in await world.intents()][-1] == "done"


async def test_a_success_without_any_event_is_a_failure_that_says_so(world: World) -> None:
    """Another contract stands there, which takes any call."""
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    settlement = world.settlement()
    await settlement.step(await world.index())
    code = await _take_code(world, "results")
    await _give_code(world, "results", "0x00")
    await world.rpc.request("anvil_mine", [1])
    await _give_code(world, "results", code)
    await world.tick(settlement, 5)
    first, *_ = await world.intents()
    assert (first["state"], first["outcome"]) == ("failed", "missing")
    assert first["diagnosis"] == "it succeeded, and no event tells of any of its items"
    assert await world.fulfilled_events() == {request_id: 1}


async def test_before_any_work_a_contract_of_something_else_is_refused(world: World) -> None:
    deployment = Deployment(world.contracts, world.genesis_hash)
    assert (await inspect_chain(world.rpc, deployment)).poster_bps == 2_000
    for changes in (
        {"results": world.contracts.registry},
        {"requests": world.contracts.results},
    ):
        wrong = replace(deployment, contracts=replace(world.contracts, **changes))
        with pytest.raises(NoContractCode):
            await inspect_chain(world.rpc, wrong)
    await _take_code(world, "results")
    with pytest.raises(NoContractCode, match="there is no contract at"):
        await inspect_chain(world.rpc, deployment)


async def test_a_contract_of_ours_is_asked_for_once(world: World) -> None:
    """Its code is looked at only where something points to its absence."""
    rpc = ScriptedRpc(world.rpc)
    await world.compute(await world.submit(2))
    await world.tick(world.settlement(rpc), 4)
    asked = [args for name, args in rpc.calls if name == "code"]
    assert not {world.contracts.results, world.contracts.requests} & {args[0] for args in asked}
