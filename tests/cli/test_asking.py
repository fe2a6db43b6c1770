"""From deployment to a checked answer by commands alone; the node's part is played by the test."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from indexer.errors import ExitCode
from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil
from inferd.chain.requester import OnChainRequest, read_request
from inferd.chain.transact import Sender
from inferd.cli.session import run_async
from inferd.cli.waiting import wait_until_settled
from inferd.protocol import calls
from inferd.protocol.deployment import load_deployment
from inferd.protocol.request import InputKind, model_id
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import domain_separator, group_digest, sign_digest
from tests.cli.support import ADDRESS, TX, Cli, FakeNode, request_body, status_body

WORKER = """
[[workers]]
name = "text"
backend = "markov"
model = "markov"
slots = 2
key = { dev_account = 5 }
owner = { dev_account = 3 }
"""
ASK = ("--model", "markov", "--prompt", "hello", "--fee", "0.01ether", "--deadline", "10m")


@pytest.fixture
def staffed(deployed: Anvil, cli: Cli) -> Anvil:
    Path("inferd.toml").write_text(WORKER)
    assert cli("worker", "register").code == 0
    return deployed


async def _settle(anvil: Anvil, request_id: int, output: bytes) -> str:
    deployment = load_deployment(Path("deployment.json"))
    contracts = deployment.contracts
    async with Rpc([anvil.url]) as rpc:
        request = await read_request(rpc, contracts, request_id)
        items = pack_items([ResultItem(request_id, request.commitment, digest_of(output))])
        domain = domain_separator(contracts.chain_id, contracts.results)
        key = PrivateKey(bytes(anvil.config.account(5).key))
        data = calls.post([(items, [sign_digest(key, group_digest(domain, items))])], bytes(32))
        poster = Sender(rpc, anvil.config.account(1), contracts.chain_id)
        receipt = await poster.send(contracts.results, data)
    return "0x" + receipt.tx_hash.hex()


def result_body(request_id: int, output: bytes) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "id": request_id,
        "commitment": "0x" + "11" * 20,
        "digest": "0x" + digest_of(output).hex(),
        "output_base64": base64.b64encode(output).decode(),
        "media_type": "text/plain; charset=utf-8",
        "worker": ADDRESS,
        "workers": [ADDRESS],
        "signature": "0x" + "00" * 64,
        "manifest": {},
        "compute_ms": 5,
        "tx_hash": TX,
        "settled_block": 9,
    }


def test_deploy_writes_the_file_and_prints_it(cli: Cli, chain: Anvil) -> None:
    outcome = cli("deploy", "--poster-bps", "100", "--min-stake", "1ether", "--json")

    said = json.loads(outcome.stdout)
    kept = json.loads(Path("deployment.json").read_text())
    assert said["contracts"] == kept["contracts"]
    assert list(said) == [
        "schema_version",
        "chain_id",
        "start_block",
        "deployment_file",
        "contracts",
    ]


def test_deploy_replaces_no_living_deployment(cli: Cli, deployed: Anvil) -> None:
    kept = Path("deployment.json").read_text()

    cli("deploy").refused(ExitCode.CONFIGURATION, "names contracts that are on chain", "--force")

    assert Path("deployment.json").read_text() == kept
    assert cli("deploy", "--force").code == 0
    assert Path("deployment.json").read_text() != kept


def test_deploy_replaces_the_file_of_a_chain_started_anew(cli: Cli, deployed: Anvil) -> None:
    place = Path("deployment.json")
    body = json.loads(place.read_text())
    place.write_text(json.dumps(body | {"genesis_hash": "0x" + "00" * 32}))

    assert cli("deploy").code == 0


def test_deploy_replaces_no_file_of_another_chain(cli: Cli, deployed: Anvil) -> None:
    place = Path("deployment.json")
    place.write_text(json.dumps(json.loads(place.read_text()) | {"chain_id": 1}))

    cli("deploy").refused(ExitCode.CONFIGURATION, "is of chain 1")


def test_registering_workers_twice_changes_nothing(cli: Cli, staffed: Anvil) -> None:
    said = json.loads(cli("worker", "register", "text", "--json").stdout)

    (worker,) = said["workers"]
    assert (worker["registered"], worker["updated"], worker["added_stake_wei"]) == (
        False,
        False,
        "0",
    )
    assert worker["stake_wei"] == str(10**17)
    cli("worker", "register", "other").refused(ExitCode.CONFIGURATION, "no worker other")


def test_registering_needs_workers_and_their_owners(cli: Cli, deployed: Anvil) -> None:
    cli("worker", "register").refused(ExitCode.CONFIGURATION, "name no workers")
    Path("inferd.toml").write_text(WORKER.replace("owner", "# owner"))
    cli("worker", "register").refused(ExitCode.CONFIGURATION, "no `owner` key")


def test_submit_asks_for_what_was_said(cli: Cli, deployed: Anvil) -> None:
    Path("prompt.txt").write_bytes(b"\x00from a file")
    options = ("--max-tokens", "9", "--memory-mb", "77", "--no-batchable")

    outcome = cli(
        "submit", *ASK[:2], "--prompt", "@prompt.txt", *ASK[4:], *options, "--anyway", "--json"
    )

    said = json.loads(outcome.stdout)
    assert (said["id"], said["fee_wei"]) == (1, str(10**16))

    async def read() -> Any:
        contracts = load_deployment(Path("deployment.json")).contracts
        async with Rpc([deployed.url]) as rpc:
            return await read_request(rpc, contracts, 1), await rpc.header(said["block"] - 1)

    found, before = run_async(read())
    assert found.params.input == b"\x00from a file"
    assert found.params.model_id == model_id("markov")
    assert (found.params.max_tokens, found.params.memory_mb) == (9, 77)
    assert not found.params.batchable
    assert found.deadline_s == said["deadline_s"] == before.timestamp_s + 600


def test_cancel_by_id(cli: Cli, deployed: Anvil) -> None:
    cli("submit", *ASK)

    outcome = cli("cancel", "1", "--json")

    assert json.loads(outcome.stdout)["id"] == 1
    assert cli("cancel", "1").stdout.startswith("request 1\ntransaction 0x")


def test_nobody_else_cancels(cli: Cli, deployed: Anvil, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("submit", *ASK)
    monkeypatch.setenv("INFERD_REQUESTER", '{"dev_account": 9}')

    cli("cancel", "1").refused(ExitCode.CONFIGURATION, "belongs to")


def test_an_answer_is_printed_once_it_is_checked(cli: Cli, staffed: Anvil, node: FakeNode) -> None:
    cli("submit", *ASK, "--anyway")
    node.says("/v1/results/1", result_body(1, b"yes\x1b[31m\xff"))
    cli("result", "1").refused(ExitCode.TRY_AGAIN, "no result on chain yet")
    tx_hash = run_async(_settle(staffed, 1, b"yes\x1b[31m\xff"))

    said = json.loads(cli("result", "1", "--json").stdout)

    assert base64.b64decode(said["output_base64"]) == b"yes\x1b[31m\xff"
    assert said["tx_hash"] == tx_hash
    assert said["digest_matches_chain"] is True
    assert said["worker"] == to_checksum_address(staffed.config.account(5).address)


def test_a_large_answer_is_fetched_as_bytes_and_checked(
    cli: Cli, staffed: Anvil, node: FakeNode
) -> None:
    cli("submit", *ASK, "--anyway")
    run_async(_settle(staffed, 1, b"large"))
    apart = {"output_base64": None, "output_bytes": 5}
    node.says("/v1/results/1", result_body(1, b"large") | apart)
    cli("result", "1").refused(ExitCode.CONFIGURATION, "has no output of request 1")
    node.says("/v1/results/1/output", b"large")
    assert cli("result", "1").stdout == "large"
    node.says("/v1/results/1/output", b"other")
    cli("result", "1").refused(ExitCode.NOT_AS_PROMISED, "the chain says 0x")


def test_a_prompt_may_be_elsewhere(cli: Cli, deployed: Anvil) -> None:
    uri = "https://example.test/prompt"
    assert cli("submit", *ASK, "--anyway", "--uri", uri).code == 0
    contracts = load_deployment(Path("deployment.json")).contracts

    async def read() -> OnChainRequest:
        async with Rpc([deployed.url]) as rpc:
            return await read_request(rpc, contracts, 1)

    asked = run_async(read()).params
    assert asked.input_kind is InputKind.URI
    assert asked.input == keccak(b"hello") + uri.encode()
    refused = cli("submit", *ASK, "--anyway", "--uri", "file:///etc/passwd")
    refused.refused(ExitCode.CONFIGURATION, "no 'file' URIs")
    both = cli("submit", *ASK, "--anyway", "--uri", uri, "--private")
    both.refused(ExitCode.CONFIGURATION, "cannot be encrypted")


@pytest.mark.parametrize("name", ["elsewhere", "0x" + model_id("elsewhere").hex()])
def test_a_model_of_workers_elsewhere_is_known(
    cli: Cli, deployed: Anvil, node: FakeNode, name: str
) -> None:
    ask = ("submit", "--model", "elsewhere", *ASK[2:])
    node.says("/v1/status", status_body())
    cli(*ask).refused(ExitCode.CONFIGURATION, "serves the model 'elsewhere'", "choose of markov")
    left = _elsewhere(name) | {"in_pool": False, "heartbeat_age_s": None}
    node.says("/v1/workers", {"workers": [left]})
    cli(*ask).refused(ExitCode.CONFIGURATION, "serves the model 'elsewhere'")
    node.says("/v1/workers", {"workers": [left, _elsewhere(name)]})
    assert cli(*ask).code == 0
    private = cli(*ask, "--private")
    private.refused(ExitCode.CONFIGURATION, "serves private requests for the model 'elsewhere'")


def _elsewhere(model: str) -> dict[str, Any]:
    counts = dict.fromkeys(("good", "late", "failed", "timeouts", "lies"), 0)
    return {
        "address": ADDRESS,
        "name": "",
        "embedded": False,
        "endpoint": "https://worker.test",
        "in_pool": True,
        "reason": "",
        "slots": 2,
        "limit": 2,
        "in_flight": 0,
        "circuit": "closed",
        "heartbeat_age_s": 1.0,
        "skew_ms": 0.0,
        "stake_wei": "1",
        "models": [{"model": model, **counts}],
    }


def test_a_pipe_gets_the_exact_bytes_and_a_terminal_readable_ones(
    cli: Cli,
    staffed: Anvil,
    node: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = b"yes\x1b[31m\tone\ntwo"
    cli("submit", *ASK, "--anyway")
    run_async(_settle(staffed, 1, output))
    node.says("/v1/results/1", result_body(1, output))

    assert cli("result", "1").stdout.encode() == output
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli("result", "1").stdout == "yes\\x1b[31m\tone\ntwo\n"
    assert cli("result", "1", "--raw").stdout.encode() == output


def test_an_answer_that_is_not_the_chains_is_not_printed(
    cli: Cli, staffed: Anvil, node: FakeNode
) -> None:
    cli("submit", *ASK, "--anyway")
    run_async(_settle(staffed, 1, b"yes"))
    node.says("/v1/results/1", result_body(1, b"no"))

    cli("result", "1").refused(ExitCode.NOT_AS_PROMISED, "the chain says 0x")
    node.says("/v1/results/1", result_body(1, b"no") | {"output_base64": "%%%"})
    cli("result", "1").refused(ExitCode.CONFIGURATION, "no base64")


def test_wait_prints_the_checked_answer_alone(
    cli: Cli, staffed: Anvil, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.says("/v1/status", status_body())
    node.says("/v1/requests/1", 404, 503, request_body(1, "assigned"), request_body(1, "settled"))
    node.says("/v1/results/1", result_body(1, b"yes"))

    async def settled_meanwhile(*arguments: Any) -> Any:
        await _settle(staffed, 1, b"yes")
        return await wait_until_settled(*arguments)

    monkeypatch.setattr("inferd.cli.ask.wait_until_settled", settled_meanwhile)

    outcome = cli("submit", *ASK, "--wait")

    assert outcome.stdout == "yes"
    assert "request 1\ntransaction 0x" in outcome.stderr


def test_wait_ends_when_the_request_is_refused_or_takes_too_long(
    cli: Cli, staffed: Anvil, node: FakeNode
) -> None:
    node.says("/v1/status", status_body())
    node.says("/v1/requests/1", request_body(1, state="refused", sentence="Too late."))

    cli("submit", *ASK, "--wait").refused(
        ExitCode.NOT_AS_PROMISED, "request 1 is refused: Too late.", "inferd why 1"
    )
    cli("submit", *ASK, "--wait", "--timeout", "1s").refused(
        ExitCode.TRY_AGAIN, "has not ended within 1 s", "inferd watch 2"
    )
