"""The main job: asked on chain, answered on chain, paid once."""

from __future__ import annotations

import base64

from eth_utils.crypto import keccak

from inferd.chain.requester import check_result
from tests.harness import FEE_WEI, OWNER, POSTER, System


async def test_answers_depend_on_the_prompt_and_are_settled_and_paid(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    first = await world.ask("the quick brown fox")
    second = await world.ask("the quick brown fix")
    outputs = []
    for asked in (first, second):
        view = await node.until_state(asked.request_id, "settled")
        _, result = await node.get(f"/v1/results/{asked.request_id}")
        output = base64.b64decode(result["output_base64"])
        checked = await check_result(
            world.rpc, world.deployment.contracts, asked.request_id, output
        )
        assert view["digest"] == "0x" + keccak(output).hex() == "0x" + checked.digest.hex()
        assert view["worker"] == "0x" + checked.worker.hex()
        outputs.append(output)
    assert outputs[0] != outputs[1]
    poster_wei, owner_wei = await world.credit_wei(POSTER), await world.credit_wei(OWNER)
    assert poster_wei + owner_wei == 2 * FEE_WEI
    assert poster_wei == 2 * FEE_WEI * 2000 // 10_000
    assert node.stop() == 0
