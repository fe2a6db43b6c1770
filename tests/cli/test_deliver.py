"""Outputs for contracts: from a file or the node, checked, handed over once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from eth_utils.address import to_checksum_address

from indexer.errors import ExitCode
from inferd.chain.delivery import describe_reason
from inferd.protocol.result import digest_of
from tests.cli.stage import REQUESTER, Stage
from tests.cli.support import Cli, FakeNode
from tests.cli.test_asking import result_body

ASK = ("submit", "--model", "markov", "--prompt", "x", "--fee", "0.01ether", "--anyway")
REVERTS = bytes.fromhex("60006000fd")
"""PUSH1 0, PUSH1 0, REVERT."""
ERROR = bytes.fromhex("08c379a0")


def test_an_output_is_delivered_from_a_file(stage: Stage, cli: Cli) -> None:
    consumer = stage.consumer()
    Path("answer").write_bytes(b"yes\xff")
    early = cli("deliver", "1", "--output", "answer")
    early.refused(ExitCode.TRY_AGAIN, "no result on chain yet")
    stage.settle(1, b"yes\xff")

    done = cli("deliver", "1", "--output", "answer", "--account", "poster", "--json")

    said = json.loads(done.stdout)
    assert said["consumer"] == to_checksum_address(consumer)
    assert said["gas_used"] > 30_000
    sent = stage.sent_by(REQUESTER)
    again = cli("deliver", "1", "--output", "answer")
    again.refused(ExitCode.CONFIGURATION, "delivered already")
    assert stage.sent_by(REQUESTER) == sent


def test_an_output_is_delivered_from_the_node(stage: Stage, cli: Cli, node: FakeNode) -> None:
    consumer = stage.consumer(2)
    stage.settle(2, b"yes")
    cli("deliver", "2").refused(ExitCode.CONFIGURATION, "no result of request 2")
    node.says("/v1/results/2", result_body(2, b"yes"))

    done = cli("deliver", "2")

    assert done.stdout == f"{to_checksum_address(consumer)} has the output of request 2\n"
    assert "transaction 0x" in done.stderr


def test_another_output_is_not_delivered(stage: Stage, cli: Cli, node: FakeNode) -> None:
    stage.consumer()
    stage.settle(1, b"yes")
    Path("answer").write_bytes(b"no")
    node.says("/v1/results/1", result_body(1, b"no"))

    for options in ([], ["--output", "answer"]):
        outcome = cli("deliver", "1", *options)
        outcome.refused(ExitCode.NOT_AS_PROMISED, "the output of request 1 has the digest")


def test_a_consumer_that_reverts_can_be_called_again(stage: Stage, cli: Cli) -> None:
    consumer = stage.consumer()
    code = stage.do(lambda rpc: rpc.code(consumer))
    stage.settle(1, b"yes")
    Path("answer").write_bytes(b"yes")
    stage.replace_code(consumer, REVERTS)

    failed = cli("deliver", "1", "--output", "answer")

    failed.refused(ExitCode.NOT_AS_PROMISED, "refused the output of request 1", "no reason")
    stage.replace_code(consumer, code)
    assert cli("deliver", "1", "--output", "answer").code == 0


def test_only_contracts_that_asked_are_called(stage: Stage, cli: Cli) -> None:
    assert cli(*ASK, "--deadline", "10m", "--delivery", "stored").code == 0
    stage.settle(1, b"yes")

    cli("deliver", "1").refused(ExitCode.CONFIGURATION, "request 1 asked for delivery stored")
    cli("deliver", "2").refused(ExitCode.CONFIGURATION, "there is no request 2")
    cli("deliver", "1", "--output", "none").refused(ExitCode.CONFIGURATION, "none cannot be read")
    digest = digest_of(b"yes")
    assert stage.views("InferenceRequests", "resultOf", 1) == (True, digest)


def test_a_key_is_not_called_back(stage: Stage, cli: Cli) -> None:
    outcome = cli(*ASK, "--deadline", "10m", "--delivery", "callback")

    outcome.refused(ExitCode.CONFIGURATION, "only a contract can be called back", "stored")


def test_delivery_and_quorum_are_what_was_said(stage: Stage, cli: Cli) -> None:
    options = ("--delivery", "stored", "--quorum", "3")
    assert cli(*ASK, "--deadline", "10m", *options).code == 0

    record = stage.view("InferenceRequests", "recordOf", 1)

    assert record[3:5] == (1, 3)
    plain = cli(*ASK, "--deadline", "10m")
    assert plain.code == 0
    assert stage.view("InferenceRequests", "recordOf", 2)[3:5] == (0, 1)


@pytest.mark.parametrize(
    "options", [["--quorum", "0"], ["--quorum", "16"], ["--delivery", "post"]], ids=" ".join
)
def test_what_cannot_be_asked_for(cli: Cli, options: list[str]) -> None:
    cli(*ASK, "--deadline", "10m", *options).refused(ExitCode.USAGE, "--help` explains it")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (b"", "no reason"),
        (ERROR + (32).to_bytes(32, "big") + (2).to_bytes(32, "big") + b"no" + bytes(30), "'no'"),
        (ERROR + (32).to_bytes(32, "big") + (61).to_bytes(32, "big") + b"no" * 30, "no…'"),
        (ERROR + (32).to_bytes(32, "big") + b"\xff" * 32 + b"\x1b", "\\x1b…"),
        (ERROR + b"short", "0x08c379a0"),
        (b"\x01\x02", "0x0102"),
    ],
    ids=range(6),
)
def test_reasons_in_words(reason: bytes, words: str) -> None:
    assert words in describe_reason(reason)
