"""A model whose results can be disputed for an hour, beside one without terms."""

from __future__ import annotations

from indexer.types import Address, Wei
from inferd.chain.admin import set_model_terms
from inferd.chain.transact import Sender
from inferd.protocol.request import model_id
from inferd.protocol.terms import ModelTerms
from tests.settlement.world import GWEI, World

WINDOW_S = 3_600
BOND = 10**6 * GWEI
MODEL = model_id("test-model")


async def set_terms(world: World, window_s: int = WINDOW_S, bond_wei: int = BOND) -> None:
    """From now on; a window of 0 takes the terms away."""
    terms = ModelTerms(MODEL)
    if window_s:
        terms = ModelTerms(MODEL, dispute_window_s=window_s, bond_wei=Wei(bond_wei))
    await world.automine(True)
    await set_model_terms(arbiter(world), world.contracts, terms)
    await world.automine(False)
    await world.index()


def arbiter(world: World) -> Sender:
    """Who owns the deployment, rules on disputes, and owns the workers."""
    return Sender(world.rpc, world.anvil.config.account(0), world.anvil.config.chain_id)


def owner_of_workers(world: World) -> Address:
    return arbiter(world).address


async def pass_time(world: World, seconds: int) -> None:
    await world.rpc.request("evm_increaseTime", [seconds])
    await world.mine()


async def hold_states(world: World) -> dict[int, str]:
    rows = await world.pool.fetch("SELECT request_id, state FROM chain.hold ORDER BY request_id")
    return {row["request_id"]: row["state"] for row in rows}
