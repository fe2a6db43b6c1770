"""What only a process of its own can show: help, signals, pipes, scripts."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Cli, FakeNode, request_body

CHECKOUT = Path(__file__).parents[2]
INFERD = (sys.executable, "-c", "from inferd.cli import main; main()")
COMMANDS = (
    ["chain"],
    ["compile"],
    ["deploy"],
    ["node"],
    ["demo"],
    ["submit"],
    ["cancel"],
    ["watch"],
    ["result"],
    ["status"],
    ["why"],
    ["config"],
    ["worker"],
    ["worker", "check"],
    ["worker", "register"],
    ["worker", "update"],
    ["worker", "report-equivocation"],
    ["worker", "unstake"],
    ["worker", "withdraw-stake"],
    ["raise-fee"],
    ["refund"],
    ["deliver"],
    ["withdraw"],
    ["dispute"],
    ["dispute", "show"],
    ["dispute", "open"],
    ["dispute", "rule"],
    ["dispute", "close"],
    ["dispute", "release"],
    ["index"],
    ["index", "verify"],
    ["index", "repair"],
    ["index", "rebuild"],
    ["index", "quarantine"],
    ["admin"],
    ["admin", "show"],
    ["admin", "pause"],
    ["admin", "unpause"],
    ["admin", "terms"],
    ["admin", "arbiter"],
    ["admin", "offer-ownership"],
    ["admin", "accept-ownership"],
    ["bench"],
    ["bench", "gas"],
    ["bench", "index"],
)


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_every_command_explains_itself_with_an_example(cli: Cli, command: list[str]) -> None:
    outcome = cli(*command, "--help")

    assert outcome.code == 0
    assert "Example" in outcome.stdout
    assert outcome.stderr == ""


def test_without_arguments_it_explains_itself(cli: Cli) -> None:
    assert "Usage: inferd" in cli().stdout


def test_the_local_chain_ends_with_ctrl_c_and_leaves_nothing() -> None:
    _chain_ends_with(signal.SIGINT, 130)


def test_the_local_chain_ends_with_sigterm() -> None:
    _chain_ends_with(signal.SIGTERM, 0)


def _chain_ends_with(number: int, code: int) -> None:
    text = (CHECKOUT / "anvil.toml").read_text().replace("port = 8545", "port = 0")
    Path("anvil.toml").write_text(text)
    with subprocess.Popen(
        [*INFERD, "chain", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()

        process.send_signal(number)
        _, errors = process.communicate(timeout=20)

    assert said["url"].startswith("http://127.0.0.1:")
    assert said["accounts"][0] == "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
    assert process.returncode == code, errors
    assert b"Traceback" not in errors
    assert len(children) == 1
    assert not Path(f"/proc/{children[0]}").exists()


def test_ctrl_c_while_watching(node: FakeNode) -> None:
    node.says("/v1/requests/7", request_body(state="waiting"))
    with subprocess.Popen(
        [*INFERD, "watch", "7"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"request 7 waiting")

        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)

    assert (process.returncode, errors) == (130, b"")


def test_a_reader_that_leaves_is_no_error(node: FakeNode) -> None:
    node.says("/v1/requests/7", *(request_body(state="waiting", attempts=n) for n in range(3)))
    node.says("/v1/requests/7", request_body(state="waiting"), request_body(state="settled"))
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [*INFERD, "watch", "7"], stdout=writing, stderr=subprocess.PIPE
    ) as process:
        os.close(writing)
        _, errors = process.communicate(timeout=20)

    assert (process.returncode, errors) == (0, b"")


@pytest.mark.parametrize("name", ["chain", "compile", "demo", "deploy", "node", "submit"])
def test_scripts_are_the_commands(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = CHECKOUT / "scripts" / f"{name}.py"
    monkeypatch.setattr("sys.argv", [str(script), "--help"])

    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(script), run_name="__main__")

    assert left.value.code == 0
    assert f"Usage: inferd {name}" in capsys.readouterr().out
