"""Five worker processes and a daemon: one is good, one slow, one lies, one crashes in mid-job and
one hangs. The good and the slow one have a real SmolLM2.

`inferd bench workers` has the same five, more requests, and what all this costs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from eth_utils.address import to_checksum_address

from indexer.database import connect
from inferd.bench.workers.crew import Hired, Order, crew
from inferd.bench.workers.kinds import HONEST, MODEL, Kind
from inferd.chain.register import register_worker
from inferd.chain.requester import submit_many
from inferd.protocol.request import RequestParams, model_id
from inferd.workers.model_files import ModelFile
from tests.e2e.test_hostile_workers import until_all_in
from tests.harness import FEE_WEI, POSTER, NodeProcess, System, account
from tests.workers.conftest import smollm2  # noqa: F401 - a fixture

_WORKER = {Kind.GOOD: 10, Kind.SLOW: 11, Kind.LIAR: 12, Kind.CRASHES: 13, Kind.HANGS: 14}
_OWNER_OF = {kind: index + 5 for kind, index in _WORKER.items()}
_REQUESTS = 8
_DEADLINE_IN_S = 600
_SECTIONS = f"""
[pool]
heartbeat_s = 0.5
stale_after_s = 60
[checks]
spot_ppm = 1_000_000
hold_s = 600
[[checks.models]]
name = "{MODEL}"
deterministic = true
"""
"""All is checked: the liar cannot be paid by luck."""


async def is_caught(node: NodeProcess, liar: Hired) -> None:
    """Suspended by what it signed, which anybody can check."""
    path = f"/v1/workers/0x{liar.address.hex()}"

    async def check() -> bool:
        status, body = await node.get(path)
        return status == 200 and body["suspended"] is not None and not body["in_pool"]

    await node.until(check, 300, "with the liar suspended")
    _, shown = await node.get(path)
    assert shown["suspended_by"] == "inferd"
    _, evidence = await node.get(f"{path}/evidence")
    assert evidence["records"]
    for record in evidence["records"]:
        assert record["accused"]["worker"] == to_checksum_address(liar.address)
    assert any(record["decided"] for record in evidence["records"])


@pytest.mark.timeout(900)
async def test_good_and_slow_settle_all_and_the_others_harm_nobody(
    world: System,
    empty_database: str,
    tmp_path: Path,
    smollm2: ModelFile,  # noqa: F811
) -> None:
    contracts = world.deployment.contracts
    node = world.start_node("node", empty_database, models=(), sections=_SECTIONS)
    orders = [
        Order(
            kind,
            bytes(account(index).key),
            contracts,
            account(POSTER).address,
            tmp_path / kind,
            smollm2,
        )
        for kind, index in _WORKER.items()
    ]
    async with crew(orders) as hired:
        for kind, one in hired.items():
            await register_worker(
                world.sender(_OWNER_OF[kind]),
                account(_WORKER[kind]),
                [MODEL],
                1,
                1024,
                None,
                contracts,
                endpoint=one.url,
            )
        everybody = {to_checksum_address(one.address) for one in hired.values()}
        await until_all_in(node, everybody)
        head = await world.rpc.header("latest")
        assert head is not None
        deadline_s = head.timestamp_s + _DEADLINE_IN_S
        asked = await submit_many(
            world.requester,
            contracts,
            [
                RequestParams(model_id(MODEL), 4, deadline_s, 0, b"Name three colours, %d" % number)
                for number in range(_REQUESTS)
            ],
            [FEE_WEI] * _REQUESTS,
        )
        for submitted in asked:
            await node.until_state(submitted.request_id, "settled", timeout_s=500)
        await is_caught(node, hired[Kind.LIAR])
        for kind in HONEST:
            _, shown = await node.get(f"/v1/workers/0x{hired[kind].address.hex()}")
            assert shown["suspended"] is None, kind
            assert sum(model["lies"] for model in shown["models"]) == 0, kind
        assert hired[Kind.CRASHES].deaths > 0
        assert hired[Kind.GOOD].deaths == hired[Kind.SLOW].deaths == 0
        assert node.stop() == 0

    connection = await connect(empty_database)
    ended = await connection.fetch("SELECT status, count(*) FROM chain.request GROUP BY status")
    assert [tuple(row) for row in ended] == [("fulfilled", _REQUESTS)], "each in time, and once"
    paid = await connection.fetch(
        "SELECT worker, sum(results)::int AS results FROM chain.payment WHERE role = 'worker'"
        " GROUP BY worker"
    )
    honest = {bytes(hired[kind].address) for kind in HONEST}
    assert {row["worker"] for row in paid} <= honest
    assert sum(row["results"] for row in paid) == _REQUESTS
    await connection.close()
