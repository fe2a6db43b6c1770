"""A daemon that signs elsewhere, sends elsewhere and reads elsewhere."""

from __future__ import annotations

import asyncio
import json

from tests.faults.private_relay import PrivateRelay
from tests.faults.rpc_plans import Always
from tests.faults.rpc_proxy import rpc_proxy
from tests.harness import POSTER, System, account
from tests.settlement.signer_server import signer_server


async def test_settled_by_a_remote_signer_through_a_private_relay(
    world: System, empty_database: str
) -> None:
    relay = PrivateRelay()
    async with (
        signer_server(account(POSTER)) as signer,
        rpc_proxy(world.anvil.url, Always([relay])) as sending,
        rpc_proxy(world.anvil.url) as reading,
    ):
        world.rpc_url = reading.url
        secret = "k3y-of-the-relay"
        node = world.start_node(
            "node",
            empty_database,
            poster=f'{{ remote_signer_url = "{signer.url}/{secret}",'
            f' address = "{signer.account.address}" }}',
            extra=f'rpc_send_urls = ["{sending.url}/{secret}"]',
        )
        await node.until_ready()
        asked = await world.ask("by another way")

        async def taken() -> bool:
            return bool(relay.held)

        await node.until(taken, 60, "sent to the relay")
        await relay.include(world.rpc)
        await node.until_state(asked.request_id, "settled")
        _, status = await node.get("/v1/status")
        endpoints = {one["endpoint"]: one["state"] for one in status["index"]["endpoints"]}
        assert endpoints == {reading.url: "in_use", f"{sending.url} sends": "in_use"}
        (poster,) = status["settlement"]["posters"]
        assert poster["address"] == signer.account.address
        assert node.stop() == 0
        assert [call["method"] for call in signer.asked][:2] == [
            "eth_accounts",
            "eth_signTransaction",
        ]
        assert secret not in node.log_text() + json.dumps(status)


async def test_a_signer_without_the_key_ends_the_start(world: System, empty_database: str) -> None:
    async with signer_server() as signer:
        address = account(POSTER).address
        node = world.start_node(
            "node",
            empty_database,
            poster=f'{{ remote_signer_url = "{signer.url}", address = "{address}" }}',
        )
        assert await asyncio.to_thread(node.process.wait, 60) == 1
        assert f"has no key of {address}" in node.log_text()
