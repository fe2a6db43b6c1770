"""What a person sees who runs the daemon in a terminal."""

from __future__ import annotations

import json

from tests.faults.rpc_faults import Delay
from tests.faults.rpc_plans import Always
from tests.faults.rpc_proxy import rpc_proxy
from tests.harness import System

_IN_A_TERMINAL = """
import contextlib, os, pty, signal, sys

daemon, terminal = pty.fork()
if not daemon:
    os.execv(sys.executable, [sys.executable, "-m", "inferd", *sys.argv[1:]])
signal.signal(signal.SIGTERM, lambda *_: os.kill(daemon, signal.SIGTERM))
with contextlib.suppress(OSError):  # it has closed its end
    while text := os.read(terminal, 65536):
        os.write(1, text)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(daemon, 0)[1]))
"""


async def test_backfill__a_bar_among_whole_lines_of_json(
    world: System, empty_database: str
) -> None:
    for _ in range(4):
        await world.mine(200)
    slow = Always([Delay(0.7)], frozenset({"eth_getLogs"}))
    async with rpc_proxy(world.anvil.url, slow) as proxy:
        world.rpc_url = proxy.url
        node = world.start_node(
            "node",
            empty_database,
            program=("-c", _IN_A_TERMINAL),
            environment={"TERM": "xterm", "COLUMNS": "60"},
        )

        async def shown() -> bool:
            return "s left" in node.log_text()

        await node.until(shown, 40, "showing how far it is")
        await node.until_ready()
        ranges = [
            json.loads(line[line.index("{") : line.rindex("}") + 1])
            for line in node.log_text().splitlines()
            if '"range_indexed"' in line
        ]
        assert len(ranges) >= 4
        text = node.log_text()
        assert "\x1b[2K" in text[text.rindex("s left") :], "the bar is erased at the end"
        assert node.stop(30) == 0
