"""The calldata works: a request's whole life on a real chain, and errors read back into words."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi.exceptions import EncodingError
from eth_utils.address import to_checksum_address

from indexer.decode import Decoder
from indexer.events import (
    CancelRequested,
    Event,
    FeeRaised,
    GroupSkipped,
    InferenceFulfilled,
    PosterPaid,
    RequestRefunded,
    ResultSkipped,
    StakeWithdrawn,
    WorkerPaid,
)
from indexer.rpc import Receipt, RpcError
from inferd.chain.connect import read_view
from inferd.chain.requester import Submitted, submit, submit_many
from inferd.chain.transact import TransactionRefused
from inferd.protocol import calls
from inferd.protocol.request import params_hash
from inferd.protocol.result import ResultItem, digest_of
from inferd.protocol.reverts import decode_revert
from tests.chain.world import ETHER, GWEI, OWNER, POSTER, REQUESTER, WORKER, World

NO_ROOT = bytes(32)


def events(world: World, receipt: Receipt) -> list[Event]:
    decoder = Decoder(world.contracts)
    return [decoder.decode(log) for log in receipt.logs]


async def ask(world: World, fee_wei: int = ETHER // 100, **changes: Any) -> Submitted:
    params = await world.params(**changes)
    return await submit(world.sender(REQUESTER), world.contracts, params, fee_wei)


async def post(world: World, *groups: tuple[bytes, bytes]) -> list[Event]:
    data = calls.post([(items, [signature]) for items, signature in groups], NO_ROOT)
    return events(world, await world.sender(POSTER).send(world.contracts.results, data))


async def test_a_posted_result_is_on_chain_and_both_are_paid(world: World) -> None:
    await world.register()
    asked = await ask(world)
    digest = digest_of(b"the answer")
    group = world.sign([ResultItem(asked.request_id, asked.commitment, digest)])

    happened = await post(world, group)

    assert InferenceFulfilled(asked.request_id, world.address(WORKER), digest) in happened
    worker_wei, poster_wei = ETHER // 100 * 8 // 10, ETHER // 100 * 2 // 10
    assert WorkerPaid(world.address(WORKER), world.address(OWNER), 1, worker_wei) in happened
    assert PosterPaid(world.address(POSTER), poster_wei) in happened
    assert await world.requests_view("credits", world.checksum(OWNER)) == worker_wei


async def test_the_same_post_again_changes_nothing(world: World) -> None:
    await world.register()
    asked = await ask(world)
    group = world.sign([ResultItem(asked.request_id, asked.commitment, digest_of(b"x"))])
    await post(world, group)
    credit = await world.requests_view("credits", world.checksum(OWNER))

    assert await post(world, group) == [ResultSkipped(asked.request_id, 2)]
    assert await world.requests_view("credits", world.checksum(OWNER)) == credit


async def test_bad_groups_and_items_cost_the_good_ones_nothing(world: World) -> None:
    await world.register()
    asked = await ask(world)
    good = ResultItem(asked.request_id, asked.commitment, digest_of(b"x"))
    foreign = ResultItem(asked.request_id, bytes(20), digest_of(b"x"))

    happened = await post(
        world,
        world.sign([good], signer=REQUESTER),
        (b"short", bytes(64)),
        world.sign([foreign, good]),
    )

    kinds = [type(event).__name__ for event in happened]
    assert kinds[:4] == ["GroupSkipped", "GroupSkipped", "ResultSkipped", "InferenceFulfilled"]
    assert happened[0] == GroupSkipped(0, 3)
    assert happened[1] == GroupSkipped(1, 0)


async def test_withdraw_pays_the_whole_credit_out(world: World) -> None:
    await world.register()
    asked = await ask(world)
    await post(world, world.sign([ResultItem(asked.request_id, asked.commitment, bytes(32))]))
    receiver = b"\x77" * 20

    await world.sender(OWNER).send(world.contracts.requests, calls.withdraw_to(receiver))

    assert await world.rpc.balance(receiver) == ETHER // 100 * 8 // 10
    with pytest.raises(TransactionRefused, match=r"NothingToWithdraw\(account=0x"):
        await world.sender(OWNER).send(world.contracts.requests, calls.withdraw_to(receiver))


async def test_withdraw_without_a_receiver_pays_the_caller(world: World) -> None:
    owner, requests = world.sender(OWNER), world.contracts.requests
    credited = calls.credit(owner.address)
    await world.sender(POSTER).send(requests, credited, value_wei=5 * ETHER)
    before_wei = await world.rpc.balance(owner.address)

    receipt = await owner.send(requests, calls.withdraw())

    paid_wei = receipt.gas_used * receipt.effective_gas_price_wei
    assert await world.rpc.balance(owner.address) == before_wei + 5 * ETHER - paid_wei


async def test_an_expired_request_is_refunded_once(world: World) -> None:
    params = await world.params()
    asked = await submit(world.sender(REQUESTER), world.contracts, params, 5 * GWEI)
    claim = calls.refund([(asked.request_id, world.address(REQUESTER), params_hash(params))])
    await world.sender(POSTER).send(world.contracts.requests, claim)
    assert await world.requests_view("credits", world.checksum(REQUESTER)) == 0

    await world.pass_time(601)
    receipt = await world.sender(POSTER).send(world.contracts.requests, claim)

    refunded = RequestRefunded(asked.request_id, world.address(REQUESTER), 5 * GWEI)
    assert events(world, receipt) == [refunded]
    await world.sender(POSTER).send(world.contracts.requests, claim)
    assert await world.requests_view("credits", world.checksum(REQUESTER)) == 5 * GWEI


async def test_many_at_once_have_consecutive_ids(world: World) -> None:
    params = [await world.params(str(number).encode()) for number in range(3)]

    asked = await submit_many(
        world.sender(REQUESTER), world.contracts, params, [GWEI, 2 * GWEI, 3 * GWEI]
    )

    assert [request.request_id for request in asked] == [1, 2, 3]
    assert (await world.requests_view("recordOf", 3))[0] == 3


async def test_a_fee_can_be_raised_and_a_deadline_shortened(world: World) -> None:
    params = await world.params()
    sender = world.sender(REQUESTER)
    asked = await submit(sender, world.contracts, params, GWEI)
    requests = world.contracts.requests

    raised = await sender.send(requests, calls.raise_fee(asked.request_id), value_wei=GWEI)
    cancel = calls.request_cancel(asked.request_id, params_hash(params))
    cancelled = await sender.send(requests, cancel)

    assert events(world, raised) == [FeeRaised(asked.request_id, 2 * GWEI)]
    head = await world.rpc.header("latest")
    assert head is not None
    assert events(world, cancelled) == [CancelRequested(asked.request_id, head.timestamp_s + 60)]


async def test_stake_leaves_after_its_delay(world: World) -> None:
    await world.register()
    owner, stakes = world.sender(OWNER), world.contracts.stakes
    await owner.send(stakes, calls.unstake(world.address(WORKER), ETHER // 10))
    out = calls.withdraw_stake(world.address(WORKER), world.address(OWNER))
    with pytest.raises(TransactionRefused, match="StillBonded"):
        await owner.send(stakes, out)

    await world.pass_time(7 * 24 * 3600 + 1)
    receipt = await owner.send(stakes, out)

    signer = world.address(WORKER)
    assert events(world, receipt) == [StakeWithdrawn(signer, world.address(OWNER), ETHER // 10)]
    (active,) = await read_view(
        world.rpc,
        world.contracts.registry,
        "WorkerRegistry",
        "activeOwner",
        [world.checksum(WORKER)],
    )
    assert int(active, 16) == 0


async def test_a_revert_is_read_back_into_words(world: World) -> None:
    params = await world.params(deadline_s=1)
    with pytest.raises(RpcError) as refused:
        await world.rpc.call(
            world.contracts.requests, calls.submit(params), sender=world.address(REQUESTER)
        )

    words = decode_revert(refused.value.data)

    assert words == "FeeZero()"
    assert decode_revert(b"") is None
    assert decode_revert("0xnonsense") is None
    assert decode_revert("0x12345678") is None
    assert decode_revert(None) is None


async def test_arguments_of_an_error_are_named(world: World) -> None:
    params = await world.params(deadline_s=1)

    with pytest.raises(TransactionRefused, match=r"DeadlineNotInFuture\(deadline=1, timestamp=\d+"):
        await submit(world.sender(REQUESTER), world.contracts, params, GWEI)


@pytest.mark.parametrize("contract", ["InferenceRequests", "InferenceResults", "Disputes"])
def test_calldata_is_what_web3_makes_of_it(contract: str) -> None:
    """Of every function, with the arguments that its types name."""
    codec = calls.codec(contract)
    for function in codec.all_functions():
        arguments = [_any_of(argument) for argument in function.abi.get("inputs", ())]
        expected = codec.encode_abi(function.abi_element_identifier, args=arguments)
        assert calls.view(contract, function.fn_name, arguments).hex() == expected[2:]


def test_bytes_that_are_too_short_are_refused() -> None:
    with pytest.raises(EncodingError):
        calls.post([], bytes(31))


def _any_of(argument: Any) -> Any:
    kind: str = argument["type"]
    if kind.endswith("[]"):
        return [_any_of({**argument, "type": kind.removesuffix("[]")})] * 2
    if kind == "tuple":
        return tuple(map(_any_of, argument["components"]))
    values = {"address": "0x" + "Ab" * 20, "bool": True, "string": "text", "bytes": b"\x01\x02"}
    if kind == "address":
        return to_checksum_address(values[kind])
    if kind.startswith("bytes") and kind != "bytes":
        return bytes(range(1, int(kind.removeprefix("bytes")) + 1))
    return values.get(kind, 7)
