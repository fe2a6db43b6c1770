"""Registration does what is missing and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from inferd.chain.connect import read_view
from inferd.chain.deploy import DeploymentTerms, deploy
from inferd.chain.register import Registration, WorkerOwnedByOther, register_worker
from tests.chain.world import DEPLOYER, ETHER, MODEL, OWNER, REQUESTER, WORKER, World


async def register(
    world: World,
    *,
    models: tuple[str, ...] = (MODEL,),
    slots: int = 2,
    stake_wei: int | None = None,
) -> Registration:
    return await register_worker(
        world.sender(OWNER), world.account(WORKER), models, slots, 512, stake_wei, world.contracts
    )


async def active_owner(world: World) -> str:
    asked = [world.checksum(WORKER)]
    (owner,) = await read_view(
        world.rpc, world.contracts.registry, "WorkerRegistry", "activeOwner", asked
    )
    return str(owner)


async def test_a_new_worker_is_registered_staked_and_active(world: World) -> None:
    done = await register(world)

    assert (done.registered, done.updated) == (True, False)
    assert done.added_stake_wei == done.stake_wei == ETHER // 10
    assert await active_owner(world) == world.checksum(OWNER).lower()


async def test_again_sends_nothing(world: World) -> None:
    await register(world)
    nonce = await world.rpc.nonce(world.address(OWNER))

    done = await register(world)

    assert (done.registered, done.updated, done.added_stake_wei) == (False, False, 0)
    assert done.stake_wei == ETHER // 10
    assert await world.rpc.nonce(world.address(OWNER)) == nonce


@pytest.mark.parametrize("change", [{"slots": 3}, {"models": ("other",)}])
async def test_another_offer_is_updated_once(world: World, change: dict[str, Any]) -> None:
    await register(world)

    assert (await register(world, **change)).updated
    assert not (await register(world, **change)).updated


async def test_stake_is_brought_to_what_is_asked(world: World) -> None:
    await register(world)

    done = await register(world, stake_wei=ETHER)

    assert (done.added_stake_wei, done.stake_wei) == (ETHER - ETHER // 10, ETHER)
    assert (await register(world, stake_wei=1)).added_stake_wei == 0


async def test_a_worker_of_another_owner_is_left_alone(world: World) -> None:
    await register(world)

    with pytest.raises(WorkerOwnedByOther, match=world.checksum(OWNER)):
        await register_worker(
            world.sender(REQUESTER), world.account(WORKER), [MODEL], 2, 512, None, world.contracts
        )


async def test_without_a_minimum_a_worker_is_active_all_the_same(world: World) -> None:
    free = await deploy(world.sender(DEPLOYER), DeploymentTerms(min_stake_wei=0))
    world = World(world.anvil, world.rpc, free)

    assert (await register(world)).stake_wei == 1
    assert await active_owner(world) == world.checksum(OWNER).lower()
    assert (await register(world)).added_stake_wei == 0
