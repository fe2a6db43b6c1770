"""A daemon with two posters: both send, and both are shown."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.test_accounts import gauges, inferd
from tests.harness import POSTER, System, account, address

OTHER = 7


async def test_both_keys_post_and_are_shown(world: System, empty_database: str) -> None:
    keys = POSTER, OTHER
    before = {key: await world.rpc.balance(address(key)) for key in keys}
    node = world.start_node("node", empty_database, posters=keys)
    await node.until_ready()
    for text in ("one", "two", "three"):
        asked = await world.ask(text)
        await node.until_state(asked.request_id, "settled")

    posters: list[Any] = []

    async def confirmed() -> bool:
        _, status = await node.get("/v1/status")
        posters[:] = status["settlement"]["posters"]
        return sum(poster["confirmed"] for poster in posters) == 3

    await node.until(confirmed, 60, "confirmed")
    assert [poster["address"] for poster in posters] == [account(key).address for key in keys]
    assert min(poster["confirmed"] for poster in posters) > 0  # the richer one is next
    assert all(poster["funds"]["state"] == "enough" for poster in posters)
    measured = await gauges(node)
    for poster in posters:
        label = f'{{poster="{poster["address"]}"}}'
        assert measured[f"inferd_poster_paused{label}"] == 0
        assert measured[f"inferd_poster_balance_wei{label}"] == float(poster["balance_wei"])
    spent = {
        account(key).address: before[key] - await world.rpc.balance(address(key)) for key in keys
    }
    report = json.loads(inferd(node, "report", "--json"))
    flows = {flow["account"]: int(flow["gas_wei"]) for flow in report["accounts"]}
    assert {one: flows[one] for one in spent} == spent
    inferd(node, "withdraw", "poster-2")
    assert await world.credit_wei(OTHER) == 0 < await world.credit_wei(POSTER)
    assert node.stop() == 0
