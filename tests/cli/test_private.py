"""Prompts for a node alone: to a key that its poster vouches for, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey

from indexer.errors import ExitCode
from inferd.chain.anvil import Anvil
from inferd.node.pool_models import ModelReputationView, PoolWorkerDetailView
from inferd.protocol.deployment import load_deployment
from inferd.protocol.private import DecryptionKey
from inferd.protocol.typed_data import domain_separator, encryption_key_digest, sign_digest
from tests.cli.support import Cli, FakeNode, status_body

ASK = (
    *("submit", "--model", "markov", "--prompt", "a secret", "--fee", "0.01ether"),
    *("--deadline", "10m", "--anyway", "--private"),
)
KEY = DecryptionKey(b"\x01" * 32).public


def _view(anvil: Anvil, *, signer: int = 1, key: bytes = KEY) -> dict[str, object]:
    contracts = load_deployment(Path("deployment.json")).contracts
    domain = domain_separator(contracts.chain_id, contracts.requests)
    private = PrivateKey(bytes(anvil.config.account(signer).key))
    return {
        "schema_version": 1,
        "key": "0x" + key.hex(),
        "poster": anvil.config.account(1).address,
        "signature": "0x" + sign_digest(private, encryption_key_digest(domain, key)).hex(),
    }


def test_a_prompt_goes_to_a_key_that_is_vouched_for(
    cli: Cli, deployed: Anvil, node: FakeNode
) -> None:
    node.says("/v1/encryption-key", _view(deployed))
    poster = deployed.config.account(1).address
    outcome = cli(*ASK, "--operator", poster)
    assert outcome.code == 0, outcome.stderr
    assert poster in outcome.stderr
    assert KEY.hex() in outcome.stderr
    assert cli(*ASK).code == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"signature": None}, "nobody vouches"),
        ({"signature": "0x" + "11" * 64}, "not signed by its poster"),
        ({"key": "0x" + "22" * 32}, "not signed by its poster"),
        ({"signature": "no hex"}, "cannot be read"),
    ],
)
def test_a_key_that_nobody_vouches_for_is_not_used(
    cli: Cli, deployed: Anvil, node: FakeNode, changed: dict[str, object], words: str
) -> None:
    node.says("/v1/encryption-key", _view(deployed) | changed)
    cli(*ASK).refused(ExitCode.CONFIGURATION, words)


def test_another_posters_key_is_not_used(cli: Cli, deployed: Anvil, node: FakeNode) -> None:
    node.says("/v1/encryption-key", _view(deployed, signer=4))
    cli(*ASK).refused(ExitCode.CONFIGURATION, "not signed by its poster")
    node.says("/v1/encryption-key", _view(deployed))
    other = deployed.config.account(4).address
    cli(*ASK, "--operator", other).refused(ExitCode.CONFIGURATION, "nothing was sent")
    node.says("/v1/encryption-key", _view(deployed, key=bytes(32)))
    cli(*ASK).refused(ExitCode.CONFIGURATION, "not signed by its poster")


def test_no_quorum_can_agree_on_what_is_encrypted(cli: Cli) -> None:
    asked = cli(*ASK, "--quorum", "2")
    asked.refused(ExitCode.CONFIGURATION, "cannot agree", "nothing was sent")


@pytest.mark.parametrize("option", ["--operator", "--worker"])
def test_who_names_a_reader_and_forgets_private_sends_nothing(
    cli: Cli, deployed: Anvil, node: FakeNode, option: str
) -> None:
    reader = deployed.config.account(1).address
    plain = cli(*ASK[:-1], option, reader)
    plain.refused(ExitCode.CONFIGURATION, "without --private", "nothing was sent")


def _worker_view(anvil: Anvil, *keys: dict[str, object]) -> dict[str, object]:
    view = PoolWorkerDetailView(
        address=anvil.config.account(5).address,
        **dict.fromkeys(("name", "endpoint", "circuit", "reason"), ""),
        embedded=False,
        in_pool=True,
        models=[ModelReputationView(model="markov", good=0, late=0, failed=0, timeouts=0, lies=0)],
        **dict.fromkeys(("slots", "in_flight", "memory_mb"), 1),
        **dict.fromkeys(("opens_in_s", "failure_share", "slow_share", "rests_s"), 0.0),
        **dict.fromkeys(
            (
                *("limit", "heartbeat_age_s", "skew_ms", "stake_wei", "owner", "skew_error_ms"),
                *("trouble", "version", "running", "queued", "free_memory_mb", "suspended"),
                "suspended_by",
            )
        ),
        failures=[],
        checks=[],
        disagreements=[],
    )
    return view.model_dump(mode="json") | {"encryption_keys": list(keys)}


def test_a_prompt_goes_to_a_key_that_the_worker_itself_has_signed(
    cli: Cli, deployed: Anvil, node: FakeNode
) -> None:
    worker, ask = deployed.config.account(5).address, (*ASK, "--worker")
    place = f"/v1/workers/{worker}"
    good = _view(deployed, signer=5)
    node.says(place, _worker_view(deployed, good, _view(deployed, key=bytes(32))))
    outcome = cli(*ask, worker)
    assert outcome.code == 0, outcome.stderr
    assert f"0x{KEY.hex()}, which worker {worker} vouches for" in outcome.stderr
    for wrong in (
        _view(deployed, signer=1),
        good | {"key": "0x" + "22" * 32},
        _view(deployed, signer=5, key=bytes(32)),
        good | {"signature": "0x" + "11" * 64},
    ):
        node.says(place, _worker_view(deployed, wrong, good))
        cli(*ask, worker).refused(ExitCode.CONFIGURATION, "is not signed by it")
    node.says(place, _worker_view(deployed))
    cli(*ask, worker).refused(
        ExitCode.CONFIGURATION, f"knows no encryption key of worker {worker}", "Nothing was sent"
    )
    both = (*ask, worker, "--operator", worker)
    cli(*both).refused(ExitCode.CONFIGURATION, "vouches for its own key", "nothing was sent")


def test_the_model_must_be_one_of_that_worker(cli: Cli, deployed: Anvil, node: FakeNode) -> None:
    worker = deployed.config.account(5).address
    ask = [one for one in ASK if one != "--anyway"]
    node.says(f"/v1/workers/{worker}", _worker_view(deployed, _view(deployed, signer=5)))
    node.says("/v1/status", status_body(chain_id=31337))
    node.says("/v1/workers", {"schema_version": 1, "workers": [_worker_view(deployed)]})
    assert cli(*ask, "--worker", worker).code == 0
    other = deployed.config.account(6).address
    # The node's own workers serve it, and have another key.
    cli(*ask, "--worker", other).refused(
        ExitCode.CONFIGURATION, f"worker {other}", "does not serve private requests for the model"
    )
