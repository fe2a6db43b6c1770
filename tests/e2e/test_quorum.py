"""A request that workers of three owners must answer alike, and one of four of them lies."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from eth_account import Account
from eth_account.signers.local import LocalAccount
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.database import connect
from inferd.chain.register import register_worker
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.backends.opening import Stock
from inferd.workers.job import Completion, Job
from inferd.workers.service.agent import Post, opened_log, serving
from inferd.workers.service.settings import AgentSettings
from tests.e2e.test_remote_workers import run
from tests.harness import FEE_WEI, MODEL, POSTER, NodeProcess, System, account

_LIAR, *_HONEST = 6, 7, 8, 9
"""The accounts of their owners."""


class Liar(MarkovBackend):
    """Answers another question than it was asked, and signs that."""

    async def run(self, job: Job) -> Completion:
        return await super().run(replace(job, input=job.input + b" not"))


def worker_of(owner: int) -> LocalAccount:
    made: LocalAccount = Account.from_key(bytes([100 + owner]) * 32)
    return made


async def hired(
    stack: AsyncExitStack, world: System, folder: Path, owner: int, backend: MarkovBackend
) -> None:
    contracts, key = world.deployment.contracts, worker_of(owner)
    post = Post(f"worker-{owner}", PrivateKey(bytes(key.key)), contracts, 2, 1024)
    log = opened_log(post, folder)
    stack.push_async_callback(log.close)
    stack.push_async_callback(backend.close)
    operators = (to_checksum_address(account(POSTER).address),)
    settings = AgentSettings(port=0, metrics_port=0, operators=operators)
    agent = await stack.enter_async_context(
        serving(
            post,
            Stock((backend,)),
            settings,
            log,
            folder=post.folder(folder),
            tokens_per_s={MODEL: 1e4},
        )
    )
    await register_worker(
        world.sender(owner), key, [MODEL], 2, 1024, None, contracts, endpoint=agent.url
    )


async def until_short(node: NodeProcess, request_id: int) -> None:
    """Some have answered, and those who are left are too few for a quorum: of three, one lies."""

    async def is_short() -> bool:
        status, body = await node.get(f"/v1/requests/{request_id}/why")
        if status != 200 or body["reason"] != "quorum_short":
            return False
        return "(2 answered)" in body["sentence"] or "(3 answered)" in body["sentence"]

    await node.until(is_short, 60, "short of owners")


async def test_three_owners_agree__the_liar_is_recorded__and_each_owner_is_paid(
    world: System, empty_database: str, tmp_path: Path
) -> None:
    node = world.start_node(
        "node",
        empty_database,
        models=(),
        sections="[pool]\nheartbeat_s = 0.2\nstale_after_s = 30\n"
        f'[[checks.models]]\nname = "{MODEL}"\ndeterministic = true',
    )
    async with AsyncExitStack() as stack:
        await hired(stack, world, tmp_path, _LIAR, Liar(name=MODEL))
        for index in _HONEST[:2]:
            await hired(stack, world, tmp_path, index, MarkovBackend(name=MODEL))
        asked = await world.ask("tell the truth", quorum=3)
        await until_short(node, asked.request_id)
        await hired(stack, world, tmp_path, _HONEST[2], MarkovBackend(name=MODEL))
        view = await node.until_state(asked.request_id, "settled")
        assert (view["quorum"], view["answers"], view["agreeing"]) == (3, 4, 3)

        code, _, err = await run(node, "result", str(asked.request_id))
        assert code == 0, err
        assert all(worker_of(index).address in err for index in _HONEST)
        assert worker_of(_LIAR).address not in err
        _, result = await node.get(f"/v1/results/{asked.request_id}")
        workers = {to_checksum_address(worker) for worker in result["workers"]}
        assert workers == {worker_of(index).address for index in _HONEST}
        poster_wei = await world.credit_wei(POSTER)
        assert poster_wei == FEE_WEI * 2000 // 10_000
        shares_wei = [await world.credit_wei(index) for index in (*_HONEST, _LIAR)]
        assert sum(shares_wei) == FEE_WEI - poster_wei
        assert max(shares_wei[:3]) - min(shares_wei[:3]) <= 2
        assert shares_wei[3] == 0

        _, body = await node.get(f"/v1/workers/{worker_of(_LIAR).address}")
        assert not body["in_pool"]
        assert body["models"][0]["lies"] == 1
        assert node.stop() == 0
    connection = await connect(empty_database)
    rows = await connection.fetch("SELECT kind, accused, decided FROM node.disagreement")
    liar = to_canonical_address(worker_of(_LIAR).address)
    assert [tuple(row) for row in rows] == [("quorum", liar, True)]
    groups = await connection.fetch(
        "SELECT worker, results FROM chain.payment WHERE role = 'worker' ORDER BY worker"
    )
    honest = sorted(to_canonical_address(worker_of(index).address) for index in _HONEST)
    assert [tuple(row) for row in groups] == [(worker, 1) for worker in honest]
    await connection.close()
