"""Results that several workers signed, on a real chain: one group, shared payments, and no loss."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from eth_abi.abi import decode
from eth_account import Account
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.types import Address
from inferd.chain.register import register_worker
from inferd.chain.transact import Sender
from inferd.protocol.calls import codec
from inferd.protocol.typed_data import CompactSignature
from inferd.settlement.batch import load_ready
from inferd.settlement.receipts import posted_groups, posted_signatures
from inferd.settlement.releases import RELEASE_FIXED_GAS
from inferd.settlement.settings import SettlementSettings
from inferd.settlement.terms import release_gas
from tests.settlement.held import WINDOW_S, hold_states, pass_time, set_terms
from tests.settlement.test_accounts_equal_the_chain import Books
from tests.settlement.world import ETHER, GWEI, POSTER_BPS, World

FEE = ETHER // 100 + 7 * GWEI
"""Does not divide by three, after the poster's share."""
FEE_LEFT = FEE - FEE * POSTER_BPS // 10_000
OWNERS = 4, 5, 6, 7


@pytest.fixture
async def crowd(world: World) -> AsyncIterator[list[Address]]:
    """Four more workers, each of an owner of its own, by rising address."""
    await world.automine(True)
    made = []
    for seed, number in enumerate(OWNERS, 11):
        account = Account.from_key(seed.to_bytes(32, "big"))
        key = PrivateKey(bytes(account.key))
        address = Address(key.public_key.to_canonical_address())
        owner = Sender(world.rpc, world.anvil.config.account(number), world.contracts.chain_id)
        await register_worker(owner, account, ["test-model"], 4, 0, None, world.contracts)
        world.worker_keys[address] = key
        made.append(address)
    await world.automine(False)
    await world.index()
    yield sorted(made)


async def owner_of(world: World, worker: Address) -> Address:
    owner: Address = await world.pool.fetchval(
        "SELECT owner FROM chain.worker WHERE signer = $1", worker
    )
    return owner


