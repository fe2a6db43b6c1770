"""A daemon on a chain without EIP-1559: what a post costs there is known before the first round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from indexer.database import connect
from inferd.chain.anvil import Anvil
from tests.faults.odd_chains import LegacyChain
from tests.faults.rpc_plans import Always
from tests.faults.rpc_proxy import rpc_proxy
from tests.harness import FEE_WEI, OWNER, POSTER, system

LESS_THAN_ITS_GAS_WEI = 1_000 * 10**9


async def test_what_pays_its_gas_price_is_settled_and_nothing_else_computed(
    tmp_path: Path, anvil: Anvil, empty_database: str
) -> None:
    chain = LegacyChain()
    async with (
        rpc_proxy(anvil.url, Always([chain])) as proxy,
        system(tmp_path, replace(anvil, url=proxy.url)) as world,
    ):
        poor = await world.ask("for next to nothing", fee_wei=LESS_THAN_ITS_GAS_WEI)
        node = world.start_node("node", empty_database)
        await node.until_ready()
        rich = await world.ask("for a fee")
        await node.until_state(rich.request_id, "settled")
        _, told = await node.get(f"/v1/requests/{poor.request_id}/why")
        assert told["reason"] == "gas_too_dear_now"
        assert node.stop() == 0
        database = await connect(empty_database)
        leased = await database.fetch("SELECT DISTINCT request_id FROM node.lease")
        assert [row["request_id"] for row in leased] == [rich.request_id]
        (attempt,) = await database.fetch("SELECT * FROM node.tx_attempt")
        await database.close()
        assert attempt["raw"] in chain.raws
        assert attempt["max_fee_wei"] == attempt["priority_fee_wei"]
        assert await world.credit_wei(POSTER) + await world.credit_wei(OWNER) == FEE_WEI
