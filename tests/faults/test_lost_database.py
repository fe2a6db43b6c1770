"""A lost database on a living chain: what was settled long ago is not computed or posted again."""

from __future__ import annotations

from tests.faults.proxy import SlowHttp
from tests.harness import POSTER, System, address


async def test_nothing_old_is_done_again_while_catching_up(
    world: System, empty_database: str, database: str
) -> None:
    # Asked in one stretch of the chain and settled in a later one: in between, the tables of a
    # backfill hold them as pending.
    old = [await world.ask(f"prompt {n}", deadline_in_s=7200) for n in range(3)]
    for _ in range(4):
        await world.mine(150)
    first = world.start_node("first", empty_database)
    for asked in old:
        await first.until_state(asked.request_id, "settled")
    assert first.stop() == 0
    nonce = await world.rpc.nonce(address(POSTER))

    async with SlowHttp(world.anvil.url, delay_s=0.25) as slow:
        world.rpc_url = slow.url
        second = world.start_node("second", database)
        await second.until_ready(timeout_s=90)
        fresh = await world.ask("after the loss")
        await second.until_state(fresh.request_id, "settled", timeout_s=90)
        assert [line["request_id"] for line in second.events("job_started")] == [fresh.request_id]
        assert second.stop() == 0
    assert await world.rpc.nonce(address(POSTER)) == nonce + 1
