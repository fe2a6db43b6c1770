"""Requests that spoil every transaction they are in, which no simulation shows.

Our contracts know no such item: their code is put behind code that reverts where the calldata has
20 bytes of it, such as its commitment, and a flag is up, which it is while blocks are mined only.
"""

from __future__ import annotations

from typing import Any

from indexer.types import Address
from inferd.settlement.engine import Settlement
from tests.settlement.world import World

_FLAG = bytes.fromhex("00000000000000000000000000000000000000f1")
_BEHIND = bytes.fromhex("00000000000000000000000000000000000000f2")
_REQUESTS_PAUSED = "c2ddbfe4"


class Poison:
    def __init__(
        self, world: World, contract: Address, markers: list[bytes], *, step: int = 1
    ) -> None:
        """The markers are looked for at offsets that `step` divides."""
        self._step = step
        self._world = world
        self._contract = contract
        self._markers = markers

    async def take_effect(self) -> None:
        """From now on, while blocks are mined."""
        rpc = self._world.rpc
        place = "0x" + self._contract.hex()
        code = await rpc.request("eth_getCode", [place, "latest"])
        behind = _BEHIND
        await rpc.request("anvil_setCode", ["0x" + behind.hex(), code])
        for number, marker in enumerate(self._markers[1:], start=1):
            nearer = _BEHIND[:-2] + (0xF200 + number).to_bytes(2, "big")
            await rpc.request(
                "anvil_setCode", ["0x" + nearer.hex(), "0x" + guard(marker, behind, self._step)]
            )
            behind = nearer
        await rpc.request(
            "anvil_setCode", [place, "0x" + guard(self._markers[0], behind, self._step)]
        )

    async def tick(self, settlement: Settlement, blocks: int = 1) -> None:
        """Steps at heads whose blocks were mined while the flag was up."""
        for _ in range(blocks):
            await mine_under_poison(self._world.rpc)
            await settlement.step(await self._world.index())


async def mine_under_poison(rpc: Any) -> None:
    """One block, while the flag is up."""
    flag = "0x" + _FLAG.hex()
    await rpc.request("anvil_setBalance", [flag, "0x1"])
    await rpc.request("anvil_mine", [1])
    await rpc.request("anvil_setBalance", [flag, "0x0"])


def guard(marker: bytes, behind: bytes, step: int) -> str:
    """Code in hex. Where the flag is up and the calldata has the marker at such an offset, it
    reverts with a custom error; else the code of `behind` is run in its place."""
    code = bytearray()

    def put(text: str) -> None:
        code.extend(bytes.fromhex(text))

    labels: dict[str, int] = {}
    jumps: list[tuple[int, str]] = []

    def jump(label: str, instruction: str) -> None:
        put("61")
        jumps.append((len(code), label))
        put("0000" + instruction)

    def here(label: str) -> None:
        labels[label] = len(code)
        put("5b")

    put("5f")  # i = 0
    here("loop")
    put("80361115")  # not calldatasize > i
    jump("on", "57")
    put("803560601c73" + marker.hex() + "14")  # calldata[i:i+20] == it
    jump("found", "57")
    put(f"60{step:02x}01")  # i += step
    jump("loop", "56")
    here("found")
    put("73" + _FLAG.hex() + "31")  # BALANCE of the flag
    jump("revert", "57")
    jump("on", "56")
    here("revert")
    put("63" + _REQUESTS_PAUSED + "60e01b5f5260045ffd")  # revert(RequestsPaused())
    here("on")
    put("365f5f37" + "5f5f365f73" + behind.hex() + "5af4" + "3d5f5f3e")  # delegatecall
    jump("good", "57")
    put("3d5ffd")
    here("good")
    put("3d5ff3")
    for place, label in jumps:
        code[place : place + 2] = labels[label].to_bytes(2, "big")
    return code.hex()
