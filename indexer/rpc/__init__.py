"""JSON-RPC over HTTP: typed answers, failover, nothing of a URL but its host in any text."""

from indexer.rpc.client import Rpc
from indexer.rpc.member import CallRecord, ChainIdentity
from indexer.rpc.status import EndpointStatus
from indexer.rpc.types import (
    FeeHistory,
    Header,
    RawLog,
    Receipt,
    RpcAnswerTooLarge,
    RpcError,
    RpcMalformed,
    RpcRateLimited,
    RpcServerFault,
    RpcTimeout,
)

__all__ = [
    "CallRecord",
    "ChainIdentity",
    "EndpointStatus",
    "FeeHistory",
    "Header",
    "RawLog",
    "Receipt",
    "Rpc",
    "RpcAnswerTooLarge",
    "RpcError",
    "RpcMalformed",
    "RpcRateLimited",
    "RpcServerFault",
    "RpcTimeout",
]
