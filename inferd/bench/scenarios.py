"""What is measured: each function sends its transactions and gives the gas of one of them."""

from __future__ import annotations

from collections.abc import Sequence

from eth_abi.abi import encode
from eth_keys.datatypes import PrivateKey

from indexer.events import (
    CallbackDelivered,
    Equivocated,
    InferenceFulfilled,
    InferenceRequested,
    RequestRefunded,
)
from indexer.types import Address
from inferd.bench.arena import (
    FAR_S,
    FEE_WEI,
    LATER_S,
    LIAR,
    MODEL,
    NEWCOMER,
    POSTER,
    REPORTER,
    REQUESTER,
    WORKERS,
    Arena,
    Group,
)
from inferd.chain.events import expect_events
from inferd.chain.requester import Submitted
from inferd.protocol import calls
from inferd.protocol.artifacts import load
from inferd.protocol.request import (
    Commitment,
    Delivery,
    RequestParams,
    model_id,
    params_hash,
)
from inferd.protocol.result import ResultItem, SignedItem, digest_of, pack_items
from inferd.protocol.typed_data import consent_digest, domain_separator, sign_digest

_OUTPUT_BYTES = 64
_CALLBACK_GAS = 20_000
"""What the contract Emitter reserves."""


async def request(arena: Arena, input_bytes: int) -> int:
    """One `submit`."""
    await arena.make_room(1)
    data = calls.submit(arena.params(input_bytes))
    receipt = await arena.sender(REQUESTER).send(arena.contracts.requests, data, value_wei=FEE_WEI)
    (asked,) = expect_events(receipt, arena.contracts, arena.contracts.requests, InferenceRequested)
    arena.took(asked.request_id)
    return receipt.gas_used


async def request_batch(arena: Arena, count: int) -> int:
    """One `submitMany`."""
    await arena.make_room(count)
    params = [arena.params() for _ in range(count)]
    data = calls.submit_many(params, [FEE_WEI] * count)
    receipt = await arena.sender(REQUESTER).send(
        arena.contracts.requests, data, value_wei=FEE_WEI * count
    )
    asked = expect_events(
        receipt, arena.contracts, arena.contracts.requests, InferenceRequested, count
    )
    arena.took(asked[-1].request_id)
    return receipt.gas_used


async def raise_fee(arena: Arena) -> int:
    (asked,) = await arena.ask(1)
    data = calls.raise_fee(asked.request_id)
    sender = arena.sender(REQUESTER)
    return (await sender.send(arena.contracts.requests, data, value_wei=FEE_WEI)).gas_used


async def result(arena: Arena, *, root: bool) -> int:
    """One `post` of one result."""
    items = arena.results(await arena.ask(1))
    return await _post(arena, [arena.group(items, WORKERS[:1])], 1, root=root)


async def results_of_one(arena: Arena, count: int) -> int:
    """One `post` of one worker's group."""
    items = arena.results(await arena.ask(count))
    return await _post(arena, [arena.group(items, WORKERS[:1])], count)


async def results_of_all(arena: Arena, count: int, delivery: Delivery) -> int:
    """One `post` of a group of each worker."""
    items = arena.results(await arena.ask(count, delivery=delivery))
    return await _post(arena, arena.groups(items), count)


async def results_of_quorum(arena: Arena, count: int, quorum: int) -> int:
    """One `post` of one group that several workers have signed."""
    items = arena.results(await arena.ask(count, quorum=quorum))
    return await _post(arena, [arena.group(items, WORKERS[:quorum])], count)


