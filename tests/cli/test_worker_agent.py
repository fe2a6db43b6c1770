"""`inferd worker` as a process: it starts, answers an operator over HTTP, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_canonical_address

from indexer.errors import ExitCode
from indexer.types import Address
from inferd.chain.register import info_hash
from inferd.node.crew import hired
from inferd.node.settings import load_settings
from inferd.protocol.request import model_id
from inferd.protocol.typed_data import domain_separator
from inferd.protocol.worker_api import ErrorBody, JobDone, signed_item
from inferd.protocol.worker_api_signing import worker_domain
from tests.cli.stage import POSTER, Stage
from tests.cli.stage import WORKER as WORKER_ACCOUNT
from tests.cli.support import Cli
from tests.workers.service.support import Operator, a_request

MORE_MODELS = """
[[workers.models]]
backend = "markov"
model = "other"
[[workers.models]]
backend = "command"
model = "third"
[workers.models.command]
argv = ["cat"]
"""
ENDPOINT = "https://gpu.example/worker"
SETTINGS = """
[[workers]]
name = "text"
backend = "{backend}"
model = "markov"
slots = 2
endpoint = "https://gpu.example/worker/"
key = {{ dev_account = 5 }}
owner = {{ dev_account = 3 }}
{more}
[agent]
port = 0
metrics_port = 0
operators = ["{operator}"]
"""
SLEEPER = """
[workers.command]
argv = ["/bin/sh", "-c", "read line; case $line in *Hello*) sleep 60;; esac; printf hi"]
"""
"""Answers, but sleeps where the input is Hello."""


def write_settings(stage: Stage, *, backend: str = "markov", more: str = "") -> None:
    operator = stage.address(POSTER)
    text = SETTINGS.format(backend=backend, more=more, operator=operator)
    Path("inferd.toml").write_text('data_dir = "data"\n' + text)


@contextlib.contextmanager
def running(stage: Stage, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = Path("agent.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "inferd", "worker", *arguments], stderr=output, stdout=output
        )
    try:
        yield process, log
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def agent_url(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        for place in Path("data").glob("worker-*/agent.json"):
            return str(json.loads(place.read_text())["url"])
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def poster_at(stage: Stage, url: str) -> Operator:
    """The operator of the settings, for the worker and the contracts of the stage."""
    return Operator(
        url,
        PrivateKey(bytes(stage.anvil.config.account(POSTER).key)),
        worker=Address(to_canonical_address(stage.address(WORKER_ACCOUNT))),
        domain=worker_domain(stage.contracts.chain_id, stage.contracts.results),
    )


def test_it_serves_and_ends_in_order(stage: Stage, cli: Cli) -> None:
    write_settings(stage)
    with running(stage) as (process, log):
        operator = poster_at(stage, agent_url(process, log))

        async def ask() -> None:
            async with aiohttp.ClientSession() as operator.session:
                job = a_request(3, b"once upon a time", model="markov")
                done = await operator.ask(job)
                assert isinstance(done, JobDone), done
                results = domain_separator(stage.contracts.chain_id, stage.contracts.results)
                signed_item(done, job.id, operator.worker, results)

        asyncio.run(ask())
        cli("worker", "--listen", "127.0.0.1:0").refused(
            ExitCode.TRY_AGAIN, "another process has the log of signatures"
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    said = log.read_text()
    assert "serving_worker" in said
    assert "offer_differs_on_chain" in said, "it was registered without an endpoint"
    assert not list(Path("data").glob("worker-*/agent.json"))


def test_a_running_job_is_given_back_at_the_end(stage: Stage) -> None:
    write_settings(stage, backend="command", more=SLEEPER)
    with running(stage) as (process, log):
        operator = poster_at(stage, agent_url(process, log))

        async def ask() -> object:
            async with aiohttp.ClientSession() as operator.session:
                job = a_request(3, b"Hello", model="markov")
                asked = asyncio.create_task(operator.ask(job))
                while True:
                    answer = await operator.look(job.id)
                    if not isinstance(answer, ErrorBody):
                        break
                    await asyncio.sleep(0.02)
                process.send_signal(signal.SIGTERM)
                return await asked

        answer = asyncio.run(ask())
        assert isinstance(answer, ErrorBody)
        assert answer.code == "busy"
        assert process.wait(30) == 0
    assert '"event": "stopping"' in log.read_text()


def test_a_worker_of_the_daemon_is_not_served(stage: Stage, cli: Cli) -> None:
    cli("worker", "--name", "text").refused(ExitCode.CONFIGURATION, "has no `endpoint`")
    cli("worker", "--name", "nobody").refused(ExitCode.CONFIGURATION, "no worker nobody")


def test_what_is_missing_is_said(stage: Stage, cli: Cli) -> None:
    Path("inferd.toml").write_text('data_dir = "data"\n')
    start = ("worker", "--backend", "markov", "--model", "markov", "--dev-account", "5")
    place = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
    cli("worker").refused(ExitCode.CONFIGURATION, "does not name --backend, --model")
    cli(*start, *place).refused(ExitCode.CONFIGURATION, "trusts no operator")
    cli(*start, "--operator", "0x12").refused(ExitCode.CONFIGURATION, "0x12 is no address")
    cli(*start, "--listen", "8750").refused(ExitCode.USAGE, "--listen is HOST:PORT")
    cli("worker", "--slots", "3", "check").refused(ExitCode.USAGE, "takes its options after")
    operator = ("--operator", stage.address(POSTER))
    cli(*start, *operator, "--listen", "192.0.2.1:1").refused(
        ExitCode.CONFIGURATION, "cannot listen on 192.0.2.1:1: Cannot assign"
    )
    cli(*start, *operator, "--tls-certificate", "x.pem").refused(
        ExitCode.CONFIGURATION, "go together"
    )
    cli(*start, *operator, "--deployment", "none.json").refused(
        ExitCode.CONFIGURATION, "no deployment file at none.json"
    )
    stage.replace_code(stage.contracts.results, b"")
    cli(*start, *operator, *place).refused(ExitCode.CONFIGURATION, "there is no contract at")


def test_register_puts_the_endpoint_on_chain(stage: Stage, cli: Cli) -> None:
    write_settings(stage)
    assert "updated" in cli("worker", "register").stdout
    record = stage.view("WorkerRegistry", "workerOf", stage.address(WORKER_ACCOUNT))
    assert record[5] == info_hash([model_id("markov")], ENDPOINT)
    assert cli("worker", "register", "--json").code == 0


def test_several_models_are_served_registered_and_checked(stage: Stage, cli: Cli) -> None:
    write_settings(stage, more=MORE_MODELS)
    assert "updated" in cli("worker", "register").stdout
    record = stage.view("WorkerRegistry", "workerOf", stage.address(WORKER_ACCOUNT))
    names = ("markov", "other", "third")
    assert record[5] == info_hash([model_id(name) for name in names], ENDPOINT)
    said = json.loads(cli("worker", "check", "--json").stdout)
    assert [one["model"] for one in said["models"]] == list(names)
    assert said["model"] == "markov"
    with running(stage) as (process, log):
        operator = poster_at(stage, agent_url(process, log))

        async def ask() -> None:
            async with aiohttp.ClientSession() as operator.session:
                done = [
                    await operator.ask(a_request(number, b"once upon a time", model=name))
                    for number, name in enumerate(names, 3)
                ]
                assert all(isinstance(one, JobDone) for one in done), done
                assert [one.manifest["model"] for one in done] == list(names)  # type: ignore[union-attr]
                assert b"once upon a time" in done[2].output  # type: ignore[union-attr]

        asyncio.run(ask())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    said_of = [line for line in log.read_text().splitlines() if "backend_checked" in line]
    assert len(said_of) == len(names)
    assert "offer_differs_on_chain" not in log.read_text()


def test_models_of_one_server_are_named_one_after_the_other(stage: Stage, cli: Cli) -> None:
    at = ("worker", "check", "--base-url", "http://127.0.0.1:1/v1")
    several = ("--model", "a", "--model", "b")
    # The second is looked for at the same server: nobody is there.
    cli(*at, "--backend", "openai", *several).refused(ExitCode.TRY_AGAIN, "127.0.0.1:1")
    cli(*at, "--backend", "openai", *several, "--server-model", "c").refused(
        ExitCode.USAGE, "those of one server"
    )
    cli("worker", "check", "--backend", "markov", *several).refused(
        ExitCode.USAGE, "those of one server"
    )
    cli(*at, "--backend", "openai", "--model", "a", "--model", "a").refused(
        ExitCode.CONFIGURATION, "two models of a worker have one name"
    )


def test_check_asks_the_model(cli: Cli) -> None:
    nothing = cli("worker", "check")
    nothing.refused(ExitCode.CONFIGURATION, "does not name --backend, --model")
    done = cli("worker", "check", "--backend", "markov", "--model", "markov", "--json")
    said = json.loads(done.stdout)
    assert (said["model"], said["deterministic"]) == ("markov", True)
    failing = Path("fails.toml")
    failing.write_text(
        '[[workers]]\nname = "x"\nbackend = "command"\nmodel = "m"\nkey = {dev_account = 5}\n'
        '[workers.command]\nargv = ["/bin/false"]\n'
    )
    cli("--config", str(failing), "worker", "check").refused(
        ExitCode.CONFIGURATION, "does not answer"
    )


async def test_the_daemon_leaves_workers_with_an_agent_alone(stage: Stage) -> None:
    write_settings(stage)
    async with hired(load_settings(), stage.contracts, ()) as crew:
        assert crew.members == ()
