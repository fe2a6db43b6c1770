"""Contracts that ask: the answer is in their storage, or in that of the request contract."""

from __future__ import annotations

import base64
from typing import Any

from eth_abi.abi import encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from eth_utils.hexadecimal import decode_hex, encode_hex

from indexer.types import Address
from inferd.chain.connect import read_view
from inferd.chain.delivery import deliver
from inferd.chain.requester import submit
from inferd.protocol import calls
from inferd.protocol.artifacts import load
from inferd.protocol.request import Delivery, RequestParams, model_id
from tests.harness import FEE_WEI, MODEL, OWNER, POSTER, NodeProcess, System

PROMPT = b"dear diary"
CALLBACK_FEE_WEI = 10**16
REFUSE_ALL = bytes.fromhex("6307de5a5160005260046000fd")
"""Reverts with four zero bytes."""


class Diary:
    """A contract of contracts/src/examples that asks with delivery CALLBACK."""

    def __init__(self, world: System, address: Address) -> None:
        self.world = world
        self.address = address

    async def ask(self) -> int:
        data = calls.codec("Diary").encode_abi("ask", args=[model_id(MODEL), PROMPT, 8, 600])
        receipt = await self.world.requester.send(
            self.address, decode_hex(data), value_wei=CALLBACK_FEE_WEI
        )
        topic = keccak(text="Asked(uint256)")
        (asked,) = [log for log in receipt.logs if log.topics[0] == topic]
        return int.from_bytes(asked.topics[1], "big")

    async def answer(self, request_id: int) -> bytes:
        (answer,) = await read_view(self.world.rpc, self.address, "Diary", "answerOf", [request_id])
        return bytes(answer)


async def diary_of(world: System) -> Diary:
    requests = to_checksum_address(world.deployment.contracts.requests)
    created = await world.requester.send(
        None, load("Diary").bytecode + encode(["address"], [requests])
    )
    assert created.contract_address is not None
    return Diary(world, created.contract_address)


async def until_callback(node: NodeProcess, request_id: int, state: str) -> Any:
    found: dict[str, Any] = {}

    async def check() -> bool:
        _, view = await node.get(f"/v1/requests/{request_id}")
        found.update(view)
        return view.get("callback") == state

    await node.until(check, 60, f"callback {state}")
    return found


async def delivered_events(world: System, request_id: int) -> int:
    logs = await world.rpc.request(
        "eth_getLogs",
        [
            {
                "fromBlock": "0x0",
                "address": to_checksum_address(world.deployment.contracts.results),
                "topics": [
                    encode_hex(keccak(text="CallbackDelivered(uint256,address)")),
                    encode_hex(request_id.to_bytes(32, "big")),
                ],
            }
        ],
    )
    return len(logs)


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
