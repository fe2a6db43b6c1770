"""A poster that runs out of ether: warned of, stopped in time, and going on by itself."""

from __future__ import annotations

from structlog.testing import capture_logs

from inferd.settlement.delivery_gas import DELIVER_GAS, claim_gas
from inferd.settlement.engine import Settlement
from inferd.settlement.runway import FundsState, Projection
from inferd.settlement.settings import PausedReason
from tests.settlement.scripted import ScriptedRpc, no_answer
from tests.settlement.world import ETHER, World

WARN, STOP = 200, 20


def watched(world: World, rpc: ScriptedRpc | None = None) -> Settlement:
    return world.settlement(rpc, warn_runway_results=WARN, stop_runway_results=STOP, guard_s=1e9)


def gas_of_one(settlement: Settlement) -> int:
    return settlement._funds._gas[1]


def projected(settlement: Settlement) -> Projection:
    assert settlement.status.projection is not None
    return settlement.status.projection


async def hold(world: World, settlement: Settlement, results: int) -> None:
    """The balance pays for so many results."""
    await world.set_balance(results * projected(settlement).result_wei)


async def steady(world: World) -> None:
    """The next block costs what this one did, so that a threshold stays where it is."""
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(10**9)])


async def tick(world: World, settlement: Settlement, blocks: int = 1) -> list[str]:
    """The events of the balance that were told."""
    with capture_logs() as logs:
        for _ in range(blocks):
            await steady(world)
            await world.tick(settlement)
    return [log["event"] for log in logs if log["event"].startswith("balance_")]


async def test_warned__stopped__filled_up__resumed__and_nothing_lost(world: World) -> None:
    settlement = watched(world)
    assert await tick(world, settlement) == []
    assert settlement.status.funds is FundsState.ENOUGH

    await hold(world, settlement, WARN - 1)
    assert await tick(world, settlement, 3) == ["balance_low"]
    assert settlement.status.paused_reason is None
    warned = await world.submit(2)  # low is not spent: work goes on
    await world.compute(warned)
    await tick(world, settlement, 4)
    assert await world.fulfilled_events() == dict.fromkeys(warned, 1)

    await hold(world, settlement, STOP - 1)
    assert await tick(world, settlement, 3) == ["balance_spent"]
    assert settlement.status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    waiting = await world.submit(3)
    await world.compute(waiting)
    await tick(world, settlement, 3)
    assert len(await world.intents()) == 1
    assert settlement.status.ready == 3
    assert settlement.status.in_flight == 0
    assert projected(settlement).waiting_wei == 3 * projected(settlement).result_wei
    assert "balance" in settlement.status.posting

    await hold(world, settlement, STOP + 1)  # not a quarter more: it stays stopped
    assert await tick(world, settlement) == []
    assert len(await world.intents()) == 1
    await world.set_balance(ETHER)
    assert await tick(world, settlement, 5) == ["balance_enough"]
    assert settlement.status.paused_reason is None
    assert await world.fulfilled_events() == dict.fromkeys([*warned, *waiting], 1)


async def test_stopped__what_is_under_way_is_followed_to_its_end(world: World) -> None:
    rpc = ScriptedRpc(world.rpc)
    settlement = watched(world, rpc)
    await tick(world, settlement)
    first = await world.submit(2)
    await world.compute(first)
    rpc.then("send_raw_transaction", no_answer)  # its bytes are signed, and nobody has them
    await steady(world)
    await settlement.step(await world.index())
    (attempt,) = await world.attempts()
    most_wei = attempt["max_fee_wei"] * attempt["gas_limit"]
    later = await world.submit(1)
    await world.compute(later)
    await world.set_balance(most_wei)  # pays for it, and for nothing besides
    assert await tick(world, settlement, 4) == ["balance_spent"]
    assert await world.fulfilled_events() == dict.fromkeys(first, 1)
    assert [intent["state"] for intent in await world.intents()] == ["confirmed"]
    await world.set_balance(ETHER)
    await tick(world, settlement, 4)
    assert await world.fulfilled_events() == dict.fromkeys([*first, *later], 1)


async def test_in_flight_counts_with_the_most_it_can_cost(world: World) -> None:
    settlement = watched(world)
    await world.compute(await world.submit(2))
    await settlement.step(await world.index())
    await settlement.step(await world.index())
    (attempt,) = await world.attempts()
    assert projected(settlement).in_flight_wei == attempt["max_fee_wei"] * attempt["gas_limit"]
    await tick(world, settlement, 3)
    assert projected(settlement).in_flight_wei == 0


async def test_callbacks_that_are_owed_count(world: World) -> None:
    diary = await world.new_diary()
    ids = [await world.ask_by(diary) for _ in range(2)]
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)

    async def refuses(*_: object) -> bool:
        return False

    settlement = watched(world, rpc)
    await tick(world, settlement)
    before = projected(settlement).waiting_wei
    assert before == 0
    settlement._deliverer._launch = refuses  # type: ignore[assignment, method-assign]
    await tick(world, settlement, 4)
    assert settlement.status.callbacks_owed == 2
    rows = await world.pool.fetch(
        "SELECT r.callback_gas_limit, octet_length(r.input || n.output) AS content_bytes"
        " FROM chain.request r JOIN node.result n ON n.request_id = r.id"
    )
    gas = sum(DELIVER_GAS + claim_gas(*row) for row in rows)
    price_wei = projected(settlement).result_wei // gas_of_one(settlement)
    assert projected(settlement).waiting_wei == gas * price_wei


async def test_runway__by_the_newest_posts(world: World) -> None:
    settlement = watched(world)
    await tick(world, settlement)
    alone = projected(settlement).result_wei
    for _ in range(3):
        await world.compute(await world.submit(20))
        await tick(world, settlement, 4)
    together = projected(settlement)
    assert together.result_wei < alone / 4  # twenty share what is fixed
    assert together.runway_results == together.balance_wei // together.result_wei


async def test_callbacks_wait_too__and_say_why(world: World) -> None:
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    await world.compute([request_id])
    settlement = watched(world)
    await tick(world, settlement, 2)  # posted; the call follows once it is confirmed
    settlement.status.callbacks_owed = 1
    await hold(world, settlement, STOP - 1)
    await tick(world, settlement, 4)
    assert settlement.status.delivering == (
        "None of 1 callback owed is made: the poster's balance is kept for what is under way."
    )
    assert await world.answer_of(diary, request_id) == b""
    await world.set_balance(ETHER)
    await tick(world, settlement, 6)
    assert settlement.status.delivering == ""
    assert await world.answer_of(diary, request_id) == f"answer {request_id}".encode()
