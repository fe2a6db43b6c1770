"""A new connection may lead to another node: nothing that comes over it is believed at once."""

from __future__ import annotations

import asyncio

import pytest

from indexer.errors import RpcUnreachable, WrongChain
from indexer.rpc.pool import EndpointPool
from tests.indexer.scripted import ScriptedNode, proxy_to, scripted_node
from tests.indexer.test_endpoints import OURS, Chain, endpoints, price


def port_of(node: ScriptedNode) -> int:
    return int(node.url.rsplit(":", 1)[1])


@pytest.mark.parametrize("asks_meanwhile", [False, True])
async def test_connected_again__nothing_is_believed_before_it_shows_its_chain(
    asks_meanwhile: bool,
) -> None:
    """A node that is started anew between two questions fails none of them."""
    ours, other = Chain(), Chain(genesis="0x" + "bb" * 32)
    async with (
        scripted_node(script=ours.script) as node,
        scripted_node(script=other.script) as stranger,
        proxy_to(port_of(node)) as proxy,
    ):
        pool = EndpointPool([f"http://127.0.0.1:{proxy.port}"], timeout_s=2.0)
        pool.expect(OURS)
        assert await price(pool) == 1
        proxy.unplug()
        if asks_meanwhile:
            with pytest.raises(RpcUnreachable):
                await price(pool)
        proxy.upstream_port, proxy.plugged = port_of(stranger), True
        await asyncio.sleep(0.05)
        with pytest.raises(WrongChain):
            await price(pool)
        await pool.close()


async def test_same_connection__shows_its_chain_once() -> None:
    async with endpoints(Chain()) as (pool, nodes):
        pool.expect(OURS)
        await asyncio.gather(*(price(pool) for _ in range(8)))
        before = len(nodes[0].calls)
        for _ in range(8):
            await price(pool)
        assert len(nodes[0].calls) == before + 8
