"""A model whose results can be disputed for an hour, beside one without terms."""

from __future__ import annotations

from typing import Any

from indexer.types import Address, Hash32, Wei
from inferd.chain.admin import set_model_terms
from inferd.chain.transact import Sender
from inferd.protocol.hold import Hold
from inferd.protocol.request import Commitment, model_id
from inferd.protocol.terms import ModelTerms
from inferd.settlement.disputes import Lie
from inferd.workers.checks import evidence
from inferd.workers.checks.evidence import Disagreement, Kind, Side
from scheduler.model import RequestKey
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


async def accuse(world: World, request_id: int, *, decided: bool = True) -> None:
    """Records that what the first of its workers said of a request is wrong."""
    row = await world.pool.fetchrow("SELECT * FROM node.result WHERE request_id = $1", request_id)
    accused = Side(row["worker"], row["digest"], row["signature"], row["output"], 5)
    async with world.pool.acquire() as connection:
        await evidence.record(
            connection,
            Disagreement(
                kind=Kind.SPOT,
                key=RequestKey(request_id, row["commitment"]),
                model_id=MODEL,
                accused=accused,
                others=(Side(world.workers[1], Hash32(b"\1" * 32), b"\1" * 64, b"truth", 5),),
                reason="two others say something else",
                decided=decided,
            ),
        )


async def as_arbiter(world: World, act: Any, *args: Any, **named: Any) -> None:
    await world.automine(True)
    await act(arbiter(world), world.contracts, *args, **named)
    await world.automine(False)
    await world.index()


def lie(number: int, bond_wei: int, workers: int = 1) -> Lie:
    """A result that somebody should dispute; those of higher numbers sooner."""
    someone = Address(b"\1" * 20)
    return Lie(
        Hold(
            request_id=number,
            commitment=Commitment(bytes(20)),
            digest=Hash32(bytes(32)),
            workers=(someone,) * workers,
            owners=(someone,) * workers,
            payment_wei=Wei(1),
            poster=someone,
            poster_wei=Wei(1),
            bond_wei=Wei(bond_wei),
            disputable_until_s=1_000 - number,
        ),
        number,
    )
