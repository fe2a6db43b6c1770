"""From a request on chain to a paid result, computed by somebody else's server."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from eth_utils.crypto import keccak

from inferd.chain.anvil import Anvil
from inferd.workers.model_files import ModelFile
from tests.harness import MODEL, OWNER, WORKERS, system
from tests.workers.backends.llama import llama


async def test_a_request_is_answered_by_llama_cpps_server_and_settled(
    tmp_path: Path, anvil: Anvil, empty_database: str, smollm2: ModelFile
) -> None:
    with llama(smollm2, tmp_path, "chat") as server:
        worker = {
            **server.choice().model_dump(mode="json"),
            "model": MODEL,
            "name": "server",
            "key": {"dev_account": WORKERS[0]},
            "owner": {"dev_account": OWNER},
        }
        async with system(tmp_path, anvil) as world:
            node = world.start_node(
                "node", empty_database, environment={"INFERD_WORKERS": json.dumps([worker])}
            )
            await node.until_ready()
            asked = await world.ask("What is the capital of France?")
            view = await node.until_state(asked.request_id, "settled")
            _, result = await node.get(f"/v1/results/{asked.request_id}")
            output = base64.b64decode(result["output_base64"])
            assert b"Paris" in output
            assert view["digest"] == "0x" + keccak(output).hex()
            assert result["manifest"]["backend"] == "llama.cpp server"
            assert result["manifest"]["weights"] == "SmolLM2"
            assert result["manifest"]["model"] == MODEL
            assert await world.credit_wei(OWNER) > 0
            assert node.stop() == 0
            key = server.key_file.read_text()
            assert key not in node.log.read_text(), "the key of the server is in no log"
