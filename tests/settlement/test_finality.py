"""What is closed becomes final, whatever else cannot, and without the state of old blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from indexer.rpc import RpcError
from indexer.types import Hash32
from inferd.settlement.settings import PausedReason
from tests.settlement.scripted import Real, Script, ScriptedRpc, answer, error, no_answer
from tests.settlement.world import World

_STUCK = 250
_KEPT_BLOCKS = 2
pytestmark = pytest.mark.parametrize("slots_in_an_epoch", [4])


class Pruned:
    """A node that keeps the state of its newest blocks only."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.asked_for_old = 0

    async def __call__(self, real: Real, method: str, params: Sequence[Any] = ()) -> Any:
        if method == "eth_getTransactionCount" and isinstance(params[1], str):
            head = await self._world.rpc.header("latest")
            assert head is not None
            if int(params[1], 16) < head.number - _KEPT_BLOCKS:
                self.asked_for_old += 1
                raise RpcError(-32000, "missing trie node 5123 (path ) state is not available")
        return await real(method, params)


async def _nonce_is_taken(world: World, rpc: ScriptedRpc, settlement: Any) -> None:
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    rpc.then("send_raw_transaction", answer(b""))  # it is nowhere
    await settlement.step(await world.index())
    await world.poster_transfer(0)
    await world.tick(settlement, 3)


async def _states(world: World) -> list[tuple[str, str | None]]:
    return [(intent["state"], intent["outcome"]) for intent in await world.intents()]


async def test_finality_needs_no_state_of_old_blocks(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    pruned = Pruned(world)
    rpc.always("request", pruned)
    settlement = world.settlement(rpc)
    await _nonce_is_taken(world, rpc, settlement)
    await world.tick(settlement, 24)
    assert await _states(world) == [("final", "nonce_taken"), ("final", "done")]
    assert pruned.asked_for_old == 0


async def test_a_look_on_a_branch_that_the_chain_left_tells_nothing(world: World) -> None:
    """The foreign transaction is gone with its block, and what was seen there with it."""
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc, refunds=False)
    await _nonce_is_taken(world, rpc, settlement)
    first = (await world.intents())[0]
    assert (first["state"], first["outcome"]) == ("cancelled", "nonce_taken")
    head = await world.index()
    # As deep as it is: the request and its post stay, what took the nonce does not.
    (asked,) = await world.pool.fetch("SELECT created_block FROM chain.request")
    await settlement.step(await world.reorg(head.number - asked["created_block"]))
    assert await world.posted() == 0
    await world.tick(settlement, 24)
    assert await world.posted() == await world.pool.fetchval("SELECT next_nonce FROM node.sender")
    assert set(await world.fulfilled_events()) == {1}
    assert {one["state"] for one in await world.intents()} == {"final"}


async def _stuck(world: World, number: int) -> None:
    """Given up with keys of before, whose nonces nobody ever spends."""
    await world.pool.execute(
        "WITH given_up AS (INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata,"
        " gas_limit, reason, inputs, outcome, closed_at)"
        " SELECT 'post', int8send(n), 'cancelled', decode(repeat('5a', 20), 'hex'), '\\x01',"
        " '\\x01', 1, 'x', '{}', 'former_key', now() FROM generate_series(1, $1) n RETURNING id)"
        " INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,"
        " priority_fee_wei, gas_limit, raw, state) SELECT sha256(int8send(id)), id, 1,"
        " decode(repeat('5a', 20), 'hex'), id, 1, 1, 1, '\\x02', 'dropped' FROM given_up",
        number,
    )


@pytest.mark.parametrize("trouble", [error("internal error"), no_answer])
async def test_closed_ones_that_the_node_fails_on_hold_up_nothing_else(
    world: World, trouble: Script
) -> None:
    await _stuck(world, 3)
    rpc = ScriptedRpc(world.rpc)
    stuck = [one["hash"] for one in await world.attempts()]

    async def receipt(real: Real, tx_hash: Hash32) -> Any:
        return await trouble(real, tx_hash) if tx_hash in stuck else await real(tx_hash)

    rpc.always("receipt", receipt)
    settlement = world.settlement(rpc)
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    await settlement.step(await world.index())
    if trouble is no_answer:
        # That the endpoint is away ends the step; what was seen before counts.
        assert settlement.status.paused_reason is PausedReason.RPC_TROUBLE
        rpc.always("receipt", None)
    await world.tick(settlement, 16)
    newest = (await world.intents())[-1]
    assert (newest["state"], newest["outcome"]) == ("final", "done")


async def test_what_is_never_final_holds_up_nothing_else(world: World) -> None:
    await _stuck(world, _STUCK)
    rpc = ScriptedRpc(world.rpc)
    settlement = world.settlement(rpc)
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    await settlement.step(await world.index())
    await world.tick(settlement, 16)
    newest = (await world.intents())[-1]
    assert (newest["state"], newest["outcome"]) == ("final", "done")
    # And a step asks for so many at most.
    before = rpc.count("receipt")
    await world.tick(settlement)
    assert 0 < rpc.count("receipt") - before <= 100
