"""A requester's view: ask, look, cancel, and believe an answer only as far as the chain does."""

from __future__ import annotations

import pytest

from indexer.errors import ExitCode
from inferd.chain.requester import (
    ChainStatus,
    DigestMismatch,
    NotSettled,
    NotYourRequest,
    RequestClosed,
    RequestNotFound,
    cancel,
    check_result,
    read_request,
    submit,
)
from inferd.protocol import calls
from inferd.protocol.request import params_hash
from inferd.protocol.result import ResultItem, digest_of
from tests.chain.world import GWEI, OWNER, POSTER, REQUESTER, WORKER, World


async def test_a_request_is_read_back_as_it_was_submitted(world: World) -> None:
    params = await world.params(bytes(range(256)), memory_mb=77, batchable=False)
    asked = await submit(world.sender(REQUESTER), world.contracts, params, 7 * GWEI)

    found = await read_request(world.rpc, world.contracts, asked.request_id)

    assert found.params == params
    assert found.requester == world.address(REQUESTER)
    assert found.commitment == asked.commitment
    assert (found.tx_hash, found.block_number) == (asked.tx_hash, asked.block_number)
    assert found.params_hash == params_hash(params)
    assert (found.status, found.fee_wei) == (ChainStatus.PENDING, 7 * GWEI)
    assert found.deadline_s == params.deadline_s


async def test_cancel_needs_only_the_id(world: World) -> None:
    sender = world.sender(REQUESTER)
    asked = await submit(sender, world.contracts, await world.params(), GWEI)

    done = await cancel(sender, world.contracts, asked.request_id)

    found = await read_request(world.rpc, world.contracts, asked.request_id)
    assert found.deadline_s == done.deadline_s < found.params.deadline_s
    again = await cancel(sender, world.contracts, asked.request_id)
    assert again.deadline_s == done.deadline_s


async def test_nobody_else_can_cancel(world: World) -> None:
    asked = await submit(world.sender(REQUESTER), world.contracts, await world.params(), GWEI)

    with pytest.raises(NotYourRequest, match=world.checksum(REQUESTER)):
        await cancel(world.sender(OWNER), world.contracts, asked.request_id)


async def test_an_expired_request_is_not_cancelled(world: World) -> None:
    sender = world.sender(REQUESTER)
    asked = await submit(sender, world.contracts, await world.params(), GWEI)
    await world.pass_time(601)

    with pytest.raises(RequestClosed, match="expired"):
        await cancel(sender, world.contracts, asked.request_id)


@pytest.mark.parametrize("request_id", [0, 1, 2**63, 2**64, -1])
async def test_unknown_ids(world: World, request_id: int) -> None:
    with pytest.raises(RequestNotFound):
        await read_request(world.rpc, world.contracts, request_id)
    with pytest.raises(RequestNotFound):
        await cancel(world.sender(REQUESTER), world.contracts, request_id)
    with pytest.raises(RequestNotFound):
        await check_result(world.rpc, world.contracts, request_id, b"")


async def test_an_answer_is_checked_against_the_chain(world: World) -> None:
    await world.register()
    params = await world.params()
    asked = await submit(world.sender(REQUESTER), world.contracts, params, GWEI)
    with pytest.raises(NotSettled) as early:
        await check_result(world.rpc, world.contracts, asked.request_id, b"yes")
    assert early.value.exit_code is ExitCode.TRY_AGAIN
    items, signature = world.sign(
        [ResultItem(asked.request_id, asked.commitment, digest_of(b"yes"))]
    )
    data = calls.post([(items, [signature])], bytes(32))
    receipt = await world.sender(POSTER).send(world.contracts.results, data)

    checked = await check_result(world.rpc, world.contracts, asked.request_id, b"yes")

    assert checked.worker == world.address(WORKER)
    assert (checked.tx_hash, checked.block_number) == (receipt.tx_hash, receipt.block_number)
    with pytest.raises(DigestMismatch) as refused:
        await check_result(world.rpc, world.contracts, asked.request_id, b"no")
    assert refused.value.exit_code is ExitCode.NOT_AS_PROMISED


async def test_a_refunded_request_has_no_answer(world: World) -> None:
    params = await world.params()
    asked = await submit(world.sender(REQUESTER), world.contracts, params, GWEI)
    await world.pass_time(601)
    with pytest.raises(RequestClosed, match="expired"):
        await check_result(world.rpc, world.contracts, asked.request_id, b"yes")
    claim = (asked.request_id, world.address(REQUESTER), params_hash(params))
    await world.sender(POSTER).send(world.contracts.requests, calls.refund([claim]))

    with pytest.raises(RequestClosed, match="refunded"):
        await check_result(world.rpc, world.contracts, asked.request_id, b"yes")
