"""How providers word that a range of eth_getLogs, or what it found, is too large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class Dialect:
    """One provider's refusal of `first` to `last`, where `limit` blocks are allowed."""

    text: Callable[[int, int, int], str]
    code: int = -32000
    http_status: int = 200
    as_json: bool = True
    hints: bool = False
    """Whether the text names the limit or a range that would be taken."""

    def error(self, first: int, last: int, limit: int) -> dict[str, Any]:
        """The error object."""
        return {"code": self.code, "message": self.text(first, last, limit)}


def _to(first: int, limit: int) -> str:
    return f"[{first:#x}, {first + limit - 1:#x}]"


class RangeDialect(Enum):
    """The families of the reports, one wording each."""

    ALCHEMY = Dialect(
        lambda first, last, limit: (
            "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block"
            " range. Based on your parameters and the response size limit, this block range should"
            f" work: {_to(first, limit)}"
        ),
        code=-32602,
        http_status=400,
        hints=True,
    )
    ALCHEMY_INVERTED = Dialect(
        lambda first, last, limit: (
            f"this block range should work: [{first + limit - 1:#x}, {first:#x}]"
        ),
        code=-32602,
        hints=True,
    )
    INFURA = Dialect(
        lambda first, last, limit: (
            "query returned more than 10000 results. Try with this block range"
            f" {_to(first, limit)}."
        ),
        code=-32005,
        hints=True,
    )
    QUICKNODE = Dialect(
        lambda first, last, limit: f"eth_getLogs is limited to a {limit} range",
        code=-32614,
        http_status=413,
        hints=True,
    )
    ONE_RPC = Dialect(
        lambda first, last, limit: f"eth_getLogs is limited to {limit} block range", hints=True
    )
    BLAST = Dialect(
        lambda first, last, limit: (
            f"block range exceeds the range allowed for your plan ({last - first + 1} > {limit})"
        ),
        hints=True,
    )
    ANKR = Dialect(
        lambda first, last, limit: f"block range is too wide (maximum {limit})", hints=True
    )
    MOONRIVER = Dialect(
        lambda first, last, limit: (
            f"block range is too wide, maximum [from, to] blocks distance: {limit}"
        ),
        hints=True,
    )
    THIRDWEB = Dialect(
        lambda first, last, limit: f"Maximum allowed number of requested blocks is {limit}",
        hints=True,
    )
    PUBLICNODE = Dialect(
        lambda first, last, limit: f"exceeded: maximum block range: {limit}", hints=True
    )
    AVALANCHE = Dialect(
        lambda first, last, limit: (
            f"requested too many blocks from {first} to {last}, maximum is set to {limit}"
        ),
        hints=True,
    )
    CLOUDFLARE = Dialect(lambda first, last, limit: f"Max range: {limit}", hints=True)
    BSC = Dialect(lambda first, last, limit: f"exceed maximum block range: {limit}", hints=True)
    TRON = Dialect(lambda first, last, limit: f"exceed max block range: {limit}", hints=True)
    HYPERLIQUID = Dialect(
        lambda first, last, limit: f"query exceeds max block range {limit}", hints=True
    )
    SWELL = Dialect(lambda first, last, limit: f"block range greater than {limit} max", hints=True)
    SOMNIA = Dialect(lambda first, last, limit: f"block range exceeds {limit}", hints=True)
    MERKLE = Dialect(lambda first, last, limit: "eth_getLogs range is too large, max is 1k blocks")
    HARMONY = Dialect(
        lambda first, last, limit: f"query must be smaller than size {limit}", hints=True
    )
    AURORA = Dialect(lambda first, last, limit: f"up to a {limit} block range", hints=True)
    COINBASE = Dialect(
        lambda first, last, limit: f"please ask for at most {limit} blocks", hints=True
    )
    CHAINSTACK = Dialect(lambda first, last, limit: "Block range limit exceeded.")
    POLYGON = Dialect(
        lambda first, last, limit: (
            f"eth_getLogs block range too large, range: {last - first}, max: {limit}"
        ),
        hints=True,
    )
    BASE = Dialect(lambda first, last, limit: "block range too large", code=-32614)
    OPTIMISM = Dialect(lambda first, last, limit: "backend response too large", code=-32020)
    MONAD = Dialect(
        lambda first, last, limit: "no backend is currently healthy to serve traffic",
        code=-32011,
        http_status=503,
    )
    LLAMA = Dialect(lambda first, last, limit: "query exceeds max results 20000", code=-32602)
    ARBITRUM = Dialect(
        lambda first, last, limit: "logs matched by query exceeds limit of 10000", code=-32005
    )
    ONE_RPC_SIZE = Dialect(
        lambda first, last, limit: "response size should not greater than 10000000 bytes"
    )
    DRPC = Dialect(
        lambda first, last, limit: f"ranges over {limit} blocks are not supported on freetier",
        code=35,
        hints=True,
    )
    ERPC = Dialect(lambda first, last, limit: f"range threshold exceeded: {limit}", hints=True)
    TOO_BIG = Dialect(lambda first, last, limit: "response is too big", code=-32008)
    BODY = Dialect(lambda first, last, limit: "error decoding response body", code=-32603)
    BARE_413 = Dialect(
        lambda first, last, limit: "Request Entity Too Large", http_status=413, as_json=False
    )
    BARE_503 = Dialect(
        lambda first, last, limit: "Service Unavailable", http_status=503, as_json=False
    )
