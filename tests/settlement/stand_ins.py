"""Contracts that only rollups have, put where those have them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from eth_abi.abi import encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from eth_utils.hexadecimal import decode_hex

from indexer.types import Address
from tests.contracts.build import Code, compile_sources
from tests.settlement.world import World

_SOURCES = Path(__file__).parent / "sources"
_NAMES = ("GasPriceOracle", "NodeInterface")


@cache
def _compiled() -> dict[str, Code]:
    with TemporaryDirectory() as folder:
        return compile_sources(_SOURCES, Path(folder), _NAMES)


async def put(world: World, name: str, where: Address) -> None:
    """The contract's code stands at that address from now on."""
    await world.automine(True)
    created = await world.requester.send(None, decode_hex(_compiled()[name].bytecode))
    await world.automine(False)
    assert created.contract_address is not None
    code = await world.rpc.code(created.contract_address)
    await world.become(where, code.hex())


async def set_up(world: World, where: Address, types: Sequence[str], *values: object) -> None:
    """Calls the contract's `set`; a block is mined for it."""
    data = keccak(text=f"set({','.join(types)})")[:4] + encode(types, values)
    await world.automine(True)
    await world.requester.send(where, data)
    await world.automine(False)
    await world.index()


def hexed(where: Address) -> str:
    return to_checksum_address(where)
