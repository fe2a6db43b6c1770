"""A contract that asks, as the tests of the whole system use it."""

from __future__ import annotations

from typing import Any

from eth_abi.abi import encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from eth_utils.hexadecimal import decode_hex, encode_hex

from indexer.types import Address
from inferd.chain.connect import read_view
from inferd.protocol import calls
from inferd.protocol.artifacts import load
from inferd.protocol.request import model_id
from tests.harness import MODEL, NodeProcess, System

PROMPT = b"dear diary"
CALLBACK_FEE_WEI = 10**16


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
