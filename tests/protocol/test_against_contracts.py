"""Every hash and signature of ours equals what the contracts compute."""

from __future__ import annotations

from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey

from inferd.chain.connect import read_view
from inferd.chain.requester import submit
from inferd.protocol.request import RequestParams, commitment, model_id, params_hash
from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.typed_data import (
    BadSignature,
    CompactSignature,
    consent_digest,
    domain_separator,
    group_digest,
    recover,
    sign_digest,
)
from tests.chain.world import OWNER, REQUESTER, WORKER, World

HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0


async def view(world: World, contract: str, function: str, *arguments: Any) -> Any:
    address = {
        "InferenceRequests": world.contracts.requests,
        "InferenceResults": world.contracts.results,
        "WorkerRegistry": world.contracts.registry,
    }[contract]
    return (await read_view(world.rpc, address, contract, function, arguments))[0]


@pytest.mark.parametrize("contract", ["InferenceResults", "WorkerRegistry"])
async def test_domain_separators(world: World, contract: str) -> None:
    address = (
        world.contracts.results if contract == "InferenceResults" else world.contracts.registry
    )

    ours = domain_separator(world.contracts.chain_id, address)

    assert await view(world, contract, "domainSeparator") == ours


async def test_group_digest(world: World) -> None:
    items = pack_items([ResultItem(1, bytes(range(20)), bytes(range(32)))])
    domain = domain_separator(world.contracts.chain_id, world.contracts.results)

    assert await view(world, "InferenceResults", "groupDigest", items) == group_digest(
        domain, items
    )


async def test_consent_digest(world: World) -> None:
    domain = domain_separator(world.contracts.chain_id, world.contracts.registry)
    ours = consent_digest(domain, world.address(OWNER), world.address(WORKER))
    asked = (world.checksum(OWNER), world.checksum(WORKER))

    assert await view(world, "WorkerRegistry", "consentDigest", *asked) == ours


async def test_commitment(world: World) -> None:
    hashed = params_hash(await world.params())
    ours = commitment(
        world.contracts.chain_id, world.contracts.requests, 7, world.address(REQUESTER), hashed
    )
    asked = (7, world.checksum(REQUESTER), hashed)

    assert await view(world, "InferenceRequests", "commitmentOf", *asked) == ours


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model_id": model_id("другая модель")},
        {"max_tokens": 2**32 - 1},
        {"deadline_s": 2**40 - 1},
        {"memory_mb": 2**32 - 1},
        {"batchable": False},
        {"input": b""},
        {"input": bytes(range(256)) * 5},
    ],
    ids=str,
)
async def test_params_hash(world: World, changes: dict[str, Any]) -> None:
    """Through `submit`: the contract stores the commitment over its own hash of the parameters."""
    params = await world.params(**changes)
    sender = world.sender(REQUESTER)

    submitted = await submit(sender, world.contracts, params, 10**9)

    ours = commitment(
        world.contracts.chain_id,
        world.contracts.requests,
        submitted.request_id,
        sender.address,
        params_hash(params),
    )
    assert submitted.commitment == ours
    record = await view(world, "InferenceRequests", "recordOf", submitted.request_id)
    assert record[2] == ours


def test_different_parameters_have_different_hashes() -> None:
    base: dict[str, Any] = {
        "model_id": model_id("a"),
        "max_tokens": 1,
        "deadline_s": 2,
        "memory_mb": 3,
        "input": b"x",
        "callback_gas_limit": 0,
        "quorum": 1,
        "batchable": True,
    }
    changes: dict[str, Any] = {
        "model_id": model_id("b"),
        "max_tokens": 2,
        "deadline_s": 3,
        "memory_mb": 4,
        "input": b"y",
        "callback_gas_limit": 1,
        "quorum": 2,
        "batchable": False,
    }
    hashes = {params_hash(RequestParams(**base))}
    for name, value in changes.items():
        hashes.add(params_hash(RequestParams(**(base | {name: value}))))

    assert len(hashes) == 1 + len(changes)


def test_a_signature_names_its_signer() -> None:
    key = PrivateKey(b"\x11" * 32)
    digest = b"\x22" * 32

    signature = sign_digest(key, digest)

    assert recover(digest, signature) == key.public_key.to_canonical_address()
    assert signature == sign_digest(key, digest)
    by_its_library = key.sign_msg_hash(digest)
    assert int.from_bytes(signature[:32], "big") == by_its_library.r
    assert int.from_bytes(signature[32:], "big") == by_its_library.s | by_its_library.v << 255


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        bytes(63),
        bytes(64),
        b"\x11" * 32 + (HALF_ORDER + 1).to_bytes(32, "big"),
        b"\xff" * 32 + b"\x01" * 32,
    ],
)
def test_what_the_contracts_refuse_is_refused(signature: bytes) -> None:
    with pytest.raises(BadSignature):
        recover(b"\x22" * 32, CompactSignature(signature))
