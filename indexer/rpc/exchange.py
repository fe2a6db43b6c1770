"""One JSON-RPC call: its body, and the result in its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from indexer.rpc import wire
from indexer.rpc.endpoint import Endpoint
from indexer.rpc.ranges import is_rate_limit
from indexer.rpc.types import RpcError, RpcMalformed

T = TypeVar("T")
Parse = Callable[[bytes, Endpoint], T]
"""From an answer's body to a value. Raises RpcError, RpcRateLimited, or what `parsed` names."""

_UNUSABLE = (msgspec.DecodeError, ValueError, RecursionError)


def call_object(call_id: int, method: str, params: Sequence[Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}


def parser(call_id: int, parse: Callable[[msgspec.Raw], T]) -> Parse[T]:
    """Reads the answer to one call."""

    def parse_body(body: bytes, endpoint: Endpoint) -> T:
        answer = wire.answer_decoder.decode(body)
        result = result_of(answer, endpoint)
        if answer.id != call_id:
            raise ValueError("the answer to another call")
        return parse(result)

    return parse_body


def result_of(answer: wire.Answer, endpoint: Endpoint) -> msgspec.Raw:
    """Raises RpcError, RpcRateLimited, ValueError."""
    if answer.error is not None:
        code, message = answer.error.code, endpoint.without_secrets(answer.error.message)
        if is_rate_limit(code, message):
            raise endpoint.rate_limited(message)
        raise RpcError(code, message, answer.error.data)
    if isinstance(answer.result, msgspec.UnsetType):
        raise ValueError("neither a result nor an error")
    return answer.result


def parsed(body: bytes, endpoint: Endpoint, parse: Parse[T]) -> T:
    """Raises RpcMalformed where the answer cannot be read, and what `parse` raises."""
    try:
        return parse(body, endpoint)
    except _UNUSABLE as error:
        unusable: RpcMalformed = endpoint.malformed(str(error))
    raise unusable
