"""`inferd settlement ...` beside a node that runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from indexer.errors import ExitCode
from tests.e2e.test_policies import run
from tests.harness import NodeProcess, System


async def test_the_node_does_what_a_command_asks_and_says_what_came_of_it(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    asked = await world.ask("a prompt")
    await node.until_state(asked.request_id, "settled")
    (line,) = await over(node)
    assert (line["kind"], line["outcome"]) == ("post", "done")
    assert line["request_ids"] == [asked.request_id]
    for act, answer in (
        ("cancel", "It is over already (done).\n"),
        ("retry", f"Intent {line['id']} has no item that was given up.\n"),
    ):
        code, out, err = await run(node, "settlement", act, str(line["id"]))
        assert (code, out) == (ExitCode.OK, answer), err
    assert {event["act"] for event in node.events("order_done")} == {"cancel", "retry"}
    assert node.stop() == 0


async def over(node: NodeProcess) -> Any:
    """What is over, once something is."""
    while True:
        code, out, err = await run(node, "settlement", "list", "--json")
        assert code == ExitCode.OK, err
        if json.loads(out)["over"]:
            return json.loads(out)["over"]
        await asyncio.sleep(0.2)
