"""An owner's commands, and what they say to everybody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexer.errors import ExitCode
from inferd.chain.anvil import Anvil
from tests.cli.stage import DEPLOYER, OWNER, REQUESTER, STRANGER, Stage
from tests.cli.support import Cli

ASK = ("submit", "--model", "markov", "--prompt", "x", "--fee", "0.01ether", "--anyway")
SOON = ("--deadline", "10m")
ZERO = "0x" + "00" * 20


def test_a_pause_stops_new_requests_and_nothing_else(stage: Stage, cli: Cli) -> None:
    assert cli(*ASK, *SOON).code == 0

    paused = cli("admin", "pause", "--json")

    assert json.loads(paused.stdout)["paused"] is True
    refused = cli(*ASK, *SOON)
    refused.refused(ExitCode.CONFIGURATION, "RequestsPaused()", "the owner has stopped")
    assert cli("cancel", "1").code == 0
    assert "requests   stopped" in cli("admin", "show").stdout

    assert cli("admin", "unpause").stdout == "new requests are open\n"
    assert cli(*ASK, *SOON).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["pause"],
        ["unpause"],
        ["terms", "markov", "--min-quorum", "2"],
        ["arbiter", ZERO],
        ["offer-ownership", ZERO],
    ],
    ids=" ".join,
)
def test_nobody_else_can(stage: Stage, cli: Cli, arguments: list[str]) -> None:
    outcome = cli("admin", *arguments, "--account", "requester")

    outcome.refused(ExitCode.CONFIGURATION, f"owned by {stage.address(DEPLOYER)}", "--account")


def test_without_an_owner_nothing_changes(chain: Anvil, cli: Cli) -> None:
    assert cli("deploy", "--owner", ZERO).code == 0

    cli("admin", "pause").refused(ExitCode.CONFIGURATION, "no owner, for ever")
    assert "owner      nobody\n" in cli("admin", "show").stdout


def test_terms_apply_to_requests_to_come(stage: Stage, cli: Cli) -> None:
    terms = ("--dispute-window", "1h", "--bond", "0.01ether", "--min-quorum", "2")

    done = cli("admin", "terms", "markov", *terms, "--json")

    wanted = {
        "verifier": None,
        "dispute_window_s": 3600,
        "bond_wei": str(10**16),
        "min_quorum": 2,
    }
    assert json.loads(done.stdout)["terms"] == wanted
    shown = json.loads(cli("admin", "show", "--model", "markov", "--model", "x", "--json").stdout)
    assert shown["models"]["markov"] == wanted
    assert shown["models"]["x"]["min_quorum"] == 0
    cli(*ASK, *SOON).refused(ExitCode.CONFIGURATION, "QuorumOutOfRange", "quorum")
    assert cli(*ASK, *SOON, "--quorum", "2").code == 0

    assert "no terms" in cli("admin", "terms", "markov", "--none").stdout
    assert "markov: no terms" in cli("admin", "show", "--model", "markov").stdout
    assert cli(*ASK, *SOON).code == 0


def test_the_verifier_is_a_contract(stage: Stage, cli: Cli) -> None:
    nowhere = stage.address(STRANGER)
    terms = ("admin", "terms", "markov", "--verifier")

    cli(*terms, nowhere).refused(ExitCode.CONFIGURATION, f"no contract at {nowhere}")

    consumer = "0x" + stage.consumer().hex()
    assert cli(*terms, consumer).code == 0
    assert "proofs for 0x" in cli("admin", "show", "--model", "markov").stdout


@pytest.mark.parametrize(
    ("terms", "code", "words"),
    [
        ([], ExitCode.CONFIGURATION, "name the terms"),
        (["--none", "--min-quorum", "2"], ExitCode.CONFIGURATION, "name the terms"),
        (["--dispute-window", "1h"], ExitCode.CONFIGURATION, "go together"),
        (["--bond", "1ether"], ExitCode.CONFIGURATION, "go together"),
        (["--dispute-window", "5d", "--bond", "1ether"], ExitCode.CONFIGURATION, "345599 s"),
        (["--dispute-window", "1h", "--bond", "1wei"], ExitCode.CONFIGURATION, "whole number"),
        (
            ["--dispute-window", "1h", "--bond", "100000000ether"],
            ExitCode.CONFIGURATION,
            "more than the contract can hold",
        ),
        (["--dispute-window", "soon"], ExitCode.CONFIGURATION, "no span of time"),
        (["--verifier", "0x12"], ExitCode.CONFIGURATION, "no address"),
        (["--min-quorum", "16"], ExitCode.USAGE, "min-quorum"),
        (["--min-quorum", "0"], ExitCode.USAGE, "min-quorum"),
    ],
    ids=str,
)
def test_bad_terms(stage: Stage, cli: Cli, terms: list[str], code: ExitCode, words: str) -> None:
    cli("admin", "terms", "markov", *terms).refused(code, words)


def test_a_window_as_long_as_can_be(stage: Stage, cli: Cli) -> None:
    longest = ("--dispute-window", "345599s", "--bond", "1gwei")

    assert cli("admin", "terms", "markov", *longest).code == 0


def test_ownership_changes_hands_in_two_steps(stage: Stage, cli: Cli) -> None:
    accept = ("admin", "accept-ownership", "--account", "requester")
    cli(*accept).refused(ExitCode.CONFIGURATION, "not offered to", "offer-ownership")

    assert cli("admin", "offer-ownership", stage.address(REQUESTER)).code == 0
    assert f"offered to {stage.address(REQUESTER)}" in cli("admin", "show").stdout
    done = cli(*accept, "--json")

    assert json.loads(done.stdout)["owner"] == stage.address(REQUESTER)
    cli("admin", "pause").refused(ExitCode.CONFIGURATION, stage.address(REQUESTER))
    assert cli("admin", "pause", "--account", "requester").code == 0


def test_an_offer_can_be_taken_back(stage: Stage, cli: Cli) -> None:
    cli("admin", "offer-ownership", stage.address(REQUESTER))

    assert cli("admin", "offer-ownership", ZERO).stdout == "ownership is offered to nobody\n"

    cli("admin", "accept-ownership", "--account", "requester").refused(
        ExitCode.CONFIGURATION, "not offered"
    )


def test_the_owner_appoints_the_arbiter(stage: Stage, cli: Cli) -> None:
    assert cli("admin", "arbiter", stage.address(OWNER)).code == 0

    shown = json.loads(cli("admin", "show", "--json").stdout)
    assert shown["arbiter"] == stage.address(OWNER)
    assert shown["owner"] == stage.address(DEPLOYER)
    assert (shown["max_window_s"], shown["reporter_bps"]) == (345_599, 1_000)
    cli("admin", "arbiter", "me").refused(ExitCode.CONFIGURATION, "'me' is no address")


def test_an_unknown_account(stage: Stage, cli: Cli) -> None:
    cli("admin", "pause", "--account", "nobody").refused(
        ExitCode.CONFIGURATION, "no worker nobody", "choose of text"
    )


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--reporter-bps", "5001"], ExitCode.USAGE, "reporter-bps"),
        (["--ruling-period", "7d"], ExitCode.CONFIGURATION, "not shorter than"),
        (["--unbonding-delay", "1h"], ExitCode.CONFIGURATION, "not shorter than"),
        (["--cancel-delay", "0s"], ExitCode.CONFIGURATION, "cancel delay"),
        (["--treasury", ZERO], ExitCode.CONFIGURATION, "zero address cannot be the treasury"),
        (["--owner", "me"], ExitCode.CONFIGURATION, "'me' is no address"),
        (["--arbiter", "0x12"], ExitCode.CONFIGURATION, "no address"),
    ],
    ids=str,
)
def test_bad_terms_of_a_deployment_send_nothing(
    chain: Anvil, cli: Cli, options: list[str], code: ExitCode, words: str
) -> None:
    cli("deploy", *options).refused(code, words)

    assert not Path("deployment.json").exists()
    assert Stage(chain).do(lambda rpc: rpc.header("latest")).number == 0


def test_terms_of_a_deployment_are_those_given(chain: Anvil, cli: Cli) -> None:
    stage = Stage(chain)
    people = [stage.address(index) for index in (OWNER, STRANGER, REQUESTER)]
    named = ("--owner", people[0], "--arbiter", people[1], "--treasury", people[2])

    assert cli("deploy", *named, "--reporter-bps", "5000", "--ruling-period", "1d").code == 0

    shown = json.loads(cli("admin", "show", "--json").stdout)
    assert [shown[who] for who in ("owner", "arbiter", "treasury")] == people
    assert (shown["reporter_bps"], shown["ruling_period_s"]) == (5_000, 86_400)


def test_deploy_names_the_file_of_an_earlier_release(cli: Cli, deployed: Anvil) -> None:
    place = Path("deployment.json")
    body = json.loads(place.read_text())
    del body["contracts"]["Disputes"]
    place.write_text(json.dumps(body | {"schema_version": 1}))

    cli("deploy").refused(ExitCode.CONFIGURATION, "earlier release", "--force")
    cli("admin", "show").refused(ExitCode.CONFIGURATION, "earlier release")

    assert cli("deploy", "--force").code == 0
    assert cli("admin", "show").code == 0
