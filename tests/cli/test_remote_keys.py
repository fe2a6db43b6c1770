"""Commands whose keys are at a remote signer: their own process never has one."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from eth_account.signers.local import LocalAccount

from indexer.errors import ExitCode
from inferd.chain.anvil import Anvil
from inferd.protocol.deployment import load_deployment
from tests.cli.stage import DEPLOYER, OWNER, REQUESTER, Stage
from tests.cli.support import Cli
from tests.settlement.signer_server import SignerServer, signer_server

WORKER = """
[[workers]]
name = "text"
backend = "markov"
model = "markov"
key = {{ dev_account = 5 }}
owner = {owner}
"""
ASK = ("--model", "markov", "--prompt", "hello", "--fee", "0.01ether", "--deadline", "10m")


@contextmanager
def serving(account: LocalAccount) -> Iterator[SignerServer]:
    """In a thread of its own: commands bring their own event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    opened = signer_server(account)
    server = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def source(server: SignerServer) -> str:
    return f'{{ remote_signer_url = "{server.url}", address = "{server.account.address}" }}'


def test_deploys_registers_and_asks(chain: Anvil, cli: Cli) -> None:
    stage = Stage(chain)
    with (
        serving(chain.config.account(DEPLOYER)) as deployer,
        serving(chain.config.account(OWNER)) as owner,
        serving(chain.config.account(REQUESTER)) as requester,
    ):
        Path("inferd.toml").write_text(
            f"deployer = {source(deployer)}\nrequester = {source(requester)}\n"
            + WORKER.format(owner=source(owner))
        )
        deployed = cli("deploy", "--json")
        assert deployed.code == 0, deployed.stderr
        assert load_deployment(Path("deployment.json")).contracts.chain_id == 31337
        assert deployer.signatures() == stage.sent_by(DEPLOYER) == 5
        assert all("to" not in call["params"][0] for call in deployer.asked[1:])

        registered = cli("worker", "register", "text", "--json")
        assert registered.code == 0, registered.stderr
        assert owner.signatures() == stage.sent_by(OWNER) > 0

        asked = cli("submit", *ASK, "--json")
        assert asked.code == 0, asked.stderr
        request_id = json.loads(asked.stdout)["id"]
        raised = cli("raise-fee", str(request_id), "0.01ether", "--json")
        assert json.loads(raised.stdout)["fee_wei"] == str(2 * 10**16)
        assert requester.signatures() == stage.sent_by(REQUESTER) == 2
        assert stage.view("StakeManager", "stakeOf", stage.address(5))[0] > 0

        requester.lie = lambda transaction: transaction | {"value": transaction["value"] + 1}
        refused = cli("raise-fee", str(request_id), "0.01ether")
        refused.refused(ExitCode.TRY_AGAIN, "its value is another")
        assert stage.sent_by(REQUESTER) == 2


def test_a_signer_that_is_away_is_tried_again_later(chain: Anvil, cli: Cli) -> None:
    address = chain.config.account(DEPLOYER).address
    away = f'{{ remote_signer_url = "http://127.0.0.1:9", address = "{address}" }}'
    Path("inferd.toml").write_text(f"deployer = {away}\n")
    done = cli("deploy")
    assert done.code == ExitCode.TRY_AGAIN
    assert "the signer at http://127.0.0.1:9 does not sign" in done.stderr
    assert not Path("deployment.json").exists()


@pytest.mark.parametrize("key", ["deployer", "owner"])
def test_a_signer_without_the_key_is_told_before_anything_is_sent(
    chain: Anvil, cli: Cli, key: str
) -> None:
    with serving(chain.config.account(DEPLOYER)) as server:
        other = source(server).replace(server.account.address, "0x" + "11" * 20)
        if key == "owner":
            assert cli("deploy").code == 0
            Path("inferd.toml").write_text(WORKER.format(owner=other))
            done = cli("worker", "register", "text")
        else:
            Path("inferd.toml").write_text(f"deployer = {other}\n")
            done = cli("deploy")
        assert done.code == ExitCode.CONFIGURATION
        assert "has no key of" in done.stderr
        assert server.signatures() == 0
