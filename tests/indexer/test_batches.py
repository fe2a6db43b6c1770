"""Batches as large as an endpoint takes them, whatever it says when one is too large."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from indexer.rpc import Rpc, RpcAnswerTooLarge, RpcError, RpcRateLimited
from indexer.rpc.batches import BatchSize
from tests.indexer.scripted import Script, result, scripted_node
from tests.indexer.test_rpc import BLOCK


def error(code: int, message: str, call_id: int | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "error": {"code": code, "message": message}}


def header(call: Any) -> dict[str, Any]:
    return result(call, BLOCK | {"number": call["params"][0]})


REFUSALS: dict[str, Any] = {
    # One object for the whole batch.
    "batch limit": lambda _: error(-32007, "batch limit exceeded"),
    "erigon": lambda _: error(
        -32000, "batch limit 3 exceeded (can increase by --rpc.batch.limit). Requested batch of 4"
    ),
    "drpc": lambda _: error(31, "Batch of more than 3 requests are not allowed on free tier"),
    "too many in a batch": lambda _: error(-32005, "too many requests in a batch, max is 3"),
    "no batches": lambda _: error(-32600, "Invalid Request"),
    # Geth: a list with an answer to the first call alone.
    "geth": lambda calls: [error(-32600, "batch too large", calls[0]["id"])],
    "each of them": lambda calls: [error(-32000, "batch too large", c["id"]) for c in calls],
    "http 413": lambda _: web.Response(status=413),
}


def takes(limit: int, refusal: Any) -> Script:
    async def script(body: Any) -> Any:
        if isinstance(body, dict):
            return header(body)
        return refusal(body) if len(body) > limit else [header(call) for call in body]

    return script


@pytest.mark.parametrize("limit", [0, 1, 3, 64])
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_batch_too_large__smaller_ones_until_they_are_taken(refusal: str, limit: int) -> None:
    script = takes(limit, REFUSALS[refusal])
    async with scripted_node(script=script) as node, Rpc([node.url]) as rpc:
        found = await rpc.headers(range(100))
        assert [block.number if block else None for block in found] == list(range(100))
        refused_before = len(node.calls)
        await rpc.headers(range(20))
        sizes = {len(call) if isinstance(call, list) else 1 for call in node.calls[refused_before:]}
    assert max(sizes) <= max(1, limit)


async def test_refused_one_by_one_too__said_as_it_is() -> None:
    async def script(body: Any) -> Any:
        return error(-32000, "history is pruned")

    async with scripted_node(script=script) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcError, match="history is pruned"):
            await rpc.headers(range(100))
    assert not isinstance(node.calls[-1], list)


async def test_one_call_too_large__raised() -> None:
    async def script(body: Any) -> Any:
        return web.Response(status=413)

    async with scripted_node(script=script) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcAnswerTooLarge):
            await rpc.headers(range(5))


async def test_rate_limit_of_a_batch__is_no_matter_of_its_size() -> None:
    async def script(body: Any) -> Any:
        return error(-32005, "rate limit exceeded")

    async with scripted_node(script=script) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcRateLimited):
            await rpc.headers(range(100))
    assert len(node.calls) == 1


async def test_error_of_one_call__is_that_call_s() -> None:
    async def script(body: Any) -> Any:
        return [error(-32000, "no", body[0]["id"]), *map(header, body[1:])]

    async with scripted_node(script=script) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcError, match="no"):
            await rpc.headers(range(5))
    assert len(node.calls) == 1


def test_size__grows_again_after_many_that_were_taken() -> None:
    size = BatchSize()
    largest = size.calls
    size.refused(largest)
    assert size.calls == largest // 2
    for _ in range(1_000):
        size.answered()
    assert size.calls == largest
    for _ in range(20):
        size.refused(size.calls)
    assert size.calls == 1
