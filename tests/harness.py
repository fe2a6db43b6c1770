"""A whole system for end-to-end tests: chain, contracts, workers, daemons as processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from eth_account.signers.local import LocalAccount
from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.rpc import Rpc
from indexer.types import Address
from inferd.chain.anvil import Anvil, load_anvil_config
from inferd.chain.connect import read_view
from inferd.chain.deploy import DeploymentTerms, deploy
from inferd.chain.register import register_worker
from inferd.chain.requester import Submitted, submit
from inferd.chain.transact import Sender
from inferd.protocol.deployment import Deployment
from inferd.protocol.request import RequestParams, model_id
from tests.forks import Forked

MODEL = "markov"
FEE_WEI = 10**16
DEPLOYER, POSTER, REQUESTER, OWNER, SECOND_POSTER = 0, 1, 2, 3, 4
WORKERS = (5, 6)


def account(index: int) -> LocalAccount:
    return load_anvil_config().account(index)


def address(index: int) -> Address:
    return Address(to_canonical_address(account(index).address))


@dataclass
class System:
    """One chain with the contracts and two registered workers of the fast model."""

    folder: Path
    anvil: Anvil
    rpc: Rpc
    deployment: Deployment
    rpc_url: str = ""
    nodes: list[NodeProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rpc_url = self.rpc_url or self.anvil.url

    @property
    def requester(self) -> Sender:
        return self.sender(REQUESTER)

    def sender(self, index: int) -> Sender:
        return Sender(self.rpc, account(index), self.deployment.contracts.chain_id)

    async def ask(
        self,
        prompt: str,
        *,
        model: str = MODEL,
        fee_wei: int = FEE_WEI,
        deadline_in_s: int = 600,
        max_tokens: int = 8,
        quorum: int = 1,
    ) -> Submitted:
        head = await self.rpc.header("latest")
        assert head is not None
        params = RequestParams(
            model_id(model),
            max_tokens,
            head.timestamp_s + deadline_in_s,
            0,
            prompt.encode(),
            quorum=quorum,
        )
        return await submit(self.requester, self.deployment.contracts, params, fee_wei)

    async def credit_wei(self, index: int) -> int:
        (amount,) = await read_view(
            self.rpc,
            self.deployment.contracts.requests,
            "InferenceRequests",
            "credits",
            [to_checksum_address(account(index).address)],
        )
        return int(amount)

    async def mine(self, blocks: int = 1) -> None:
        await self.rpc.request("anvil_mine", [hex(blocks)])

    def settings_toml(
        self,
        data_dir: Path,
        database_url: str,
        *,
        poster: str = f"{{ dev_account = {POSTER} }}",
        posters: tuple[int, ...] = (),
        models: tuple[tuple[str, str], ...] = ((MODEL, "markov"), (MODEL, "markov")),
        workers: tuple[int, ...] = WORKERS,
        owner: int = OWNER,
        delay_price_gwei_per_s: int = 1_000_000,
        extra: str = "",
        sections: str = "",
    ) -> str:
        several = ", ".join(f"{{ dev_account = {index} }}" for index in posters)
        lines = [
            f'rpc_urls = ["{self.rpc_url}"]',
            f'deployment_file = "{self.folder}/deployment.json"',
            f'data_dir = "{data_dir}"',
            f'database_url = "{database_url}"',
            f"posters = [{several}]" if posters else f"poster = {poster}",
            extra,
            "[api]",
            "port = 0",
            "[posting]",
            f"delay_price_gwei_per_s = {delay_price_gwei_per_s}",
            sections,
        ]
        for index, (model, backend) in zip(workers, models, strict=False):
            lines += [
                "[[workers]]",
                f'name = "worker-{index}"',
                f'backend = "{backend}"',
                f'model = "{model}"',
                "slots = 2",
                f"key = {{ dev_account = {index} }}",
                f"owner = {{ dev_account = {owner} }}",
            ]
        return "\n".join(lines) + "\n"

    def start_node(
        self,
        name: str,
        database_url: str,
        *,
        program: tuple[str, ...] = ("-m", "inferd"),
        environment: dict[str, str] | None = None,
        roles: str = "",
        forked: bool = False,
        **settings: Any,
    ) -> NodeProcess:
        """Starts a daemon, or a process with some of its `roles`; `program` may be a launcher that
        breaks it on purpose. With `forked` it begins with everything loaded, see `tests.forks`."""
        data_dir = self.folder / name
        data_dir.mkdir(exist_ok=True)
        (data_dir / "api.json").unlink(missing_ok=True)
        config = data_dir / "inferd.toml"
        config.write_text(self.settings_toml(data_dir, database_url, **settings))
        log = data_dir / "node.log"
        arguments = ["--config", str(config), "node", *(["--roles", roles] if roles else [])]
        given = _clean_environment() | (environment or {})
        process: subprocess.Popen[bytes] | Forked
        if forked:
            process = Forked(arguments, log, given)
        else:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    [sys.executable, *program, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=given,
                )
        node = NodeProcess(process, data_dir, log)
        self.nodes.append(node)
        return node


def _clean_environment() -> dict[str, str]:
    kept = ("INFERD_ANVIL", "INFERD_CACHE_DIR")
    return {k: v for k, v in os.environ.items() if not k.startswith("INFERD_") or k in kept}


@dataclass
class NodeProcess:
    """A running daemon."""

    process: subprocess.Popen[bytes] | Forked
    data_dir: Path
    log: Path

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log's lines of one event."""
        found = []
        for line in self.log_text().splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if record.get("event") == name:
                    found.append(record)
        return found

    def url(self) -> str | None:
        place = self.data_dir / "api.json"
        return json.loads(place.read_text())["url"] if place.exists() else None

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON body; (0, None) while nothing answers."""
        url = self.url()
        if url is None:
            return 0, None
        try:
            async with aiohttp.ClientSession() as session, session.get(url + path) as answer:
                return answer.status, await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError):
            return 0, None

    async def get_text(self, path: str) -> str:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url()}{path}") as answer:
            return await answer.text()

    async def until_ready(self, timeout_s: float = 40) -> None:
        await self.until(lambda: self._answers("/readyz", 200), timeout_s, "ready")

    async def until_not_ready(self, code: str, timeout_s: float = 40) -> None:
        """Until /readyz says 503 and names this problem."""

        async def check() -> bool:
            status, body = await self.get("/readyz")
            return status == 503 and any(p["code"] == code for p in body["problems"])

        await self.until(check, timeout_s, f"not ready because of {code}")

    async def until_state(self, request_id: int, *states: str, timeout_s: float = 60) -> Any:
        async def check() -> bool:
            status, body = await self.get(f"/v1/requests/{request_id}")
            return status == 200 and body["state"] in states

        await self.until(check, timeout_s, f"request {request_id} in {states}")
        return (await self.get(f"/v1/requests/{request_id}"))[1]

    async def until(
        self, check: Callable[[], Awaitable[bool]], timeout_s: float, what: str
    ) -> None:
        end = time.monotonic() + timeout_s
        while not await check():
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the node ended with {self.process.returncode} before it was {what}:"
                    f" {self.log_text()[-3000:]}"
                )
            if time.monotonic() > end:
                raise AssertionError(f"not {what} after {timeout_s} s: {self.log_text()[-6000:]}")
            await asyncio.sleep(0.05)

    async def _answers(self, path: str, status: int) -> bool:
        return (await self.get(path))[0] == status

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s: float = 10) -> int:
        """SIGTERM; returns the exit code. Raises subprocess.TimeoutExpired."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


@contextlib.asynccontextmanager
async def system(folder: Path, anvil: Anvil, **terms: Any) -> AsyncIterator[System]:
    """Deploys and registers on a chain that mines at once, then lets it mine every second.

    At the end it kills whatever daemon still runs.
    """
    async with Rpc([anvil.url]) as rpc:
        chain_id = anvil.config.chain_id
        deployment = await deploy(
            Sender(rpc, account(DEPLOYER), chain_id), DeploymentTerms(cancel_delay_s=5, **terms)
        )
        deployment.save(folder / "deployment.json")
        built = System(folder, anvil, rpc, deployment)
        for index in WORKERS:
            await register_worker(
                built.sender(OWNER), account(index), [MODEL], 2, 1024, None, deployment.contracts
            )
        await rpc.request("evm_setIntervalMining", [1])
        try:
            yield built
        finally:
            for node in built.nodes:
                if node.process.poll() is None:
                    node.kill()
