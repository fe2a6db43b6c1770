"""The demo's last act: what the node says is held against the chain, to the wei."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.errors import OperatorError
from indexer.rpc import Receipt
from indexer.types import Address, Hash32
from inferd.chain.connect import read_view
from inferd.chain.requester import check_result
from inferd.cli.client import NodeClient
from inferd.cli.result import fetch_output
from inferd.demo.script import DemoRequest
from inferd.demo.world import World
from inferd.node.api_models import RequestState, RequestView


@dataclass(frozen=True, slots=True)
class Answer:
    """One settled request with its output."""

    request_id: int
    model: str
    prompt: str
    output: bytes
    digest: Hash32
    worker: Address
    tx_hash: Hash32


@dataclass(frozen=True, slots=True)
class Post:
    """One transaction with results in it."""

    tx_hash: str
    block_number: int
    results: int
    gas_used: int


@dataclass(frozen=True, slots=True)
class Report:
    """What the demo shows at its end; `broken` lists every promise that does not hold."""

    answers: tuple[Answer, ...]
    posts: tuple[Post, ...]
    refunded: tuple[int, ...]
    credits_wei: Mapping[str, int]
    broken: tuple[str, ...]


async def verify(
    world: World, asked: Mapping[int, DemoRequest], views: Mapping[int, RequestView]
) -> Report:
    """Reads the chain again and compares; never raises for a broken promise."""
    broken: list[str] = []
    answers: list[Answer] = []
    refunded: list[int] = []
    for request_id, request in asked.items():
        state = views[request_id].state
        if state != request.outcome:
            broken.append(f"request {request_id} was to be {request.outcome} and is {state}")
        if state is RequestState.REFUNDED:
            refunded.append(request_id)
        elif state is RequestState.SETTLED:
            try:
                answers.append(await _answer(world, request_id, request))
            except OperatorError as error:
                broken.append(f"request {request_id}: {error.message}")
    posts = await _posts(world, views)
    if sum(post.results for post in posts) != len(answers):
        broken.append(f"{len(answers)} answers, but the posts hold another number of results")
    credits_wei = await _credits(world)
    broken += await _money_is_right(world, asked, views, credits_wei)
    return Report(tuple(answers), tuple(posts), tuple(refunded), credits_wei, tuple(broken))


async def _answer(world: World, request_id: int, request: DemoRequest) -> Answer:
    async with NodeClient(world.node_url) as client:
        output = await fetch_output(client, await client.result(request_id))
    checked = await check_result(world.rpc, world.deployment.contracts, request_id, output)
    return Answer(
        request_id,
        request.model,
        request.prompt,
        output,
        checked.digest,
        checked.worker,
        checked.tx_hash,
    )


async def _posts(world: World, views: Mapping[int, RequestView]) -> list[Post]:
    results = Counter(view.tx_hash for view in views.values() if view.state is RequestState.SETTLED)
    posts = []
    for tx_hash, count in results.items():
        receipt = await _receipt(world, tx_hash or "")
        posts.append(Post(tx_hash or "", receipt.block_number, count, receipt.gas_used))
    return sorted(posts, key=lambda post: post.block_number)


async def _receipt(world: World, tx_hash: str) -> Receipt:
    receipt = await world.rpc.receipt(Hash32(bytes.fromhex(tx_hash.removeprefix("0x"))))
    if receipt is None:
        raise OperatorError(
            f"transaction {tx_hash} is not on chain", help_text="look into the node's log"
        )
    return receipt


async def _credits(world: World) -> dict[str, int]:
    """Withdrawable amounts by who they belong to."""
    accounts = {**world.settings.named_posters, "requester": world.settings.requester}
    for worker in world.settings.workers:
        if worker.owner is not None:
            accounts[f"owner of worker {worker.name}"] = worker.owner
    credits_wei = {}
    for name, source in accounts.items():
        address = world.account(source).address
        (amount,) = await read_view(
            world.rpc,
            world.deployment.contracts.requests,
            "InferenceRequests",
            "credits",
            [to_checksum_address(to_canonical_address(address))],
        )
        credits_wei[name] = amount
    return credits_wei


async def _money_is_right(
    world: World,
    asked: Mapping[int, DemoRequest],
    views: Mapping[int, RequestView],
    credits_wei: Mapping[str, int],
) -> list[str]:
    broken = []
    paid_wei = sum(request.fee_wei for request in asked.values())
    held_wei = await world.rpc.balance(world.deployment.contracts.requests)
    if held_wei != paid_wei:
        broken.append(f"the contract holds {held_wei} wei and was paid {paid_wei}")
    if sum(credits_wei.values()) != paid_wei:
        broken.append(f"credits add up to {sum(credits_wei.values())} wei of {paid_wei} paid")
    back_wei = sum(
        asked[request_id].fee_wei
        for request_id, view in views.items()
        if view.state is RequestState.REFUNDED
    )
    if credits_wei["requester"] != back_wei:
        broken.append(f"the requester is owed {back_wei} wei, credited {credits_wei['requester']}")
    return broken
