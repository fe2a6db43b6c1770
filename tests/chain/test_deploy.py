"""Five contracts that know each other, or a clear word that they do not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from eth_utils.address import to_canonical_address

from indexer.errors import NoContractCode, RpcUnreachable, WrongChain
from indexer.rpc import Rpc
from indexer.types import Address, Contracts
from inferd.chain import deploy as module
from inferd.chain.connect import check_chain, read_view
from inferd.chain.deploy import (
    BURNT,
    NOBODY,
    BadTerms,
    DeploymentDisturbed,
    create_address,
    deploy,
)
from inferd.chain.transact import Sender
from inferd.protocol.deployment import BadDeploymentFile, Deployment, load_deployment
from tests.chain.world import DEPLOYER, ETHER, TERMS, World
from tests.indexer.scripted import result, scripted_node


async def test_the_terms_are_those_given(world: World) -> None:
    assert await world.requests_view("posterBps") == 2_000
    assert await world.requests_view("cancelDelay") == 60
    assert await world.requests_view("nextId") == 1
    stakes = world.contracts.stakes
    assert await read_view(world.rpc, stakes, "StakeManager", "minStakeWei") == (ETHER // 10,)
    assert await read_view(world.rpc, stakes, "StakeManager", "unbondingDelay") == (604_800,)
    assert await read_view(world.rpc, stakes, "StakeManager", "reporterBps") == (1_000,)
    disputes = world.contracts.disputes
    assert await read_view(world.rpc, disputes, "Disputes", "rulingPeriod") == (259_200,)


async def test_the_deployer_owns_and_rules_unless_others_are_named(world: World) -> None:
    deployer = world.checksum(DEPLOYER).lower()
    assert await _people(world, world.contracts) == (deployer, deployer, "0x" + BURNT.hex())

    owner, arbiter, treasury = (Address(bytes([n]) * 20) for n in (1, 2, 3))
    named = replace(TERMS, owner=owner, arbiter=arbiter, treasury=treasury)
    other = await deploy(world.sender(DEPLOYER), named)

    shown = tuple("0x" + who.hex() for who in (owner, arbiter, treasury))
    assert await _people(world, other.contracts) == shown


async def test_a_deployment_without_owner_has_no_arbiter_either(world: World) -> None:
    free = await deploy(world.sender(DEPLOYER), replace(TERMS, owner=NOBODY))

    owner, arbiter, _ = await _people(world, free.contracts)
    assert owner == arbiter == "0x" + "00" * 20


async def _people(world: World, contracts: Contracts) -> tuple[str, str, str]:
    (owner,) = await read_view(world.rpc, contracts.requests, "InferenceRequests", "owner")
    (arbiter,) = await read_view(world.rpc, contracts.disputes, "Disputes", "arbiter")
    (treasury,) = await read_view(world.rpc, contracts.stakes, "StakeManager", "treasury")
    return owner, arbiter, treasury


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"poster_bps": 10_001}, "poster"),
        ({"reporter_bps": 5_001}, "reporter"),
        ({"reporter_bps": -1}, "reporter"),
        ({"cancel_delay_s": 0}, "cancel delay"),
        ({"ruling_period_s": 604_800}, "ruling period"),
        ({"unbonding_delay_s": 259_200}, "ruling period"),
        ({"unbonding_delay_s": 365 * 86_400 + 1}, "longer than a year"),
        ({"treasury": NOBODY}, "treasury"),
    ],
    ids=str,
)
async def test_bad_terms_cost_nothing(world: World, changes: dict[str, Any], words: str) -> None:
    before = await world.rpc.nonce(world.address(DEPLOYER), "latest")

    with pytest.raises(BadTerms, match=words):
        await deploy(world.sender(DEPLOYER), replace(TERMS, **changes))

    assert await world.rpc.nonce(world.address(DEPLOYER), "latest") == before


@pytest.mark.parametrize(
    "changes",
    [
        {"poster_bps": 10_000, "reporter_bps": 5_000},
        {"poster_bps": 0, "reporter_bps": 0, "cancel_delay_s": 1},
        {"ruling_period_s": 604_799},
    ],
    ids=str,
)
async def test_terms_at_their_bounds_are_taken(world: World, changes: dict[str, Any]) -> None:
    await deploy(world.sender(DEPLOYER), replace(TERMS, **changes))


async def test_an_endpoint_of_another_chain_does_not_take_over(world: World) -> None:
    """Half of a deployment on each of two chains would be worth nothing, and cost both."""
    broken = False

    async def breaks(body: Any) -> Any:
        nonlocal broken
        broken = broken or body["method"] == "eth_getTransactionCount"
        return web.Response(status=503) if broken else None

    async def other(body: Any) -> Any:
        return result(body, "0x1")

    async with (
        scripted_node(world.anvil.url, breaks) as first,
        scripted_node(script=other) as second,
        Rpc([first.url, second.url]) as rpc,
    ):
        sender = Sender(rpc, world.anvil.config.account(DEPLOYER), world.anvil.config.chain_id)
        with pytest.raises(RpcUnreachable, match="serves chain 1"):
            await deploy(sender, TERMS)
    assert {call["method"] for call in second.calls} == {"eth_chainId"}


async def test_a_file_gives_back_the_deployment(world: World, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "deployment.json"

    world.deployment.save(place)

    assert load_deployment(place) == world.deployment
    await check_chain(world.rpc, load_deployment(place))


async def test_a_second_deployment_stands_beside_the_first(world: World) -> None:
    second = await deploy(world.sender(DEPLOYER), TERMS)

    assert not set(second.contracts.addresses()) & set(world.contracts.addresses())
    assert second.contracts.start_block > world.contracts.start_block


async def test_a_transaction_in_between_is_noticed(world: World) -> None:
    class Disturbed(Sender):
        async def send(self, to, data, **options):
            receipt = await super().send(to, data, **options)
            await super().send(b"\x55" * 20, b"")
            return receipt

    sender = world.sender(DEPLOYER)
    with pytest.raises(DeploymentDisturbed):
        await deploy(Disturbed(sender.rpc, sender.key, sender.chain_id), TERMS)


@pytest.mark.parametrize(
    ("contract", "knows"),
    [
        ("InferenceRequests", "InferenceResults"),
        ("InferenceRequests", "Disputes"),
        ("InferenceResults", "InferenceRequests"),
        ("InferenceResults", "WorkerRegistry"),
        ("WorkerRegistry", "StakeManager"),
        ("StakeManager", "WorkerRegistry"),
        ("StakeManager", "InferenceRequests"),
        ("StakeManager", "InferenceResults"),
        ("StakeManager", "Disputes"),
        ("Disputes", "InferenceRequests"),
        ("Disputes", "StakeManager"),
    ],
)
async def test_a_contract_that_knows_a_wrong_address_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch, contract: str, knows: str
) -> None:
    arguments = module._arguments

    def misled(name: str, at: dict[str, Address], *rest: Any) -> bytes:
        wrong = {knows: Address(b"\x55" * 20)} if name == contract else {}
        return arguments(name, at | wrong, *rest)

    monkeypatch.setattr(module, "_arguments", misled)

    with pytest.raises(DeploymentDisturbed, match=contract):
        await deploy(world.sender(DEPLOYER), TERMS)


@pytest.mark.parametrize("nonce", [0, 1, 0x7F, 0x80, 0xFF, 0x100, 0x12345])
async def test_create_addresses_are_the_chains(world: World, nonce: int) -> None:
    sender = world.sender(7)
    await world.rpc.request("anvil_setNonce", ["0x" + sender.address.hex(), hex(nonce)])

    receipt = await sender.send(None, b"\x60\x00\x60\x00\xf3")

    assert receipt.contract_address == create_address(sender.address, nonce)


async def test_another_chain_is_refused(world: World) -> None:
    contracts = world.contracts
    other = Contracts(1, 0, *contracts.addresses())
    with pytest.raises(WrongChain, match="serves chain 31337"):
        await check_chain(world.rpc, Deployment(other, world.deployment.genesis_hash))

    with pytest.raises(WrongChain, match="genesis"):
        await check_chain(world.rpc, Deployment(contracts, bytes(32)))


async def test_an_address_without_code_is_refused(world: World) -> None:
    nowhere = Address(b"\x99" * 20)
    contracts = Contracts(31337, 0, nowhere, *world.contracts.addresses()[1:])
    with pytest.raises(NoContractCode, match="0x9999"):
        await check_chain(world.rpc, Deployment(contracts, world.deployment.genesis_hash))
    with pytest.raises(NoContractCode, match="InferenceRequests"):
        await read_view(world.rpc, nowhere, "InferenceRequests", "nextId")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a deployment file"),
        ("[]", "schema_version"),
        ('{"schema_version": 3}', "schema_version"),
        ('{"schema_version": 2}', "KeyError"),
        ('{"schema_version": 2, "contracts": {"InferenceRequests": "0x12"}}', "KeyError"),
    ],
)
def test_a_file_that_is_none_of_ours(tmp_path: Path, text: str, words: str) -> None:
    place = tmp_path / "deployment.json"
    place.write_text(text)

    with pytest.raises(BadDeploymentFile, match=words):
        load_deployment(place)


def test_a_file_of_an_earlier_release_is_named_as_such(earlier_file: Path) -> None:
    with pytest.raises(BadDeploymentFile, match="earlier release") as refused:
        load_deployment(earlier_file)

    assert "--force" in refused.value.help_text


@pytest.fixture
def earlier_file(tmp_path: Path) -> Path:
    """As the release before disputes wrote it."""
    place = tmp_path / "deployment.json"
    named = ("InferenceRequests", "InferenceResults", "WorkerRegistry", "StakeManager")
    body = {
        "schema_version": 1,
        "chain_id": 31337,
        "genesis_hash": "0x" + "11" * 32,
        "start_block": 1,
        "contracts": dict.fromkeys(named, "0x" + "22" * 20),
    }
    place.write_text(json.dumps(body))
    return place


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadDeploymentFile, match="there is no deployment file") as refused:
        load_deployment(tmp_path / "none.json")

    assert "inferd deploy" in refused.value.help_text


def test_known_create_address() -> None:
    sender = Address(to_canonical_address("0x6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0"))

    assert create_address(sender, 0).hex() == "cd234a471b72ba2f1ccf0a70fcaba648a5eecd8d"
