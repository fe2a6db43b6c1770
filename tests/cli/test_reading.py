"""What reading commands print, for people and for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console

from indexer.errors import ExitCode
from inferd.cli.output import escape
from inferd.cli.watch import table_of
from inferd.node.api_models import RequestView
from tests.cli.support import ADDRESS, OTHER_POSTER, TX, Cli, FakeNode, request_body, status_body

WHY = {
    "schema_version": 1,
    "id": 7,
    "state": "waiting",
    "reason": "no_free_slot",
    "sentence": "Every worker is busy.",
    "next_action": "Wait for a slot.",
    "numbers": {"wait_s": "12.5", "detail": "no \x1b]0;colour"},
}
EVIL = "\x1b]0;owned\x07\u202eevil[red]\r\n"


def test_status_for_people(cli: Cli, node: FakeNode) -> None:
    problem = {"code": "no_workers", "sentence": "No worker.", "next_action": "Register one."}
    warning = {"code": "balance_low", "sentence": "It is low.", "next_action": "Send funds."}
    node.says("/v1/status", status_body(ready=False, problems=[problem], warnings=[warning]))

    outcome = cli("status")

    assert outcome.code == 0
    assert outcome.stdout.splitlines() == [
        "node       not ready, leader, release 0.1.0, chain 31337",
        "problem    no_workers: No worker. Register one.",
        "warning    balance_low: It is low. Send funds.",
        "process    far:7 index, schedule: not ready",
        "           starting: It starts. Wait.",
        "index      block 20 of 20, 1 reorganisations, 0 unreadable logs",
        "endpoint   https://one.test in use, 12 ms, 2% errors, at most 18 calls/s",
        "endpoint   https://two.test wrong chain, 3 behind: https://two.test serves chain 1",
        "requests   3 fulfilled, 1 pending",
        f"worker     text {ADDRESS} markov: available, 1 of 2 busy, 3 done, 0 failed",
        "posting    1 results ready, 0 transactions in flight, 2 confirmed, 3 callbacks owed",
        f"poster     {ADDRESS} holds 1000000000000000000001 wei, 0 in flight, 2 confirmed",
        "funds      enough, for 10000000 results at 0.000100000 ether each, 10.0 days at the"
        " recent rate; 0.000000000 ether at most under way, some 0.000100000 waiting",
        f"poster     {OTHER_POSTER} holds 7 wei, 0 in flight, 0 confirmed,"
        " paused: signer_unavailable (the signer does not sign)",
        f"poster     {ADDRESS} holds unknown, 1 in flight, 0 confirmed,"
        " not in the settings any more",
    ]


def test_status_of_funds_where_gas_is_free_and_nothing_was_spent(cli: Cli, node: FakeNode) -> None:
    settlement = status_body()["settlement"]
    settlement["posters"][0]["funds"] |= {
        "runway_results": None,
        "runway_days": None,
        "result_wei": "0",
    }
    node.says("/v1/status", status_body(settlement=settlement))

    assert "funds      enough, gas is free; 0.000000000 ether at most" in cli("status").stdout


def test_status_of_an_endpoint_that_is_behind(cli: Cli, node: FakeNode) -> None:
    node.says("/v1/status", status_body(index=status_body()["index"] | {"head": 7}))

    assert "block 20 of 7, the endpoint is 13 behind that" in cli("status").stdout


def test_status_of_a_node_that_starts(cli: Cli, node: FakeNode) -> None:
    index = dict.fromkeys(("head", "indexed", "finalized", "lag_blocks", "lag_s"))
    index |= {"reorgs": 0, "quarantined": 0, "rechecked": None, "repaired_blocks": 0}
    nothing: dict[str, Any] = {"requests": {}, "workers": [], "settlement": None, "processes": []}
    node.says("/v1/status", status_body(index=index, **nothing))

    lines = cli("status").stdout.splitlines()

    assert lines[1:] == ["index      nothing yet", "requests   none"]


@pytest.mark.parametrize(
    ("path", "body", "arguments"),
    [
        ("/v1/status", status_body(), ["status"]),
        ("/v1/requests/7/why", WHY, ["why", "7"]),
        ("/v1/requests/7", request_body(), ["watch", "7"]),
    ],
)
def test_json_is_the_api_s_in_a_stable_order(
    cli: Cli, node: FakeNode, path: str, body: dict[str, Any], arguments: list[str]
) -> None:
    node.says(path, body)

    outcome = cli(*arguments, "--json")

    said = json.loads(outcome.stdout)
    assert said == {"schema_version": 1} | body
    assert list(said) == list({"schema_version": 1} | body)
    assert outcome.stderr == ""


def test_why_for_people(cli: Cli, node: FakeNode) -> None:
    node.says("/v1/requests/7/why", WHY)

    assert cli("why", "7").stdout == (
        "waiting (no_free_slot): Every worker is busy.\nnext: Wait for a slot.\n"
        "  wait_s            12.5\n  detail            no \\x1b]0;colour\n"
    )


def test_watch_prints_each_change_and_ends(cli: Cli, node: FakeNode) -> None:
    waiting = request_body(
        state="waiting", reason="no_free_slot", sentence="Busy.", waited_blocks=1
    )
    node.says(
        "/v1/requests/7",
        waiting,
        waiting | {"waited_blocks": 2},
        503,
        request_body(state="settled"),
    )

    outcome = cli("watch", "7")

    assert outcome.code == 0
    assert outcome.stdout.splitlines() == [
        "request 7 waiting: markov, fee 10000000000000000 wei, no_free_slot: Busy.",
        f"request 7 settled: markov, fee 10000000000000000 wei, worker {ADDRESS}, after 3 blocks,"
        f" batch of 4, transaction {TX}",
    ]
    assert "HTTP 503" in outcome.stderr


@pytest.mark.parametrize("state", ["settled", "refused", "refunded"])
def test_watch_ends_with_the_request(cli: Cli, node: FakeNode, state: str) -> None:
    node.says("/v1/requests/7", request_body(state=state))

    assert cli("watch", "7").stdout.startswith(f"request 7 {state}")


def test_hostile_text_is_shown_escaped(cli: Cli, node: FakeNode) -> None:
    node.says("/v1/requests/7", request_body(model=EVIL))
    node.says("/v1/requests/7/why", WHY | {"sentence": EVIL})

    for outcome in (cli("watch", "7"), cli("why", "7")):
        assert r"\x1b]0;owned\x07\u202eevil[red]\x0d\x0a" in outcome.stdout
        assert "\x1b" not in outcome.stdout


def test_hostile_text_in_the_table_is_escaped() -> None:
    view = RequestView.model_validate(request_body(model=EVIL))
    console = Console(width=200, force_terminal=True, color_system=None)

    with console.capture() as captured:
        console.print(table_of([view]))

    assert r"\x1b]0;owned\x07\u202eevil[red]" in captured.get()
    assert "\x1b]" not in captured.get()


def test_escaping_keeps_what_is_harmless() -> None:
    assert escape("naïve 日本 👩‍👧") == "naïve 日本 👩‍👧"
    assert escape("a\tb\nc") == "a\\x09b\\x0ac"
    assert escape("a\tb\nc\r\x1b", keep_lines=True) == "a\tb\nc\\x0d\\x1b"
    assert escape("\u2028\ud800\U000e0001") == "\\u2028\\ud800\\U000e0001"


def test_config_for_programs(cli: Cli) -> None:
    outcome = cli("config", "--json")

    said = json.loads(outcome.stdout)
    assert said["schema_version"] == 1
    assert said["settings"]["rpc_urls"] == ["http://127.0.0.1:9"]
    assert said["settings"]["posting"]["max_results"] == 240


def test_config_for_people(cli: Cli) -> None:
    lines = cli("config").stdout.splitlines()

    assert "posting.max_results = 240" in lines
    assert 'rpc_urls = ["http://127.0.0.1:9"]' in lines


def test_the_release(cli: Cli) -> None:
    assert cli("--version").stdout == "inferd 0.1.0\n"


def test_what_a_node_does_not_know_is_told_with_where_to_look(cli: Cli, node: FakeNode) -> None:
    cli("workers", "show", ADDRESS).refused(
        ExitCode.CONFIGURATION, "has no worker 0x", "help: `inferd workers` lists those it knows"
    )
    cli("why", "7").refused(ExitCode.CONFIGURATION, "has no request 7", "help: look at the id")


@pytest.mark.parametrize("command", ["workers", "status"])
def test_a_node_without_what_every_node_has_is_of_another_release(
    cli: Cli, node: FakeNode, command: str
) -> None:
    cli(command).refused(ExitCode.CONFIGURATION, f"has no {command}", "help: run the same release")
