"""JSON-RPC to Anvil without waiting for anything but Anvil: a step here is a millisecond."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit


class RpcError(Exception):
    """Anvil answered with an error."""


class Rpc:
    """One kept connection; calls go one after another."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)

    def __call__(self, method: str, *params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        self._connection.request("POST", "/", body, {"content-type": "application/json"})
        answer = json.loads(self._connection.getresponse().read())
        if "error" in answer:
            raise RpcError(f"{method}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        self._connection.close()
