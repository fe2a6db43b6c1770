"""Held payments: shown, released, disputed, ruled on or let lapse; to the wei."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexer.errors import ExitCode
from tests.cli.stage import DEPLOYER, OWNER, POSTER, REQUESTER, STRANGER, WORKER, Stage
from tests.cli.support import Cli

FEE = 10**16
PAYMENT = FEE * 8 // 10
BOND = 10**16
STAKE = 10**17
WINDOW_S = 3600
RULING_S = 3 * 24 * 3600


@pytest.fixture
def held(stage: Stage, cli: Cli) -> Stage:
    """Request 1 of a model with a dispute window, settled a moment ago."""
    terms = ("--dispute-window", "1h", "--bond", "0.01ether")
    assert cli("admin", "terms", "markov", *terms).code == 0
    ask = ("submit", "--model", "markov", "--prompt", "x", "--fee", "0.01ether", "--anyway")
    assert cli(*ask, "--deadline", "30d").code == 0
    stage.settle(1, b"wrong")
    return stage


def shown(cli: Cli) -> Any:
    return json.loads(cli("dispute", "show", "1", "--json").stdout)


def test_a_held_payment_is_shown(held: Stage, cli: Cli) -> None:
    said = shown(cli)

    assert (said["status"], said["payment_wei"], said["bond_wei"]) == (
        "held",
        str(PAYMENT),
        str(BOND),
    )
    assert said["workers"] == [held.address(WORKER)]
    assert said["owners"] == [held.address(OWNER)]
    assert (said["poster"], said["poster_wei"]) == (held.address(POSTER), str(FEE - PAYMENT))
    assert said["disputer"] is None
    people = cli("dispute", "show", "1").stdout
    assert people.startswith(
        "request    1: held\npayment    0.008 ether\n"
        f"poster     {held.address(POSTER)}, 0.002 ether\nbond       0.01 ether\n"
    )


def test_what_nobody_disputed_is_released(held: Stage, cli: Cli) -> None:
    early = cli("dispute", "release", "1")
    early.refused(ExitCode.TRY_AGAIN, "request 1 can be disputed for", "nothing was sent")

    held.pass_time(WINDOW_S + 1)
    cli("dispute", "open", "1").refused(ExitCode.CONFIGURATION, "s ago", "dispute release 1")
    done = cli("dispute", "release", "1", "--account", "stranger", "--json")

    assert json.loads(done.stdout)["released"] == [1]
    assert (held.credit_of(OWNER), held.credit_of(POSTER)) == (PAYMENT, FEE - PAYMENT)
    assert shown(cli)["outcome"] == "released"
    cli("dispute", "release", "1").refused(ExitCode.CONFIGURATION, "is closed, not held")
    assert cli("withdraw", "text").stdout == "0.008 ether\n"


def test_an_upheld_dispute(held: Stage, cli: Cli) -> None:
    opened = cli("dispute", "open", "1", "--account", "stranger", "--json")
    said = json.loads(opened.stdout)
    assert said["bond_wei"] == str(BOND)
    assert shown(cli)["disputer"] == held.address(STRANGER)
    assert shown(cli)["ruling_until_s"] == said["ruling_until_s"]
    cli("dispute", "open", "1").refused(ExitCode.CONFIGURATION, "is disputed, not held")
    cli("dispute", "release", "1").refused(ExitCode.CONFIGURATION, "is disputed, not held")
    cli("dispute", "close", "1").refused(ExitCode.TRY_AGAIN, "the arbiter can rule for")

    done = cli("dispute", "rule", "1", "--upheld", "--json")

    assert json.loads(done.stdout)["slashed_wei"] == str(BOND)
    assert held.credit_of(REQUESTER) == FEE
    assert held.credit_of(STRANGER) == BOND + BOND // 10
    assert (held.credit_of(OWNER), held.credit_of(POSTER)) == (0, 0)
    staked, unbonding, *_ = held.view("StakeManager", "stakeOf", held.address(WORKER))
    assert (staked, unbonding) == (STAKE - BOND, 0)
    assert shown(cli)["outcome"] == "dispute upheld, 0.01 ether slashed"
    again = cli("dispute", "rule", "1", "--rejected")
    again.refused(ExitCode.CONFIGURATION, "is closed, not disputed")


def test_a_rejected_dispute(held: Stage, cli: Cli) -> None:
    assert "a bond of 0.01 ether" in cli("dispute", "open", "1").stdout

    assert cli("dispute", "rule", "1", "--rejected").stdout == "rejected\n"

    assert held.credit_of(OWNER) == PAYMENT + BOND
    assert held.credit_of(POSTER) == FEE - PAYMENT
    assert held.credit_of(REQUESTER) == 0
    assert shown(cli)["outcome"] == "dispute rejected"


def test_a_dispute_that_nobody_ruled_on(held: Stage, cli: Cli) -> None:
    assert cli("dispute", "open", "1").code == 0
    held.pass_time(RULING_S + 1)
    cli("dispute", "rule", "1", "--upheld").refused(
        ExitCode.CONFIGURATION, "the time for a ruling was over", "dispute close 1"
    )

    assert cli("dispute", "close", "1").stdout == "the dispute of request 1 is over\n"

    assert (held.credit_of(OWNER), held.credit_of(POSTER)) == (PAYMENT, FEE - PAYMENT)
    assert held.credit_of(REQUESTER) == BOND
    assert shown(cli)["outcome"] == "dispute lapsed"
    cli("dispute", "close", "1").refused(ExitCode.CONFIGURATION, "is closed, not disputed")


def test_only_the_arbiter_rules(held: Stage, cli: Cli) -> None:
    cli("dispute", "rule", "1", "--upheld").refused(ExitCode.CONFIGURATION, "held, not disputed")
    cli("dispute", "open", "1")

    outcome = cli("dispute", "rule", "1", "--upheld", "--account", "requester")

    outcome.refused(ExitCode.CONFIGURATION, f"ruled on by {held.address(DEPLOYER)}")
    assert cli("admin", "arbiter", held.address(REQUESTER)).code == 0
    cli("dispute", "rule", "1", "--upheld").refused(ExitCode.CONFIGURATION, "ruled on by")
    assert cli("dispute", "rule", "1", "--upheld", "--account", "requester").code == 0


def test_several_are_released_at_once_or_none(held: Stage, cli: Cli) -> None:
    ask = ("submit", "--model", "markov", "--prompt", "y", "--fee", "0.02ether", "--anyway")
    assert cli(*ask, "--deadline", "30d").code == 0
    held.pass_time(WINDOW_S + 1)
    held.settle(2, b"later")
    cli("dispute", "release", "1", "2").refused(ExitCode.TRY_AGAIN, "request 2 can be disputed")
    assert held.credit_of(OWNER) == 0

    held.pass_time(WINDOW_S + 1)
    assert cli("dispute", "release", "1", "2").stdout == "released 1, 2\n"

    assert held.credit_of(OWNER) == 3 * PAYMENT


@pytest.mark.parametrize("request_id", ["0", "1", str(2**63), str(2**300)])
@pytest.mark.parametrize(
    "command", [["show"], ["open"], ["rule", "--upheld"], ["close"], ["release"]], ids=" ".join
)
def test_nothing_is_held(stage: Stage, cli: Cli, command: list[str], request_id: str) -> None:
    outcome = cli("dispute", *command, request_id)

    outcome.refused(ExitCode.CONFIGURATION, f"no payment of request {request_id} is held back")


@pytest.mark.parametrize("arguments", [["rule", "1"], ["release"], ["open", "one"]], ids=" ".join)
def test_a_command_line_that_cannot_be_read(cli: Cli, arguments: list[str]) -> None:
    cli("dispute", *arguments).refused(ExitCode.USAGE, "--help` explains it")
