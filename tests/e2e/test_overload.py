"""A daemon that is asked for more than its transactions have room for."""

from __future__ import annotations

from inferd.chain.requester import submit_many
from inferd.protocol.request import RequestParams, model_id
from tests.harness import FEE_WEI, MODEL, System

ASKED = 60
SETTINGS = {"INFERD_POSTING__MAX_IN_FLIGHT": "2", "INFERD_POSTING__MAX_RESULTS": "4"}


async def test_computing_does_not_run_ahead_of_posting(world: System, empty_database: str) -> None:
    node = world.start_node("node", empty_database, environment=SETTINGS)
    await node.until_ready()
    head = await world.rpc.header("latest")
    assert head is not None
    params = [
        RequestParams(model_id(MODEL), 8, head.timestamp_s + 3_600, 0, b"tell me of %d" % number)
        for number in range(ASKED)
    ]
    asked = await submit_many(
        world.requester, world.deployment.contracts, params, [FEE_WEI] * ASKED
    )
    # Nothing is mined any more: what is under way stays so.
    await world.rpc.request("evm_setIntervalMining", [0])

    async def warned() -> bool:
        _, status = await node.get("/v1/status")
        return [one["code"] for one in status["warnings"]] == ["posting_behind"]

    await node.until(warned, 60, "warned")

    async def all_settled() -> bool:
        _, status = await node.get("/v1/status")
        return bool(status["requests"].get("fulfilled", 0) == ASKED)

    states = [(await node.get(f"/v1/requests/{one.request_id}"))[1]["state"] for one in asked]
    assert "waiting" in states, "some were not begun"
    waiting = asked[states.index("waiting")].request_id
    _, told = await node.get(f"/v1/requests/{waiting}/why")
    assert told["reason"] in ("posting_behind", "no_free_slot")
    assert (await node.get("/readyz"))[0] == 200
    await world.rpc.request("evm_setIntervalMining", [1])
    await node.until(all_settled, 120, "all settled")

    async def calm() -> bool:
        return (await node.get("/v1/status"))[1]["warnings"] == []

    await node.until(calm, 60, "no warning")
    reasons = {line["reason"] for line in node.events("kept")}
    assert "posting_behind" in reasons
    assert node.stop() == 0