async def groups_of(world: World) -> list[tuple[int, int]]:
    """Of all posts: items and signatures of each group."""
    found = []
    for intent in await world.intents():
        if intent["kind"] == "post":
            groups, _ = decode(("(bytes,(bytes32,bytes32)[])[]", "bytes32"), intent["calldata"][4:])
            found += [(len(items) // 60, len(signatures)) for items, signatures in groups]
    return sorted(found)


async def test_two_requests_of_the_same_workers_share_a_group__and_each_owner_is_paid(
    world: World, crowd: list[Address]
) -> None:
    signers = crowd[:3]
    books = Books(world)
    owner = await owner_of(world, signers[0])
    books.own = frozenset({*books.own, owner, await owner_of(world, signers[1])})
    await books.open()
    ids = await world.submit(2, fee_wei=FEE, quorum=3)
    alone = await world.submit(1, fee_wei=FEE)
    for worker in reversed(signers):
        await world.compute(ids, worker)
    await world.compute(alone, crowd[3])
    settlement = world.settlement()
    await world.tick(settlement, 6)
    assert set((await world.statuses()).values()) == {"fulfilled"}
    assert await groups_of(world) == [(1, 1), (2, 3)]
    assert sorted(world.groups_signed) == [(worker, 2) for worker in signers]
    for place, worker in enumerate(signers):
        rest_wei = FEE_LEFT % 3 if place == 0 else 0
        assert await world.credit(await owner_of(world, worker)) == 2 * (FEE_LEFT // 3 + rest_wei)
    observed = await world.pool.fetchrow("SELECT groups, items FROM node.gas_observation")
    assert tuple(observed) == (4, 3), "each signature counts"
    (post,) = await world.intents()
    # Each owner, and the poster, may withdraw its credit meanwhile.
    room = post["gas_limit"] - post["inputs"]["estimated_gas"]
    assert room >= (4 + 1) * 17_100
    rows = await world.pool.fetch(
        "SELECT worker, others FROM node.tx_item WHERE request_id = ANY($1)", ids
    )
    assert [tuple(row) for row in rows] == [(signers[0], signers[1:])] * 2
    await books.compare()
    lines = await books.lines()
    joint = {line.request_id: line for line in lines if line.request_id in ids}
    for line in joint.values():
        assert line.worker_fee_wei == FEE_LEFT // 3 * 2 + FEE_LEFT % 3


async def test_one_that_does_not_sign_together__each_goes_with_its_own_signatures(
    world: World, crowd: list[Address]
) -> None:
    ids = await world.submit(3, quorum=2)
    for worker in crowd[:2]:
        await world.compute(ids, worker)
    settlement = world.settlement()
    sign = world.sign_group

    async def unwilling(worker: Address, items: bytes) -> CompactSignature:
        if worker == crowd[1]:
            raise ConnectionError("it is gone")
        return await sign(worker, items)

    settlement._poster._sign_group = unwilling
    await world.tick(settlement, 6)
    assert set((await world.statuses()).values()) == {"fulfilled"}
    assert await groups_of(world) == [(1, 2)] * 3


async def test_what_was_agreed_on_is_posted__and_nothing_where_nothing_was(
    world: World, crowd: list[Address]
) -> None:
    agreed, split, short = await world.submit(3, quorum=2)
    for worker in crowd[1:3]:
        await world.compute([agreed], worker)
    await world.compute([agreed], crowd[0], output=b"a lie")
    for place, worker in enumerate(crowd):
        await world.compute([split], worker, output=b"even" if place % 2 else b"odd")
    await world.compute([short], crowd[0])
    # The two of the world have one owner: together they are one voice.
    for worker in [one for one in world.workers if one not in crowd]:
        await world.compute([short], worker, output=b"another")
    settlement = world.settlement()
    await world.tick(settlement, 6)
    assert await world.items() == {agreed: ["settled"]}
    assert await world.fulfilled_events() == {agreed: 1}
    digest = await world.pool.fetchval("SELECT digest FROM chain.request WHERE id = $1", agreed)
    stored = await world.pool.fetch(
        "SELECT worker FROM node.result WHERE request_id = $1 AND digest = $2", agreed, digest
    )
    assert sorted(row["worker"] for row in stored) == crowd[1:3]
    assert settlement.status.ready == 0


async def test_the_deadline_passes_without_agreement__and_the_fee_is_repaid(
    world: World, crowd: list[Address]
) -> None:
    (number,) = await world.submit(1, quorum=2, lifetime_s=100)
    for place, worker in enumerate(crowd[:2]):
        await world.compute([number], worker, output=b"%d" % place)
    settlement = world.settlement(refund_min_fee_ratio=0.0)
    await world.tick(settlement, 2)
    await world.rpc.request("evm_increaseTime", [200])
    await world.tick(settlement, 8)
    assert await world.statuses() == {number: "refunded"}
    assert await world.items() == {number: ["refunded"]}
    requester = Address(to_canonical_address(world.anvil.config.account(1).address))
    assert await world.credit(requester) == ETHER // 100


async def test_own_workers_come_first__and_their_shares_are_revenue(
    world: World, crowd: list[Address]
) -> None:
    ids = await world.submit(1, fee_wei=FEE, quorum=2)
    for worker in crowd:
        await world.compute(ids, worker)
    own = frozenset({await owner_of(world, crowd[3])})
    head = await world.index()

    async def ready(accounts: frozenset[Address]) -> Any:
        settings = SettlementSettings(POSTER_BPS, own_accounts=accounts)
        (result,) = await load_ready(world.pool, head, settings, max_gas=10**7)
        return result

    strangers = await ready(frozenset())
    assert strangers.workers == tuple(crowd[:2])
    assert strangers.ready.revenue_wei == FEE - FEE_LEFT
    mine = await ready(own)
    assert mine.workers == (crowd[0], crowd[3])
    assert mine.ready.revenue_wei == FEE - FEE_LEFT + FEE_LEFT // 2


async def test_a_worker_that_left_meanwhile_spoils_its_group_only__and_another_takes_its_place(
    world: World, crowd: list[Address]
) -> None:
    """Its registration ends in the block of the post: the contract passes over the group."""
    first, second = await world.submit(2, quorum=2)
    for worker in crowd[:2]:
        await world.compute([first], worker)
    for worker in crowd[2:]:
        await world.compute([second], worker)
    settlement = world.settlement(confirmations=1)
    await settlement.step(await world.mine())
    await disable_first(world, crowd[0])
    await world.tick(settlement, 4)
    assert (await world.statuses()) == {first: "pending", second: "fulfilled"}
    await world.compute([first], crowd[3])
    await world.tick(settlement, 8)
    assert (await world.statuses())[first] == "fulfilled"
    assert (await world.items())[first] == ["skipped:group_inactive_worker", "settled"]
    assert await world.fulfilled_events() == {first: 1, second: 1}


async def disable_first(world: World, worker: Address) -> None:
    """By a transaction that is mined before those of ours."""
    owner = await owner_of(world, worker)
    account = next(
        one
        for one in map(world.anvil.config.account, OWNERS)
        if to_canonical_address(one.address) == owner
    )
    signed = account.sign_transaction(
        {
            "type": 2,
            "chainId": world.contracts.chain_id,
            "nonce": await world.rpc.nonce(owner),
            "to": to_checksum_address(world.contracts.registry),
            "value": 0,
            "data": codec("WorkerRegistry").encode_abi(
                "setEnabled", args=[to_checksum_address(worker), False]
            ),
            "gas": 100_000,
            "maxFeePerGas": 100 * GWEI,
            "maxPriorityFeePerGas": 50 * GWEI,
        }
    )
    await world.rpc.send_raw_transaction(bytes(signed.raw_transaction))


async def test_a_quorum_under_a_window__held_for_each_owner__released_to_the_wei(
    world: World, crowd: list[Address]
) -> None:
    await set_terms(world)
    signers = crowd[:3]
    ids = await world.submit(2, fee_wei=FEE, quorum=3)
    for worker in signers:
        await world.compute(ids, worker)
    owners = [await owner_of(world, worker) for worker in signers]
    books = Books(world)
    books.own = frozenset({*books.own, owners[0], owners[2]})
    await books.open()
    settlement = world.settlement(own_accounts=frozenset({owners[0]}))
    await world.tick(settlement, 4)
    assert await hold_states(world) == dict.fromkeys(ids, "held")
    (post,) = await world.intents()
    assert [len(items) for items in posted_groups(post["calldata"])] == [2]
    assert posted_signatures(post["calldata"]) == 3
    held = await world.pool.fetchrow("SELECT workers, owners FROM chain.hold")
    assert (held["workers"], held["owners"]) == (signers, owners)
    await books.compare()

    await pass_time(world, WINDOW_S + 1)
    await world.tick(settlement, 4)
    assert await hold_states(world) == dict.fromkeys(ids, "released")
    gas = await world.pool.fetchval("SELECT max(gas_used) FROM node.tx_attempt WHERE nonce = 1")
    fresh = 17_100 * len({*owners, world.poster.address})
    expected = RELEASE_FIXED_GAS + 2 * release_gas(3)
    assert abs(gas - fresh - expected) < expected // 10
    for place, owner in enumerate(owners):
        rest_wei = FEE_LEFT % 3 if place == 0 else 0
        assert await world.credit(owner) == 2 * (FEE_LEFT // 3 + rest_wei)
    assert await world.credit(world.poster.address) == 2 * (FEE - FEE_LEFT)
    report = await books.compare()
    assert report.total.released_wei == 2 * (FEE - FEE_LEFT + FEE_LEFT // 3 * 2 + FEE_LEFT % 3)
