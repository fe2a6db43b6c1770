"""`inferd worker` that pulls: what it is told, and what it says where the broker cannot be used."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from indexer.errors import ExitCode
from inferd.chain.anvil import free_port
from inferd.chain.register import info_hash
from inferd.protocol.request import model_id
from tests.cli.stage import POSTER, Stage
from tests.cli.stage import WORKER as WORKER_ACCOUNT
from tests.cli.support import Cli
from tests.workers.pull.redis_server import ADMIN, redis_server

SECRET = "hunter2"
SETTINGS = """
data_dir = "data"
[[workers]]
name = "text"
backend = "markov"
model = "markov"
slots = 2
endpoint = "pull:"
key = { dev_account = 5 }
owner = { dev_account = 3 }
"""


def agent(stage: Stage) -> tuple[str, ...]:
    return (
        *("worker", "--backend", "markov", "--model", "markov", "--dev-account", "5"),
        *("--operator", stage.address(POSTER), "--metrics-listen", "127.0.0.1:0"),
        *("--data-dir", "data"),
    )


def test_a_broker_that_cannot_be_used_is_one_line(
    stage: Stage, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("inferd.toml").write_text("")
    start, place = agent(stage), Path("broker.url")
    from_file = ("--pull-url-file", str(place))

    def refused(code: ExitCode, words: str, *options: str) -> None:
        outcome = cli(*start, *options)
        outcome.refused(code, words)
        assert SECRET not in outcome.stderr + outcome.stdout

    refused(ExitCode.CONFIGURATION, "the file broker.url holds no URL", *from_file)
    place.write_text(f"amqp://me:{SECRET}@127.0.0.1/0")
    refused(ExitCode.CONFIGURATION, "the file broker.url holds no URL", *from_file)
    refused(
        ExitCode.CONFIGURATION, "the variable NOWHERE holds no URL", "--pull-url-env", "NOWHERE"
    )
    place.write_text(f"redis://me:{SECRET}@127.0.0.1:{free_port()}/0")
    refused(ExitCode.TRY_AGAIN, "cannot be used: no connection", *from_file)
    with redis_server(tmp_path / "redis") as redis:
        monkeypatch.setenv("BROKER", f"redis://me:{SECRET}@127.0.0.1:{redis.port}/0")
        refused(ExitCode.CONFIGURATION, "wrong user or password", "--pull-url-env", "BROKER")
    refused(ExitCode.USAGE, "does not listen", *from_file, "--listen", "127.0.0.1:0")
    refused(ExitCode.CONFIGURATION, "give one of", *from_file, "--pull-url-env", "BROKER")


def test_what_the_settings_say(stage: Stage, cli: Cli) -> None:
    operator = f'[agent]\nmetrics_port = 0\noperators = ["{stage.address(POSTER)}"]\n'
    Path("inferd.toml").write_text(SETTINGS + operator)
    cli("worker").refused(ExitCode.CONFIGURATION, "no broker is named")
    assert "updated" in cli("worker", "register").stdout
    record = stage.view("WorkerRegistry", "workerOf", stage.address(WORKER_ACCOUNT))
    assert record[5] == info_hash([model_id("markov")], "pull:")
    Path("inferd.toml").write_text(SETTINGS.replace("pull:", "pull:x"))
    cli("worker").refused(ExitCode.CONFIGURATION, "endpoint is http:// or https://")


def test_it_pulls_and_ends_in_order(stage: Stage, tmp_path: Path) -> None:
    Path("inferd.toml").write_text("")
    log = Path("agent.log")
    with redis_server(tmp_path / "redis") as redis:
        Path("broker.url").write_text(redis.url)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "inferd", *agent(stage)),
                    *("--pull-url-file", "broker.url"),
                ],
                stderr=output,
                stdout=output,
            )
        try:
            end_s = time.monotonic() + 90
            while not (found := list(Path("data").glob("worker-*/agent.json"))):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end_s, log.read_text()
                time.sleep(0.05)
            assert json.loads(found[0].read_text())["url"] == "pull:"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
    said = log.read_text()
    assert ADMIN not in said
    assert [json.loads(line)["event"] for line in said.splitlines()][-2:] == [
        "serving_worker",
        "stopping",
    ]
