"""Taking money out: credits and stakes, by the accounts of the settings."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from eth_utils.address import to_canonical_address

from indexer.errors import ExitCode
from indexer.rpc import Rpc
from indexer.types import Address
from inferd.chain.anvil import Anvil
from inferd.protocol import calls
from tests.cli.stage import DEPLOYER, OWNER, Stage
from tests.cli.support import Cli

_WORKER = """
[[workers]]
name = "text"
backend = "markov"
model = "markov"
key = { dev_account = 5 }
owner = { dev_account = 3 }
"""


@pytest.fixture
def registered(deployed: Anvil, cli: Cli) -> Anvil:
    Path("inferd.toml").write_text(_WORKER)
    assert cli("worker", "register").code == 0
    return deployed


def _pass_time(anvil: Anvil, seconds: int) -> None:
    async def go() -> None:
        async with Rpc([anvil.url]) as rpc:
            await rpc.request("evm_increaseTime", [seconds])
            await rpc.request("evm_mine")

    asyncio.run(go())


def test_nothing_to_withdraw_is_told(registered: Anvil, cli: Cli) -> None:
    for account in ("requester", "poster", "text"):
        told = cli("withdraw", account)
        assert told.code == ExitCode.CONFIGURATION
        assert told.stderr.splitlines()[0].startswith("error: nothing is credited to 0x")


def test_an_unknown_account_is_told(registered: Anvil, cli: Cli) -> None:
    told = cli("withdraw", "nobody")
    assert told.code == ExitCode.CONFIGURATION
    assert "nobody" in told.stderr


def test_a_bad_address_is_told_before_anything_is_sent(registered: Anvil, cli: Cli) -> None:
    told = cli("withdraw", "poster", "--to", "0x1234")
    assert told.code == ExitCode.CONFIGURATION
    assert "no address" in told.stderr


def test_a_credit_goes_where_it_is_sent(stage: Stage, cli: Cli) -> None:
    requests, nobody = stage.contracts.requests, Address(b"\x77" * 20)
    for index in (DEPLOYER, OWNER):
        credited = calls.credit(Address(to_canonical_address(stage.address(index))))
        stage.send(requests, credited, value_wei=10**18)

    away = cli("withdraw", "deployer", "--to", "0x" + nobody.hex())
    home = cli("withdraw", "text")

    assert (away.stdout, home.stdout) == ("1 ether\n", "1 ether\n")
    assert stage.do(lambda rpc: rpc.balance(nobody)) == 10**18
    assert stage.credit_of(DEPLOYER) == stage.credit_of(OWNER) == 0
    cli("withdraw", "text").refused(ExitCode.CONFIGURATION, "nothing is credited")


def test_a_stake_leaves_after_its_delay(registered: Anvil, cli: Cli) -> None:
    early = cli("worker", "withdraw-stake", "text")
    assert early.code == ExitCode.CONFIGURATION
    assert "on its way out" in early.stderr

    started = cli("worker", "unstake", "text", "--json")
    assert started.code == 0, started.stderr
    assert json.loads(started.stdout)["unbonding_wei"] == str(10**17)

    waiting = cli("worker", "withdraw-stake", "text")
    assert waiting.code == ExitCode.TRY_AGAIN
    assert "s from now" in waiting.stderr

    _pass_time(registered, 7 * 24 * 3600 + 1)
    taken = cli("worker", "withdraw-stake", "text")
    assert (taken.code, taken.stdout) == (0, "0.1 ether\n"), taken.stderr
    assert cli("worker", "unstake", "text").code == ExitCode.CONFIGURATION


def test_a_fee_is_raised_and_comes_back(registered: Anvil, cli: Cli) -> None:
    ask = ("submit", "--model", "markov", "--prompt", "x", "--fee", "0.01ether", "--anyway")
    assert cli(*ask, "--deadline", "60s").code == 0
    raised = cli("raise-fee", "1", "0.02ether", "--json")
    assert raised.code == 0, raised.stderr
    assert json.loads(raised.stdout)["fee_wei"] == str(3 * 10**16)

    early = cli("refund", "1")
    assert early.code == ExitCode.CONFIGURATION
    assert "pending" in early.stderr
    _pass_time(registered, 61)
    assert cli("raise-fee", "1", "0.02ether").code == ExitCode.CONFIGURATION
    back = cli("refund", "1")
    assert (back.code, back.stdout) == (0, "0.03 ether\n"), back.stderr
    assert cli("withdraw").stdout == "0.03 ether\n"
    assert cli("refund", "1").code == ExitCode.CONFIGURATION
