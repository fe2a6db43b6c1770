"""The demo's world: PostgreSQL, Anvil, contracts, registered workers, a daemon; and its end."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
from eth_account.signers.local import LocalAccount

from indexer.errors import OperatorError
from indexer.rpc import Rpc
from indexer.threads import in_thread
from inferd.chain.anvil import Anvil, load_anvil_config, start_anvil
from inferd.chain.deploy import DeploymentTerms, deploy
from inferd.chain.keys import KeySource, open_account
from inferd.chain.register import register_worker
from inferd.chain.transact import Sender
from inferd.demo.daemon import died, start_daemon, stop_daemon, until_ready
from inferd.node.postgres import EmbeddedPostgres
from inferd.node.settings import Settings, load_settings
from inferd.protocol.deployment import Deployment
from inferd.workers.model_files import ensure_smollm2

_CANCEL_DELAY_S = 2

# Accounts of anvil.toml: 0 deploys, 1 posts, 2 asks, 3 and 4 own the workers, 5 and 6 sign.
_SETTINGS = """\
rpc_urls = ["{rpc_url}"]
deployment_file = "{folder}/deployment.json"
data_dir = "{folder}"
log_format = "json"
deployer = {{ dev_account = 0 }}
poster = {{ dev_account = 1 }}
requester = {{ dev_account = 2 }}

[api]
port = 0

[posting]
delay_price_gwei_per_s = 10_000

[[workers]]
name = "text"
backend = "llamacpp"
model = "smollm2-135m"
slots = 1
memory_mb = 1024
key = {{ dev_account = 5 }}
owner = {{ dev_account = 3 }}

[[workers]]
name = "embeddings"
backend = "wordllama"
model = "wordllama-256"
slots = 4
memory_mb = 256
key = {{ dev_account = 6 }}
owner = {{ dev_account = 4 }}
"""


class NotADemoFolder(OperatorError):
    """The demo empties its folder first, and this one holds something else."""

    code: ClassVar[str] = "not_a_demo_folder"


@dataclass(frozen=True, slots=True)
class World:
    """Everything up and ready to be asked."""

    settings: Settings
    deployment: Deployment
    rpc: Rpc
    requester: Sender
    node_url: str
    daemon: subprocess.Popen[bytes]
    log: Path

    def account(self, source: KeySource) -> LocalAccount:
        return open_account(source, self.deployment.contracts.chain_id, use="demo")

    def check_daemon(self) -> None:
        """Raises DaemonDied with the end of its log."""
        if self.daemon.poll() is not None:
            raise died(self.log, f"ended with exit code {self.daemon.returncode}")


@contextlib.asynccontextmanager
async def built(folder: Path, say: Callable[[str], None]) -> AsyncIterator[World]:
    """Brings the world up step by step, and takes it down in reverse, also when interrupted."""
    postgres = _emptied(folder)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(postgres.stop)
        await in_thread(postgres.ensure_running)
        say("PostgreSQL is up, embedded")
        config = msgspec.structs.replace(load_anvil_config(), port=0)
        anvil = stack.enter_context(start_anvil(config, log=folder / "anvil.log"))
        say(f"Anvil is up at {anvil.url}: chain {config.chain_id}, hardfork {config.hardfork}")
        settings = _write_settings(folder, anvil)
        rpc = await stack.enter_async_context(Rpc([anvil.url]))
        deployment = await _deploy(settings, rpc)
        say(f"four contracts are deployed since block {deployment.contracts.start_block}")
        await _register(settings, rpc, deployment, say)
        stop = threading.Event()
        model = await in_thread(lambda: ensure_smollm2(settings.cache_dir, stop), stop=stop)
        say(f"the text model is in {model.parent}")
        daemon, log = start_daemon(folder)
        stack.push_async_callback(stop_daemon, daemon)
        node_url = await until_ready(folder, daemon, log)
        say(f"the daemon is ready at {node_url}")
        yield World(
            settings,
            deployment,
            rpc,
            _sender(settings, rpc, "requester"),
            node_url,
            daemon,
            log,
        )


def _emptied(folder: Path) -> EmbeddedPostgres:
    """The folder, without what an earlier demo left in it, or left running.

    Raises NotADemoFolder rather than delete what is not a demo's.
    """
    marker = folder / ".inferd-demo"
    if folder.exists() and any(folder.iterdir()) and not marker.is_file():
        raise NotADemoFolder(
            f"{folder} is not empty, and no demo made it",
            help_text="name an empty or new folder with `--folder`",
        )
    postgres = EmbeddedPostgres(folder / "postgres")
    postgres.stop()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    marker.touch()
    return postgres


def _write_settings(folder: Path, anvil: Anvil) -> Settings:
    path = folder / "inferd.toml"
    path.write_text(_SETTINGS.format(rpc_url=anvil.url, folder=folder))
    return load_settings(path)


def _sender(settings: Settings, rpc: Rpc, use: str) -> Sender:
    chain_id = load_anvil_config().chain_id
    return Sender(rpc, open_account(getattr(settings, use), chain_id, use=use), chain_id)


async def _deploy(settings: Settings, rpc: Rpc) -> Deployment:
    terms = DeploymentTerms(cancel_delay_s=_CANCEL_DELAY_S)
    deployment = await deploy(_sender(settings, rpc, "deployer"), terms)
    deployment.save(settings.deployment_file)
    return deployment


async def _register(
    settings: Settings, rpc: Rpc, deployment: Deployment, say: Callable[[str], None]
) -> None:
    chain_id = deployment.contracts.chain_id

    async def one(index: int) -> None:
        worker = settings.workers[index]
        if worker.owner is None:
            raise AssertionError("each of the demo's workers has an owner")
        owner = open_account(worker.owner, chain_id, use=f"owner of {worker.name}")
        signer = open_account(worker.key, chain_id, use=f"worker {worker.name}")
        done = await register_worker(
            Sender(rpc, owner, chain_id),
            signer,
            worker.model_names,
            worker.slots,
            worker.memory_mb,
            None,
            deployment.contracts,
        )
        say(f"worker {worker.name} ({worker.model}) is registered, stake {done.stake_wei} wei")

    async with asyncio.TaskGroup() as tasks:
        for index in range(len(settings.workers)):
            tasks.create_task(one(index))
