"""What is measured: Anvil, embedded PostgreSQL, a daemon with four workers of a toy model."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eth_utils.address import to_canonical_address
from msgspec.structs import replace

from indexer.rpc import Rpc
from indexer.threads import in_thread
from indexer.types import WEI_PER_GWEI, Address, Contracts, Wei
from inferd.bench.arena import CONFIG, DEPLOYER, POSTER
from inferd.chain.anvil import Anvil, start_anvil
from inferd.chain.deploy import DeploymentTerms, deploy
from inferd.chain.register import register_worker
from inferd.chain.transact import Sender
from inferd.demo.daemon import died, start_daemon, stop_daemon, until_ready
from inferd.node.postgres import EmbeddedPostgres

BLOCK_S = 1
BASE_FEE_WEI = WEI_PER_GWEI
FEE_WEI = Wei(10**6 * WEI_PER_GWEI)
MODEL = "markov"
WORKERS = (4, 5, 6, 7)
OWNERS = (8, 9, 10, 11)
REQUESTERS = (12, 13, 14, 15)
_SLOTS = 32
_GAS_LIMIT = 60_000_000

_SETTINGS = """\
rpc_urls = ["{rpc_url}"]
rpc_ws_urls = ["{ws_url}"]
deployment_file = "{folder}/deployment.json"
data_dir = "{folder}"
poster = {{ dev_account = {poster} }}

[api]
port = 0
"""
_WORKER = """
[[workers]]
name = "bench-{signer}"
backend = "markov"
model = "{model}"
slots = {slots}
memory_mb = 1024
key = {{ dev_account = {signer} }}
owner = {{ dev_account = {owner} }}
"""


@cache
def address_of(index: int) -> Address:
    """Of an account of the chain."""
    return Address(to_canonical_address(CONFIG.account(index).address))


@dataclass(frozen=True, slots=True)
class World:
    """All parts, up and ready."""

    anvil: Anvil
    rpc: Rpc
    contracts: Contracts
    postgres: EmbeddedPostgres
    daemon: subprocess.Popen[bytes]
    log: Path

    def check_daemon(self) -> None:
        """Raises DaemonDied with the end of its log."""
        if self.daemon.poll() is not None:
            raise died(self.log, f"ended with exit code {self.daemon.returncode}")


@contextlib.asynccontextmanager
async def built(folder: Path, say: Callable[[str], None]) -> AsyncIterator[World]:
    """In an empty folder. Takes all down in reverse, also when interrupted.

    Raises AnvilMissing, AnvilNotStarted, DatabaseUnreachable, DaemonDied.
    """
    postgres = EmbeddedPostgres(folder / "postgres")
    config = replace(CONFIG, gas_limit=_GAS_LIMIT, base_fee_wei=BASE_FEE_WEI)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(postgres.stop)
        await in_thread(postgres.ensure_running)
        anvil = stack.enter_context(start_anvil(config, log=folder / "anvil.log"))
        rpc = await stack.enter_async_context(Rpc([anvil.url], timeout_s=60))
        deployment = await deploy(
            Sender(rpc, CONFIG.account(DEPLOYER), CONFIG.chain_id), DeploymentTerms()
        )
        deployment.save(folder / "deployment.json")
        await _register(rpc, deployment.contracts)
        # So far each transaction was mined at once.
        await rpc.request("evm_setAutomine", [False])
        await rpc.request("evm_setIntervalMining", [BLOCK_S])
        say("PostgreSQL, Anvil and the contracts are there")
        (folder / "inferd.toml").write_text(_settings(folder, anvil))
        daemon, log = start_daemon(folder)
        stack.push_async_callback(stop_daemon, daemon)
        await until_ready(folder, daemon, log)
        say("the daemon is ready")
        yield World(anvil, rpc, deployment.contracts, postgres, daemon, log)


async def _register(rpc: Rpc, contracts: Contracts) -> None:
    async with asyncio.TaskGroup() as tasks:
        for signer, owner in zip(WORKERS, OWNERS, strict=True):
            sender = Sender(rpc, CONFIG.account(owner), CONFIG.chain_id)
            signing = CONFIG.account(signer)
            tasks.create_task(
                register_worker(sender, signing, [MODEL], _SLOTS, 1024, None, contracts)
            )


def _settings(folder: Path, anvil: Anvil) -> str:
    workers = [
        _WORKER.format(signer=signer, owner=owner, model=MODEL, slots=_SLOTS)
        for signer, owner in zip(WORKERS, OWNERS, strict=True)
    ]
    whole = _SETTINGS.format(
        rpc_url=anvil.url,
        ws_url=anvil.url.replace("http://", "ws://"),
        folder=folder,
        poster=POSTER,
    )
    return whole + "".join(workers)
