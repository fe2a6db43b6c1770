"""JSON-RPC over HTTP: typed answers, failover, nothing of a URL but its host in any text."""

from indexer.rpc.client import Rpc
from indexer.rpc.types import (
    FeeHistory,
    Header,
    RawLog,
    Receipt,
    RpcAnswerTooLarge,
    RpcError,
    RpcMalformed,
    RpcRateLimited,
    RpcTimeout,
)

__all__ = [
    "FeeHistory",
    "Header",
    "RawLog",
    "Receipt",
    "Rpc",
    "RpcAnswerTooLarge",
    "RpcError",
    "RpcMalformed",
    "RpcRateLimited",
    "RpcTimeout",
]
