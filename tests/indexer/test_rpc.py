"""The RPC client against a node that misbehaves in every way we know."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from aiohttp import web

from indexer.errors import RpcUnreachable
from indexer.rpc import (
    Rpc,
    RpcAnswerTooLarge,
    RpcError,
    RpcMalformed,
    RpcRateLimited,
    RpcTimeout,
)
from indexer.rpc.endpoint import Endpoint
from indexer.types import Address, Hash32
from inferd.chain.anvil import Anvil, free_port
from tests.indexer.scripted import Script, result, scripted_node

ADDRESS = Address(b"\1" * 20)
HASH = Hash32(b"\2" * 32)
BLOCK = {
    "number": "0x5",
    "hash": "0x" + "02" * 32,
    "parentHash": "0x" + "01" * 32,
    "timestamp": "0x64",
    "gasUsed": "0x0",
    "gasLimit": "0x1c9c380",
    "logsBloom": "0x" + "00" * 256,
}
LOG = {
    "address": "0x" + "01" * 20,
    "topics": ["0x" + "03" * 32],
    "data": "0x",
    "blockNumber": "0x5",
    "blockHash": "0x" + "02" * 32,
    "transactionHash": "0x" + "04" * 32,
    "transactionIndex": "0x0",
    "logIndex": "0x0",
}


def says(value: Any) -> Script:
    async def script(body: Any) -> Any:
        return result(body, value)

    return script


def replies(response: web.Response | dict[str, Any]) -> Script:
    async def script(_: Any) -> Any:
        return response

    return script


async def test_header__without_base_fee__is_zero() -> None:
    async with scripted_node(script=says(BLOCK)) as node, Rpc([node.url]) as rpc:
        header = await rpc.header("latest")
    assert header is not None
    assert (header.number, header.hash, header.base_fee_wei) == (5, HASH, 0)
    assert header.ref().timestamp_s == 100


@pytest.mark.parametrize(
    "answer",
    [
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 99, "result": "0x1"},
        {"jsonrpc": "2.0", "id": 1, "result": None},
        {"jsonrpc": "2.0", "id": 1, "result": 1},
        {"jsonrpc": "2.0", "id": 1, "result": "0xzz"},
        {"jsonrpc": "2.0", "id": 1, "result": "1"},
        {"jsonrpc": "2.0", "id": 1, "result": "0x" + "f" * 65},
        [],
    ],
)
async def test_quantity__answer_that_is_none__malformed(answer: Any) -> None:
    async with scripted_node(script=replies(answer)) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcMalformed):
            await rpc.chain_id()


@pytest.mark.parametrize(
    "block",
    [
        BLOCK | {"number": "0x6"},
        BLOCK | {"number": None},
        BLOCK | {"hash": "0x02"},
        BLOCK | {"timestamp": "0x" + "f" * 16},
        {key: value for key, value in BLOCK.items() if key != "parentHash"},
    ],
)
async def test_header__of_another_block_or_incomplete__malformed(block: Any) -> None:
    async with scripted_node(script=says(block)) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcMalformed):
            await rpc.header(5)


async def test_header__another_hash_than_asked__malformed() -> None:
    async with scripted_node(script=says(BLOCK)) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcMalformed):
            await rpc.header(Hash32(b"\7" * 32))
        assert await rpc.header(HASH) is not None


@pytest.mark.parametrize(
    "logs",
    [
        None,
        [LOG | {"removed": True}],
        [LOG | {"blockHash": None}],
        [LOG | {"logIndex": "0x80000000"}],
        [LOG | {"topics": ["0x03"]}],
    ],
)
async def test_logs__null_or_unusable__malformed(logs: Any) -> None:
    async with scripted_node(script=says(logs)) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcMalformed):
            await rpc.logs_by_hash(HASH, [ADDRESS])


async def test_block_receipts__of_all_transactions__in_their_order() -> None:
    block = {"blockHash": "0x" + HASH.hex()}
    logs = ([LOG], [], [LOG | {"logIndex": "0x9"}])
    receipts = [block | {"logs": entries} for entries in logs]
    async with scripted_node(script=says(receipts)) as node, Rpc([node.url]) as rpc:
        found = await rpc.block_receipts(HASH)
    assert found is not None
    assert [block_hash for block_hash, _ in found] == [HASH] * 3
    places = [[log.log_index for log in entries] for _, entries in found]
    assert places == [[int(LOG["logIndex"], 16)], [], [9]]


@pytest.mark.parametrize("receipts", [[{}], [None], [{"logs": None}], {}])
async def test_block_receipts__unusable__malformed(receipts: Any) -> None:
    async with scripted_node(script=says(receipts)) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcMalformed):
            await rpc.block_receipts(HASH)


async def test_headers__batch_answered_out_of_order__in_the_order_asked() -> None:
    async def script(body: Any) -> Any:
        answers = [
            result(
                call, None if call["params"][0] == "0x7" else BLOCK | {"number": call["params"][0]}
            )
            for call in body
        ]
        return answers[::-1]

    async with scripted_node(script=script) as node, Rpc([node.url]) as rpc:
        found = await rpc.headers(range(5, 250))
    assert [header.number if header else None for header in found] == [
        5,
        6,
        None,
        *range(8, 250),
    ]
    assert len(node.calls) == 3


@pytest.mark.parametrize("damage", ["short", "twice", "stranger"])
async def test_headers__batch_with_wrong_answers__malformed(damage: str) -> None:
    async def script(body: Any) -> Any:
        answers = [result(call, BLOCK | {"number": call["params"][0]}) for call in body]
        if damage == "short":
            return answers[1:]
        if damage == "twice":
            return [answers[0], *answers[:-1]]
        return [answers[0] | {"id": 10**9}, *answers[1:]]

    async with scripted_node(script=script) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcMalformed):
            await rpc.headers([1, 2, 3])


async def test_headers__batch_refused_as_a_whole__rpc_error() -> None:
    refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": -32007, "message": "batch limit"}}
    async with scripted_node(script=replies(refusal)) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcError) as caught:
            await rpc.headers([1, 2])
    assert caught.value.code == -32007


async def test_error_object__also_under_http_400__rpc_error_with_its_data() -> None:
    async def script(body: Any) -> Any:
        error = {"code": 3, "message": "execution reverted", "data": "0x1234"}
        return web.json_response({"id": body["id"], "error": error}, status=400)

    async with scripted_node(script=script) as node, Rpc([node.url]) as rpc:
        with pytest.raises(RpcError) as caught:
            await rpc.call(ADDRESS, b"")
    assert (caught.value.code, caught.value.message) == (3, "execution reverted")
    assert caught.value.data == "0x1234"


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (web.Response(status=429), RpcRateLimited),
        (web.Response(status=413), RpcAnswerTooLarge),
        (web.Response(status=500, text="oops"), RpcUnreachable),
        (web.Response(status=404, text="not here"), RpcUnreachable),
        (web.Response(status=302, headers={"location": "http://127.0.0.1:1/"}), RpcUnreachable),
        (web.Response(text="<html>"), RpcMalformed),
        (web.Response(text="[" * 100_000), RpcMalformed),
        (web.Response(body=b"\xff\xfe"), RpcMalformed),
    ],
)
async def test_http__anything_but_an_answer__its_own_kind_of_error(
    response: web.Response, kind: type[RpcUnreachable]
) -> None:
    async with scripted_node(script=replies(response)) as node, Rpc([node.url]) as rpc:
        with pytest.raises(kind):
            await rpc.chain_id()


async def test_answer__larger_than_the_bound__refused_without_reading_it_all() -> None:
    async with scripted_node(script=replies(web.Response(body=b" " * 300_000))) as node:
        endpoint = Endpoint(node.url, timeout_s=5, max_answer_bytes=100_000)
        with pytest.raises(RpcAnswerTooLarge):
            await endpoint.post(b"{}")
        await endpoint.close()


async def test_answer__without_end__refused_at_the_bound() -> None:
    port = free_port()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"1000\r\n" + b" " * 4096 + b"\r\n")
                await writer.drain()
        writer.transport.abort()

    server = await asyncio.start_server(endless, "127.0.0.1", port)
    endpoint = Endpoint(f"http://127.0.0.1:{port}", timeout_s=2, max_answer_bytes=100_000)
    with pytest.raises(RpcAnswerTooLarge):
        await endpoint.post(b"{}")
    await endpoint.close()
    server.close()


async def test_silence__longer_than_the_timeout__rpc_timeout() -> None:
    async def script(_: Any) -> Any:
        await asyncio.sleep(5)

    async with scripted_node(script=script) as node, Rpc([node.url], timeout_s=0.1) as rpc:
        with pytest.raises(RpcTimeout):
            await rpc.chain_id()


async def test_failover__first_url_down__goes_to_the_next_and_stays(anvil: Anvil) -> None:
    async with scripted_node(anvil.url) as node:
        urls = [f"http://127.0.0.1:{free_port()}", node.url]
        async with Rpc(urls) as rpc:
            assert await rpc.chain_id() == 31337
            assert rpc.endpoint == node.url
            assert await rpc.chain_id() == 31337
        assert len(node.calls) == 2


async def test_failover__error_object__is_an_answer_and_ends_the_search(anvil: Anvil) -> None:
    refusal = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "no"}}
    async with (
        scripted_node(script=replies(refusal)) as first,
        scripted_node(anvil.url) as second,
        Rpc([first.url, second.url]) as rpc,
    ):
        with pytest.raises(RpcError):
            await rpc.chain_id()
        assert second.calls == []


async def test_closed_keepalive_connection__is_opened_again(anvil: Anvil) -> None:
    drop = False

    async def script(body: Any) -> Any:
        nonlocal drop
        if drop:
            drop = False
            raise asyncio.CancelledError  # aiohttp closes the connection without an answer
        return result(body, "0x1")

    async with scripted_node(script=script) as node, Rpc([node.url]) as rpc:
        assert await rpc.chain_id() == 1
        drop = True
        assert await rpc.chain_id() == 1
    assert len(node.calls) == 3


async def test_anvil__every_method__typed(anvil: Anvil) -> None:
    account = anvil.config.account(0)
    sender = Address(bytes.fromhex(account.address[2:]))
    other = Address(bytes.fromhex(anvil.config.account(1).address[2:]))
    async with Rpc([anvil.url]) as rpc:
        before = await rpc.header("latest")
        assert before is not None
        raw = account.sign_transaction(
            {
                "chainId": 31337,
                "nonce": await rpc.nonce(sender, "pending"),
                "to": anvil.config.account(1).address,
                "value": 7,
                "gas": await rpc.estimate_gas(sender, other, b"", 7),
                "maxFeePerGas": 2 * await rpc.gas_price(),
                "maxPriorityFeePerGas": await rpc.max_priority_fee(),
                "type": 2,
            }
        ).raw_transaction
        tx_hash = await rpc.send_raw_transaction(bytes(raw))
        while (receipt := await rpc.receipt(tx_hash)) is None:  # mining at once takes a moment
            await asyncio.sleep(0.01)
        assert receipt.succeeded
        assert receipt.status == 1
        assert (receipt.sender, receipt.to, receipt.gas_used) == (sender, other, 21_000)
        assert receipt.effective_gas_price_wei > 0
        assert await rpc.transaction_exists(tx_hash)
        assert not await rpc.transaction_exists(HASH)
        assert await rpc.receipt(HASH) is None
        assert await rpc.header(HASH) is None
        assert await rpc.header(before.hash) == before
        assert await rpc.balance(other) == 10_000 * 10**18 + 7
        assert await rpc.nonce(sender) == 1
        assert await rpc.code(other) == b""
        assert await rpc.call(other, b"", before.ref(), sender) == b""
        fees = await rpc.fee_history(1, [50.0])
        assert len(fees.base_fees_wei) == 2
        assert len(fees.rewards_wei[0]) == 1
        assert await rpc.logs_by_hash(before.hash, [other]) == []
        assert await rpc.logs_in_range(0, 1, [other]) == []
        assert await rpc.block_receipts(receipt.block_hash) == [(receipt.block_hash, [])]
        assert await rpc.block_receipts(HASH) is None
        assert await rpc.request("web3_clientVersion")
