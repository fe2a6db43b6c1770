"""What workers that lie, crash and hang cost: the same requests with the good ones alone, and with
all five.

Both runs have a chain, a daemon and agents of their own, one run after the other on one machine.
All requests are sent at once, so that what is measured is how fast they are worked off.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
from eth_utils.address import to_canonical_address
from msgspec.structs import replace

from indexer.rpc import Rpc
from indexer.threads import in_thread
from indexer.types import WEI_PER_GWEI, Address, Contracts, Wei
from inferd.bench.arena import CONFIG, DEPLOYER, POSTER
from inferd.bench.e2e.truth import Chain, read_chain
from inferd.bench.workers.crew import Hired, Order, crew
from inferd.bench.workers.kinds import HONEST, MODEL, Kind
from inferd.chain.anvil import start_anvil
from inferd.chain.deploy import DeploymentTerms, deploy
from inferd.chain.register import register_worker
from inferd.chain.requester import submit_many
from inferd.chain.transact import Sender
from inferd.demo.daemon import start_daemon, stop_daemon, until_ready
from inferd.node.postgres import EmbeddedPostgres
from inferd.protocol.request import RequestParams, model_id
from inferd.workers.model_files import ModelFile

_REQUESTER = 3
_WORKER = dict(zip(Kind, range(10, 15), strict=True))
_OWNER_OF = dict(zip(Kind, range(15, 20), strict=True))
_BLOCK_S = 1
_LOOK_EVERY_S = 3.0
_FEE_WEI = Wei(10**6 * WEI_PER_GWEI)
_MAX_TOKENS = 8
_IN_ONE_TRANSACTION = 100
_SETTINGS = """\
rpc_urls = ["{rpc_url}"]
deployment_file = "{folder}/deployment.json"
data_dir = "{folder}"
poster = {{ dev_account = {poster} }}
[api]
port = 0
[pool]
heartbeat_s = 1
[checks]
spot_ppm = {spot_ppm}
probation_spot_ppm = {spot_ppm}
hold_s = 86_400
[[checks.models]]
name = "{model}"
deterministic = true
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one set of workers."""

    workers: tuple[str, ...]
    requests: int
    settled: int
    doubled: int
    """Requests that ended more than once."""
    blocks: int
    """Of 1 s, from the first request to the last result."""
    right: int
    """Results of workers that do not lie."""
    goodput_per_s: float
    """Of right ones."""
    deaths: int
    """Of the process that crashes."""
    suspended: tuple[str, ...]
    records: int
    """Of evidence against those."""
    paid_wei: dict[str, int]
    """To the owner of each worker."""


@dataclass(frozen=True, slots=True)
class Figures:
    alone: Run
    together: Run

    @property
    def ratio(self) -> float:
        """Goodput of all five to that of the good ones alone."""
        return self.together.goodput_per_s / self.alone.goodput_per_s

    def as_json(self) -> dict[str, Any]:
        return {"ratio": round(self.ratio, 3), **asdict(self)}


async def measure(
    model: ModelFile,
    *,
    requests: int,
    deadline_in_s: int,
    spot_ppm: int,
    progress: Callable[[str], None],
) -> Figures:
    """`spot_ppm` of a million results are computed once more, in both runs.

    Raises what starting Anvil, PostgreSQL or the daemon raises."""
    runs = []
    for kinds in (HONEST, tuple(Kind)):
        with tempfile.TemporaryDirectory(prefix="inferd-bench-", ignore_cleanup_errors=True) as at:
            progress(f"{requests} requests to {', '.join(kinds)}")
            runs.append(
                await _run(Path(at), kinds, model, requests, deadline_in_s, spot_ppm, progress)
            )
    return Figures(*runs)


async def _run(
    folder: Path,
    kinds: Collection[Kind],
    model: ModelFile,
    requests: int,
    deadline_in_s: int,
    spot_ppm: int,
    progress: Callable[[str], None],
) -> Run:
    async with _world(folder, kinds, model, spot_ppm) as world:
        await world.until_all_are_in()
        await world.ask(requests, deadline_in_s)
        chain = await world.until_over(requests, progress)
        first = min(place.block for place in chain.asked.values())
        last = max((place.block for place in chain.settled.values()), default=first)
        suspended, records = await world.suspended()
        paid_wei = await world.paid_wei()
        # All fees are the same.
        honest_wei = sum(paid_wei[kind] for kind in kinds if kind in HONEST)
        right = len(chain.settled) * honest_wei // max(1, sum(paid_wei.values()))
        return Run(
            workers=tuple(kinds),
            requests=requests,
            settled=len(chain.settled),
            doubled=chain.doubled,
            blocks=last - first,
            right=right,
            goodput_per_s=right / max(1, last - first) / _BLOCK_S,
            deaths=sum(one.deaths for one in world.hired.values()),
            suspended=suspended,
            records=records,
            paid_wei=paid_wei,
        )


@dataclass(frozen=True, slots=True)
class _World:
    rpc: Rpc
    contracts: Contracts
    hired: dict[Kind, Hired]
    url: str
    """Of the daemon's API."""

    async def until_all_are_in(self) -> None:
        wanted = {"0x" + one.address.hex() for one in self.hired.values()}
        while True:
            listed = (await self._get("/v1/workers"))["workers"]
            if wanted <= {one["address"].lower() for one in listed if one["in_pool"]}:
                return
            await asyncio.sleep(0.2)

    async def ask(self, requests: int, deadline_in_s: int) -> None:
        head = await self.rpc.header("latest")
        deadline_s = (head.timestamp_s if head else 0) + deadline_in_s
        sender = Sender(self.rpc, CONFIG.account(_REQUESTER), CONFIG.chain_id)
        params = [
            RequestParams(
                model_id(MODEL), _MAX_TOKENS, deadline_s, 0, b"Name three colours, %d" % number
            )
            for number in range(requests)
        ]
        for at in range(0, requests, _IN_ONE_TRANSACTION):
            some = params[at : at + _IN_ONE_TRANSACTION]
            await submit_many(sender, self.contracts, some, [_FEE_WEI] * len(some))

    async def until_over(self, requests: int, progress: Callable[[str], None]) -> Chain:
        """Until each is settled or refunded."""
        told = 0
        while True:
            head = await self.rpc.header("latest")
            last = head.number if head else 0
            chain = await read_chain(self.rpc, self.contracts, last, [])
            if len(chain.endings) >= requests:
                return chain
            if len(chain.settled) >= told + 50:
                told = len(chain.settled)
                progress(f"{told} settled")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def suspended(self) -> tuple[tuple[str, ...], int]:
        """Which kinds, and how many records of evidence there are against them."""
        kinds, records = [], 0
        for kind, one in self.hired.items():
            path = f"/v1/workers/0x{one.address.hex()}"
            if (await self._get(path))["suspended"] is not None:
                kinds.append(str(kind))
                records += len((await self._get(f"{path}/evidence"))["records"])
        return tuple(kinds), records

    async def paid_wei(self) -> dict[str, int]:
        head = await self.rpc.header("latest")
        last = head.number if head else 0
        return {
            str(kind): (
                await read_chain(self.rpc, self.contracts, last, [_address(_OWNER_OF[kind])])
            ).credited_wei
            for kind in self.hired
        }

    async def _get(self, path: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return await answer.json()


@contextlib.asynccontextmanager
async def _world(
    folder: Path, kinds: Collection[Kind], model: ModelFile, spot_ppm: int
) -> AsyncIterator[_World]:
    postgres = EmbeddedPostgres(folder / "postgres")
    config = replace(CONFIG, port=0, block_time_s=0)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(postgres.stop)
        await in_thread(postgres.ensure_running)
        anvil = stack.enter_context(start_anvil(config, log=folder / "anvil.log"))
        rpc = await stack.enter_async_context(Rpc([anvil.url], timeout_s=60))
        deployer = Sender(rpc, CONFIG.account(DEPLOYER), CONFIG.chain_id)
        deployment = await deploy(deployer, DeploymentTerms())
        deployment.save(folder / "deployment.json")
        contracts = deployment.contracts
        operator = CONFIG.account(POSTER).address
        hired = await stack.enter_async_context(
            crew(
                [
                    Order(
                        kind,
                        bytes(CONFIG.account(_WORKER[kind]).key),
                        contracts,
                        operator,
                        folder / kind,
                        model,
                    )
                    for kind in kinds
                ]
            )
        )
        for kind, one in hired.items():
            owner = Sender(rpc, CONFIG.account(_OWNER_OF[kind]), CONFIG.chain_id)
            signing = CONFIG.account(_WORKER[kind])
            await register_worker(
                owner, signing, [MODEL], 1, 1024, None, contracts, endpoint=one.url
            )
        await rpc.request("evm_setIntervalMining", [_BLOCK_S])
        (folder / "inferd.toml").write_text(
            _SETTINGS.format(
                rpc_url=anvil.url,
                folder=folder,
                poster=POSTER,
                model=MODEL,
                spot_ppm=spot_ppm,
            )
        )
        daemon, log = start_daemon(folder)
        stack.push_async_callback(stop_daemon, daemon)
        yield _World(rpc, contracts, hired, await until_ready(folder, daemon, log))


def _address(index: int) -> Address:
    return Address(to_canonical_address(CONFIG.account(index).address))