async def callbacks(arena: Arena, count: int) -> int:
    """One `deliver` to a contract that emits each output; its own gas is in it."""
    consumer = await _emitter(arena)
    await arena.make_room(count)
    question = arena.random.randbytes(32)
    asked = await _ask_from(arena, consumer, count, question)
    outputs = [arena.random.randbytes(_OUTPUT_BYTES) for _ in asked]
    items = [
        ResultItem(one.request_id, one.commitment, digest_of(output))
        for one, output in zip(asked, outputs, strict=True)
    ]
    await _post(arena, [arena.group(items, WORKERS[:1])], count)
    params = RequestParams(
        model_id(MODEL),
        0,
        FAR_S,
        0,
        question,
        callback_gas_limit=_CALLBACK_GAS,
        delivery=Delivery.CALLBACK,
    )
    data = calls.deliver(
        [
            (one.request_id, consumer, params, output)
            for one, output in zip(asked, outputs, strict=True)
        ]
    )
    receipt = await arena.sender(POSTER).send(arena.contracts.results, data)
    expect_events(receipt, arena.contracts, arena.contracts.results, CallbackDelivered, count)
    return receipt.gas_used


async def refunds(arena: Arena, count: int) -> int:
    """One `refund` of one requester's expired requests; time passes for all others too."""
    await arena.make_room(count)
    params = [arena.params(deadline_s=LATER_S) for _ in range(count)]
    asked = await arena.submit(params)
    await arena.pass_time(LATER_S + 1)
    requester = arena.address(REQUESTER)
    claims = [
        (one.request_id, requester, params_hash(each))
        for one, each in zip(asked, params, strict=True)
    ]
    receipt = await arena.sender(POSTER).send(arena.contracts.requests, calls.refund(claims))
    expect_events(receipt, arena.contracts, arena.contracts.requests, RequestRefunded, count)
    return receipt.gas_used


async def withdraw(arena: Arena) -> int:
    """The whole credit of a worker's owner, to itself."""
    owner = arena.owner_of(WORKERS[-1])
    return (await owner.send(arena.contracts.requests, calls.withdraw())).gas_used


async def register(arena: Arena) -> int:
    """One `register`, with one model and an endpoint of 32 bytes; the stake is extra."""
    owner = arena.owner_of(NEWCOMER)
    signer = arena.address(NEWCOMER)
    domain = domain_separator(arena.contracts.chain_id, arena.contracts.registry)
    key = PrivateKey(bytes(arena.account(NEWCOMER).key))
    consent = sign_digest(key, consent_digest(domain, owner.address, signer))
    endpoint = "https://worker.example.org:8700/v"
    data = calls.register_worker(signer, [model_id(MODEL)], endpoint[:32], 4, 1024, consent)
    return (await owner.send(arena.contracts.registry, data)).gas_used


async def equivocation(arena: Arena) -> int:
    """One `slashEquivocation` with two groups of one item."""
    said = [
        ResultItem(1, Commitment(bytes(20)), digest_of(output)) for output in (b"one", b"other")
    ]
    packed = [pack_items([item]) for item in said]
    one, other = (SignedItem(items, arena.sign(items, LIAR), 0) for items in packed)
    data = calls.slash_equivocation(one, other)
    receipt = await arena.sender(REPORTER).send(arena.contracts.stakes, data)
    expect_events(receipt, arena.contracts, arena.contracts.stakes, Equivocated)
    return receipt.gas_used


async def _post(arena: Arena, groups: Sequence[Group], count: int, *, root: bool = True) -> int:
    receipt = await arena.post(groups, root=root)
    expect_events(receipt, arena.contracts, arena.contracts.requests, InferenceFulfilled, count)
    return receipt.gas_used


async def _emitter(arena: Arena) -> Address:
    code = load("Emitter").bytecode + encode(("address",), (arena.contracts.requests,))
    created = (await arena.sender(REQUESTER).send(None, code)).contract_address
    if created is None:
        raise RuntimeError("a receipt of a creation names no contract")
    return created


async def _ask_from(
    arena: Arena, consumer: Address, count: int, question: bytes
) -> tuple[Submitted, ...]:
    data = calls.view("Emitter", "ask", [count, FAR_S, question])
    receipt = await arena.sender(REQUESTER).send(consumer, data, value_wei=FEE_WEI * count)
    asked = expect_events(
        receipt, arena.contracts, arena.contracts.requests, InferenceRequested, count
    )
    arena.took(asked[-1].request_id)
    return tuple(
        Submitted(one.request_id, Commitment(one.commitment), receipt.tx_hash, receipt.block_number)
        for one in asked
    )
