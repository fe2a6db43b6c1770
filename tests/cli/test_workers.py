"""What a worker's owner changes, and what anybody shows of a worker that signed two answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexer.errors import ExitCode
from inferd.protocol.request import model_id
from inferd.protocol.result import ResultItem, digest_of, pack_items
from tests.cli.stage import REQUESTER, STRANGER, WORKER, Stage
from tests.cli.support import Cli

ONE, OTHER = (ResultItem(7, bytes(20), digest_of(text)) for text in (b"yes", b"no"))
REPORT = ("worker", "report-equivocation", "one.json", "other.json")


def write(name: str, items: bytes, signature: bytes, index: Any = 0) -> None:
    body = {"items": "0x" + items.hex(), "signature": "0x" + signature.hex(), "index": index}
    Path(name).write_text(json.dumps(body))


def test_an_update_changes_what_is_named(stage: Stage, cli: Cli) -> None:
    at = stage.address(WORKER)
    before = stage.view("WorkerRegistry", "workerOf", at)

    first = cli("worker", "update", "text", "--endpoint", "https://gpu.example", "--json")
    second = cli("worker", "update", "text", "--slots", "8", "--memory-mb", "0", "--json")
    third = cli("worker", "update", "text", "--model", "a", "--model", "b", "--json")

    assert json.loads(first.stdout)["slots"] == before[3] == 2
    assert json.loads(first.stdout)["models"] == ["0x" + model_id("markov").hex()]
    assert json.loads(second.stdout)["endpoint"] == "https://gpu.example"
    said = json.loads(third.stdout)
    assert said["models"] == ["0x" + model_id(name).hex() for name in ("a", "b")]
    assert (said["slots"], said["memory_mb"], said["endpoint"]) == (8, 0, "https://gpu.example")
    after = stage.view("WorkerRegistry", "workerOf", at)
    assert after[3:5] == (8, 0)
    assert after[5] != before[5]


def test_the_same_offer_sends_nothing(stage: Stage, cli: Cli) -> None:
    done = cli("worker", "update", "text", "--slots", "2", "--json")

    assert json.loads(done.stdout)["updated"] is False
    assert json.loads(done.stdout)["tx_hash"] is None
    assert cli("worker", "update", "text", "--slots", "3").stdout.endswith(" updated\n")
    assert cli("worker", "update", "text", "--slots", "3").stdout.endswith(" unchanged\n")


def test_updates_that_cannot_be(stage: Stage, cli: Cli) -> None:
    cli("worker", "update", "text").refused(ExitCode.CONFIGURATION, "nothing was named")
    update = ("worker", "update", "--slots", "3")
    cli(*update, "stranger").refused(ExitCode.CONFIGURATION, "is not registered")
    cli(*update, "nobody").refused(ExitCode.CONFIGURATION, "no worker nobody")
    cli("worker", "update", "text", "--slots", "0").refused(ExitCode.USAGE, "slots")
    settings = Path("inferd.toml").read_text().replace("{ dev_account = 3 }", "{ dev_account = 4 }")
    Path("inferd.toml").write_text(settings)
    cli(*update, "text").refused(ExitCode.CONFIGURATION, "is registered by 0x")


def test_two_signed_answers_cost_the_whole_stake(stage: Stage, cli: Cli) -> None:
    write("one.json", *stage.sign([ONE]))
    write("other.json", *stage.sign([ResultItem(1, bytes(20), bytes(32)), OTHER]), 1)

    done = cli(*REPORT, "--json")

    said = json.loads(done.stdout)
    assert said["signer"] == stage.address(WORKER)
    assert (said["slashed_wei"], said["reward_wei"]) == (str(10**17), str(10**16))
    assert stage.credit_of(REQUESTER) == 10**16
    assert stage.view("StakeManager", "stakeOf", stage.address(WORKER)) == (0, 0, 0, True)
    cli(*REPORT).refused(ExitCode.CONFIGURATION, "was reported already")
    again = cli("worker", "register", "text")
    again.refused(ExitCode.CONFIGURATION, "Barred(signer=0x", "can never stake again")
    assert cli("withdraw").stdout == "0.01 ether\n"


def test_evidence_that_shows_nothing(stage: Stage, cli: Cli) -> None:
    write("one.json", *stage.sign([ONE]))

    def refused(words: str) -> None:
        cli(*REPORT).refused(ExitCode.CONFIGURATION, words)

    write("other.json", *stage.sign([ONE]))
    refused("the same digest")
    write("other.json", *stage.sign([OTHER], signer=STRANGER))
    refused("two workers signed them")
    write("other.json", *stage.sign([ResultItem(8, bytes(20), bytes(32))]))
    refused("different requests")
    write("other.json", *stage.sign([ResultItem(7, b"\1" * 20, bytes(32))]))
    refused("different requests")
    write("other.json", *stage.sign([OTHER]), 1)
    refused("group 2 has no item 1: it has 1")
    write("other.json", *stage.sign([OTHER]), -1)
    refused("group 2 has no item -1")
    write("other.json", pack_items([OTHER])[:-1], bytes(64))
    refused("group 2 cannot be read")
    write("other.json", pack_items([OTHER]), bytes(64))
    refused("the signature of group 2 is none")
    write("other.json", pack_items([OTHER]), bytes(65))
    refused("the signature of group 2 is none")
    assert stage.view("StakeManager", "stakeOf", stage.address(WORKER))[0] == 10**17


def test_evidence_of_somebody_unknown(stage: Stage, cli: Cli) -> None:
    write("one.json", *stage.sign([ONE], signer=STRANGER))
    write("other.json", *stage.sign([OTHER], signer=STRANGER))

    cli(*REPORT).refused(ExitCode.CONFIGURATION, "is no worker of this deployment")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("{", "it is no JSON"),
        ("[]", "it needs items and signature"),
        ('{"items": "0xzz", "signature": "0x", "index": 0}', "it needs items and signature"),
        ('{"items": 5, "signature": "0x", "index": 0}', "it needs items and signature"),
        ('{"items": "0x", "signature": "0x"}', "it needs items and signature"),
        ('{"items": "0x", "signature": "0x", "index": "0"}', "index is no whole number"),
        ('{"items": "0x", "signature": "0x", "index": true}', "index is no whole number"),
    ],
)
def test_files_that_are_no_evidence(cli: Cli, text: str | None, words: str) -> None:
    write("other.json", b"", b"")
    if text is not None:
        Path("one.json").write_text(text)

    cli(*REPORT).refused(ExitCode.CONFIGURATION, f"one.json cannot be read: {words}")


def test_evidence_in_bytes_that_are_no_text(cli: Cli) -> None:
    write("other.json", b"", b"")
    Path("one.json").write_bytes(b"\xff\xfe")

    cli(*REPORT).refused(ExitCode.CONFIGURATION, "it is no JSON")
