"""Each mistake ends in one clear line, one line of help and its own exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexer.errors import ExitCode
from inferd.chain.anvil import Anvil
from tests.cli.support import Cli, FakeNode, status_body

SUBMIT = {"--model": "markov", "--prompt": "hello", "--fee": "0.01ether", "--deadline": "10m"}


def submit(cli: Cli, *flags: str, **changes: str) -> Any:
    options = SUBMIT | {"--" + name.replace("_", "-"): value for name, value in changes.items()}
    return cli("submit", *flags, *(word for pair in options.items() for word in pair))


def test_a_missing_deployment_file(cli: Cli) -> None:
    submit(cli).refused(ExitCode.CONFIGURATION, "no deployment file", "inferd deploy")


def test_an_unreachable_rpc(cli: Cli) -> None:
    cli("deploy").refused(ExitCode.TRY_AGAIN, "http://127.0.0.1:9 does not answer")


def test_a_fee_that_is_no_number(cli: Cli) -> None:
    submit(cli, fee="lots").refused(ExitCode.CONFIGURATION, "'lots' is no fee", "0.01ether")
    submit(cli, fee="1.5gwei").refused(ExitCode.CONFIGURATION, "whole number of gwei")


def test_a_deadline_in_the_past(cli: Cli, deployed: Anvil) -> None:
    late = submit(cli, deadline="2020-01-01T00:00:00Z")
    late.refused(ExitCode.CONFIGURATION, "before the chain's newest block")
    submit(cli, deadline="yesterday").refused(ExitCode.CONFIGURATION, "no span of time")


def test_an_unknown_model(cli: Cli, deployed: Anvil, node: FakeNode) -> None:
    node.says("/v1/status", status_body())

    submit(cli, model="gpt-9").refused(ExitCode.CONFIGURATION, "'gpt-9'", "choose of markov")
    assert submit(cli, "--anyway", model="gpt-9").code == 0


def test_without_a_node_a_model_is_only_warned_of(cli: Cli, deployed: Anvil) -> None:
    outcome = submit(cli)

    assert outcome.code == 0
    assert "warning: cannot tell whether a worker serves markov" in outcome.stderr
    assert outcome.stdout.startswith("request 1\ntransaction 0x")


def test_no_prompt(cli: Cli) -> None:
    submit(cli, prompt="").refused(ExitCode.CONFIGURATION, "the prompt is empty")
    submit(cli, prompt="@none.txt").refused(ExitCode.CONFIGURATION, "none.txt cannot be read")


def test_another_chain(cli: Cli, deployed: Anvil) -> None:
    place = Path("deployment.json")
    body = json.loads(place.read_text())
    place.write_text(json.dumps(body | {"chain_id": 5}))
    submit(cli).refused(ExitCode.CONFIGURATION, "serves chain 31337")

    place.write_text(json.dumps(body | {"genesis_hash": "0x" + "00" * 32}))
    submit(cli).refused(ExitCode.CONFIGURATION, "genesis")


def test_no_contract_at_the_address(cli: Cli, deployed: Anvil) -> None:
    place = Path("deployment.json")
    body = json.loads(place.read_text())
    body["contracts"]["StakeManager"] = "0x" + "99" * 20
    place.write_text(json.dumps(body))

    submit(cli).refused(ExitCode.CONFIGURATION, "no contract at 0x9999")


def test_a_bad_key_file(cli: Cli, deployed: Anvil, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text("not a key: hunter2")
    (tmp_path / "password").write_text("hunter2")
    Path("inferd.toml").write_text(
        'requester = { keystore = "key.json", password_file = "password" }\n'
    )

    outcome = submit(cli)

    outcome.refused(ExitCode.CONFIGURATION, "key.json is not a keystore")
    assert "hunter2" not in outcome.stderr


def test_a_raw_key_that_is_none(cli: Cli, deployed: Anvil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERD_REQUESTER", '{"raw": "0xdeadbeef"}')

    outcome = submit(cli)

    outcome.refused(ExitCode.CONFIGURATION, "requester key is not 32 bytes of hex")
    assert "deadbeef" not in outcome.stderr


def test_all_bad_settings_are_listed_at_once(cli: Cli) -> None:
    Path("inferd.toml").write_text(
        'rpc_urls = []\nlog_level = "loud"\nsurprise = 1\n[api]\nport = 99999\n'
        "[requester]\nkeystore = 'secretsecret'\ndev_account = 1\n"
    )

    outcome = cli("config")

    outcome.refused(ExitCode.CONFIGURATION, "log_level", "surprise", "api.port", "requester")
    assert "secretsecret" not in outcome.stderr


def test_toml_that_is_none(cli: Cli) -> None:
    Path("inferd.toml").write_text("rpc_urls = [")

    cli("config").refused(ExitCode.CONFIGURATION, "inferd.toml")


def test_a_settings_file_that_is_not_there(cli: Cli) -> None:
    cli("--config", "none.toml", "config").refused(ExitCode.CONFIGURATION, "no file none.toml")


def test_an_unreachable_node(cli: Cli) -> None:
    for arguments in (["status"], ["why", "1"], ["watch"], ["watch", "1"]):
        cli(*arguments).refused(ExitCode.TRY_AGAIN, "127.0.0.1:9 does not answer", "inferd node")


def test_secrets_in_urls_are_not_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERD_NODE_URL", "http://user:hunter2@127.0.0.1:9/hunter2")
    monkeypatch.setenv("INFERD_RPC_URLS", '["http://user:hunter2@127.0.0.1:9/v3/hunter2"]')
    monkeypatch.setenv("INFERD_DATABASE_URL", "postgresql://user:hunter2@db/x")

    outcomes = [cli("status"), cli("deploy"), cli("config"), cli("config", "--json")]

    assert [outcome.code for outcome in outcomes] == [75, 75, 0, 0]
    for outcome in outcomes:
        assert "hunter2" not in outcome.stdout + outcome.stderr


@pytest.mark.parametrize("url", ["nonsense", "http://x:port", "ftp://x/", "http://a..b"])
def test_a_node_url_that_is_none(cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("INFERD_NODE_URL", url)

    outcome = cli("status")

    assert outcome.code in {ExitCode.CONFIGURATION, ExitCode.TRY_AGAIN}
    outcome.refused(outcome.code, "node_url")


def test_unknown_ids(cli: Cli, deployed: Anvil, node: FakeNode) -> None:
    for command in ("why", "watch", "result"):
        cli(command, "99").refused(ExitCode.CONFIGURATION, "99")
    cli("cancel", "99").refused(ExitCode.CONFIGURATION, "there is no request 99")


@pytest.mark.parametrize("body", [b"<html>", {"id": 7}, [], 403, b"\xff"])
def test_what_is_no_node(cli: Cli, node: FakeNode, body: Any) -> None:
    node.says("/v1/status", body)

    cli("status").refused(ExitCode.CONFIGURATION, "not an inferd node")


def test_a_node_that_cannot_answer_now(cli: Cli, node: FakeNode) -> None:
    node.says("/v1/requests/7", 503)

    cli("watch", "7").refused(ExitCode.TRY_AGAIN, "HTTP 503")


@pytest.mark.parametrize(
    "arguments",
    [
        ["sub"],
        ["submit"],
        ["why"],
        ["why", "seven"],
        ["status", "--loud"],
        ["deploy", "--poster-bps", "x"],
        ["deploy", "--poster-bps", "10001"],
    ],
)
def test_a_command_line_that_cannot_be_read(cli: Cli, arguments: list[str]) -> None:
    cli(*arguments).refused(ExitCode.USAGE, "--help` explains it")


def test_a_worker_that_nobody_describes(cli: Cli) -> None:
    words = "the settings name no workers, and the command does not name --backend, --model, a key"
    cli("worker").refused(ExitCode.CONFIGURATION, words, "[[workers]]")


def test_an_account_without_funds(
    cli: Cli, deployed: Anvil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERD_REQUESTER", json.dumps({"raw": "0x" + "5e" * 32}))

    outcome = submit(cli)

    outcome.refused(ExitCode.CONFIGURATION, "fund")
    assert "5e5e" not in outcome.stderr


def test_a_fault_of_inferd_leaves_its_traceback_in_a_file(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("s3cret")

    monkeypatch.setattr("inferd.cli.configuration.printable", broken)

    outcome = cli("config")

    outcome.refused(ExitCode.INTERNAL, "inferd has a fault: KeyError")
    assert "s3cret" not in outcome.stderr
    place = Path(outcome.stderr.splitlines()[-1].split()[-1])
    assert "Traceback" in place.read_text()
    assert place.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("INFERD_LOG_LEVEL", "debug")
    assert "Traceback" in cli("config").stderr


def test_the_local_chain_with_a_bad_file(cli: Cli) -> None:
    cli("chain", "--config-file", "none.toml").refused(ExitCode.CONFIGURATION, "none.toml")
    Path("anvil.toml").write_text("chain_id = 1")
    cli("chain").refused(ExitCode.CONFIGURATION, "anvil.toml")


def test_compiling_without_sources(cli: Cli, tmp_path: Path) -> None:
    cli("compile", "--folder", str(tmp_path)).refused(ExitCode.CONFIGURATION, "no contract sources")
