"""Contracts that ask: the answer is in their storage, or in that of the request contract."""

from __future__ import annotations

import base64

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from eth_utils.hexadecimal import encode_hex

from inferd.chain.connect import read_view
from inferd.chain.delivery import deliver
from inferd.chain.requester import submit
from inferd.protocol.request import Delivery, RequestParams, model_id
from tests.consumers import CALLBACK_FEE_WEI, PROMPT, delivered_events, diary_of, until_callback
from tests.harness import FEE_WEI, MODEL, OWNER, POSTER, System

REFUSE_ALL = bytes.fromhex("6307de5a5160005260046000fd")
"""Reverts with four zero bytes."""


async def test_a_contract_asks_and_its_storage_holds_the_answer(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    diary = await diary_of(world)
    request_id = await diary.ask()
    view = await until_callback(node, request_id, "delivered")
    answer = await diary.answer(request_id)
    assert answer
    assert encode_hex(keccak(answer)) == view["digest"]
    assert await delivered_events(world, request_id) == 1
    assert await world.credit_wei(POSTER) + await world.credit_wei(OWNER) == CALLBACK_FEE_WEI
    _, why = await node.get(f"/v1/requests/{request_id}/why")
    assert "was called with the output" in why["sentence"]
    assert node.stop() == 0


async def test_a_failing_contract_blocks_no_payment_and_can_be_called_again(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    diary = await diary_of(world)
    code = encode_hex(await world.rpc.code(diary.address))
    request_id = await diary.ask()
    place = to_checksum_address(diary.address)
    await world.rpc.request("anvil_setCode", [place, encode_hex(REFUSE_ALL)])
    view = await until_callback(node, request_id, "failed")
    assert view["callback_failure"] == "0x00000000"
    assert view["state"] == "settled"
    assert await world.credit_wei(POSTER) + await world.credit_wei(OWNER) == CALLBACK_FEE_WEI
    assert await delivered_events(world, request_id) == 0

    await world.rpc.request("anvil_setCode", [place, code])
    _, result = await node.get(f"/v1/results/{request_id}")
    output = base64.b64decode(result["output_base64"])
    await deliver(world.requester, world.deployment.contracts, request_id, output)
    assert await diary.answer(request_id) == output
    await until_callback(node, request_id, "delivered")
    assert node.stop() == 0


async def test_a_stored_result_is_read_from_the_request_contract(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    head = await world.rpc.header("latest")
    assert head is not None
    params = RequestParams(
        model_id(MODEL), 8, head.timestamp_s + 600, 0, PROMPT, delivery=Delivery.STORED
    )
    asked = await submit(world.requester, world.deployment.contracts, params, FEE_WEI)
    view = await node.until_state(asked.request_id, "settled")
    found, digest = await read_view(
        world.rpc,
        world.deployment.contracts.requests,
        "InferenceRequests",
        "resultOf",
        [asked.request_id],
    )
    assert found
    assert encode_hex(digest) == view["digest"]
    assert view["callback"] is None
    assert node.stop() == 0
