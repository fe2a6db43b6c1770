"""Prompts for a node alone: to a key that its poster vouches for, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey

from indexer.errors import ExitCode
from inferd.chain.anvil import Anvil
from inferd.protocol.deployment import load_deployment
from inferd.protocol.private import DecryptionKey
from inferd.protocol.typed_data import domain_separator, encryption_key_digest, sign_digest
from tests.cli.support import Cli, FakeNode

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


def test_who_names_an_operator_and_forgets_private_sends_nothing(
    cli: Cli, deployed: Anvil, node: FakeNode
) -> None:
    poster = deployed.config.account(1).address
    plain = cli(*ASK[:-1], "--operator", poster)
    plain.refused(ExitCode.CONFIGURATION, "without --private", "nothing was sent")
