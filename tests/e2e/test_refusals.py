"""Requests that cannot be served are turned away with a reason, and their fees come back."""

from __future__ import annotations

from inferd.chain.requester import cancel
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.request import InputKind, RequestParams, model_id
from tests.harness import FEE_WEI, MODEL, POSTER, REQUESTER, System


async def _why(node: object, request_id: int) -> tuple[str, str]:
    _, told = await node.get(f"/v1/requests/{request_id}/why")  # type: ignore[attr-defined]
    assert told["sentence"].endswith(".")
    assert told["next_action"].endswith(".")
    return told["state"], told["reason"]


async def test_each_is_refused_for_its_reason_and_refunded(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    unknown = await world.ask("hello", model="nobody-serves-this", deadline_in_s=15)
    late = await world.ask("too late", deadline_in_s=2)
    not_text = await _ask_raw(world, b"\xff\xfe", InputKind.INLINE)
    by_uri = await _ask_raw(world, bytes(32) + b"data:,not that hash", InputKind.URI)

    await node.until_state(unknown.request_id, "refused")
    assert await _why(node, unknown.request_id) == ("refused", "model_unknown")
    await node.until_state(by_uri, "refused")
    assert await _why(node, by_uri) == ("refused", "input_unavailable")
    await node.until_state(not_text, "refused")
    assert await _why(node, not_text) == ("refused", "bad_input")

    for request_id in (unknown.request_id, late.request_id, not_text, by_uri):
        await node.until_state(request_id, "refunded", timeout_s=90)
    assert await world.credit_wei(REQUESTER) == 4 * FEE_WEI
    assert await world.credit_wei(POSTER) == 0
    assert node.stop() == 0


async def test_a_cancelled_request_is_refunded_and_never_served_twice(
    world: System, empty_database: str
) -> None:
    asked = await world.ask("cancelled before any node saw it")
    await cancel(world.requester, world.deployment.contracts, asked.request_id)
    await world.rpc.request("evm_increaseTime", [10])
    await world.mine()
    node = world.start_node("node", empty_database)
    await node.until_state(asked.request_id, "refunded", timeout_s=90)
    assert await world.credit_wei(REQUESTER) == FEE_WEI
    assert node.stop() == 0


async def _ask_raw(world: System, content: bytes, kind: InputKind) -> int:
    head = await world.rpc.header("latest")
    assert head is not None
    params = RequestParams(model_id(MODEL), 8, head.timestamp_s + 20, 0, content, input_kind=kind)
    sender: Sender = world.requester
    receipt = await sender.send(
        world.deployment.contracts.requests, calls.submit(params), value_wei=FEE_WEI
    )
    return int.from_bytes(receipt.logs[0].topics[1], "big")
