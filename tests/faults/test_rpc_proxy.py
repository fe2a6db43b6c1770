"""The fault proxy does what its faults say: each one seen from the client's side, before Anvil."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from indexer.rpc import Rpc
from inferd.chain.anvil import Anvil, load_anvil_config, start_anvil
from tests.faults.dialects import RangeDialect
from tests.faults.rpc_faults import (
    AnswerFrom,
    ChangeLog,
    DamageLogs,
    Delay,
    ErrorObject,
    Fault,
    HangUp,
    HttpStatus,
    LagHead,
    NoTag,
    NullResult,
    OmitAnswer,
    OmitLogs,
    RefuseRange,
    Repeat,
    RepeatLogs,
    ReverseLogs,
    Shuffle,
    Silence,
    Truncate,
)
from tests.faults.rpc_plans import Always, AtRandom, Calm, Chance, InOrder
from tests.faults.rpc_proxy import RpcProxy, rpc_proxy
from tests.faults.stored_chain import OtherNode, StoredChain
from tests.indexer.emitter import HOMES, emitted, place_emitters

BATCH = [
    {"jsonrpc": "2.0", "id": at, "method": "eth_getBlockByNumber", "params": [hex(at), False]}
    for at in range(4)
]
LOGS = {"fromBlock": "0x0", "toBlock": "0x3"}
_BROKEN = (aiohttp.ClientError, json.JSONDecodeError, ConnectionError)


@pytest.fixture
async def proxy(anvil: Anvil) -> AsyncIterator[RpcProxy]:
    """Before a chain of blocks 0 to 3; block 3 has three logs."""
    async with Rpc([anvil.url]) as rpc:
        await place_emitters(rpc)
        await rpc.request("anvil_mine", ["0x2"])
        await emitted(rpc, HOMES[0], [b"\1" * 32, bytes(32)], b"data", times=3)
    async with rpc_proxy(anvil.url) as running:
        yield running


async def post(url: str, body: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as got:
        text = await got.text()
        return got.status, json.loads(text) if text[:1] in "{[" else text


async def call(proxy: RpcProxy, method: str, *params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 9, "method": method, "params": list(params)}
    _, answer = await post(proxy.url, body)
    assert answer["id"] == 9
    return answer["result"] if "result" in answer else answer["error"]


async def logs(proxy: RpcProxy, *faults: Fault) -> list[int]:
    """The places of the logs in the answer."""
    proxy.plan = Always(faults)
    return [int(entry["logIndex"], 16) for entry in await call(proxy, "eth_getLogs", LOGS)]


async def test_calm__answers_are_the_node_s(proxy: RpcProxy, anvil: Anvil) -> None:
    assert await post(proxy.url, BATCH) == await post(anvil.url, BATCH)
    assert await call(proxy, "eth_blockNumber") == "0x3"
    assert proxy.exchanges == 2


@pytest.mark.parametrize("fault", [HangUp(), HangUp(0.5), HangUp(unasked=True), Truncate()])
async def test_cut_off__the_answer_cannot_be_read(proxy: RpcProxy, fault: Fault) -> None:
    proxy.plan = Always([fault])
    with pytest.raises(_BROKEN):
        async with aiohttp.ClientSession() as session, session.post(proxy.url, json=BATCH) as got:
            json.loads(await got.text())


async def test_hang_up__unasked__the_node_never_hears_of_it(proxy: RpcProxy) -> None:
    for unasked, mined in ((True, "0x3"), (False, "0x4")):
        proxy.plan = Always([HangUp(unasked=unasked)])
        with pytest.raises(_BROKEN):
            await call(proxy, "anvil_mine", "0x1")
        proxy.plan = Calm()
        assert await call(proxy, "eth_blockNumber") == mined


async def test_delay_and_silence__a_patient_client_gets_only_the_first(proxy: RpcProxy) -> None:
    proxy.plan = InOrder([Delay(0.01), Silence()])
    assert await call(proxy, "eth_blockNumber") == "0x3"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await call(proxy, "eth_blockNumber")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Repeat(), [0, 1, 2, 3, 0]),
        (OmitAnswer(), [1, 2, 3]),
    ],
)
async def test_batch__answers_repeated_or_missing(
    proxy: RpcProxy, fault: Fault, expected: list[int]
) -> None:
    proxy.plan = Always([fault])
    _, answers = await post(proxy.url, BATCH)
    assert [answer["id"] for answer in answers] == expected


@pytest.mark.parametrize("seed", range(5))
async def test_batch__shuffled__all_there_in_another_order(proxy: RpcProxy, seed: int) -> None:
    proxy.plan = Always([Shuffle(seed)])
    for size in (2, 3, 4):
        _, answers = await post(proxy.url, BATCH[:size])
        asked = list(range(size))
        assert sorted(answer["id"] for answer in answers) == asked
        assert [answer["id"] for answer in answers] != asked
        assert all(int(answer["result"]["number"], 16) == answer["id"] for answer in answers)
    _, answers = await post(proxy.url, BATCH[:1])
    assert [answer["id"] for answer in answers] == [0]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (OmitLogs(), []),
        (OmitLogs(keep=2), [0, 1]),
        (RepeatLogs(), [0, 1, 2, 0, 1, 2]),
        (ReverseLogs(), [2, 1, 0]),
        (ChangeLog("removed", True), [0, 1, 2, 3]),
        (ChangeLog("logIndex", "0x0"), [0, 1, 2, 0]),
    ],
)
async def test_logs__changed(proxy: RpcProxy, fault: Fault, expected: list[int]) -> None:
    assert await logs(proxy, fault) == expected
    proxy.plan = Calm()
    assert await logs(proxy) == [0, 1, 2]


async def test_logs__damaged(proxy: RpcProxy) -> None:
    proxy.plan = Always([DamageLogs("0xff", ("0x" + "22" * 32,))])
    (first, *_) = await call(proxy, "eth_getLogs", LOGS)
    assert (first["data"], first["topics"]) == ("0xff", ["0x" + "22" * 32])


async def test_null_result__in_a_call_and_in_a_batch(proxy: RpcProxy) -> None:
    proxy.plan = Always([NullResult()])
    assert await call(proxy, "eth_getLogs", LOGS) is None
    _, answers = await post(proxy.url, BATCH)
    assert [answer["result"] for answer in answers] == [None] * 4


@pytest.mark.parametrize("status", [413, 429, 500, 503])
async def test_http_status__with_a_text_body(proxy: RpcProxy, status: int) -> None:
    proxy.plan = Always([HttpStatus(status)])
    assert await post(proxy.url, BATCH) == (status, "no")


async def test_http_status__says_when_to_come_back(proxy: RpcProxy) -> None:
    proxy.plan = Always([HttpStatus(429, retry_after_s=7)])
    async with aiohttp.ClientSession() as session, session.post(proxy.url, json=BATCH) as got:
        assert got.headers["Retry-After"] == "7"


async def test_error_object__for_every_call_of_a_batch(proxy: RpcProxy) -> None:
    proxy.plan = Always([ErrorObject(-32005, "rate limit exceeded", http_status=400)])
    status, answers = await post(proxy.url, BATCH)
    assert status == 400
    assert [answer["error"]["code"] for answer in answers] == [-32005] * 4
    assert [answer["id"] for answer in answers] == [0, 1, 2, 3]


@pytest.mark.parametrize("dialect", RangeDialect)
async def test_refused_range__in_each_dialect__only_where_it_is_too_wide(
    proxy: RpcProxy, dialect: RangeDialect
) -> None:
    proxy.plan = Always([RefuseRange(dialect, 2)])
    body = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [LOGS]}
    status, answer = await post(proxy.url, body)
    said = dialect.value
    assert status == said.http_status
    text = answer["error"]["message"] if said.as_json else answer
    assert text == said.text(0, 3, 2)
    assert not said.as_json or answer["error"]["code"] == said.code
    body["params"] = [LOGS | {"fromBlock": "0x2"}]
    status, answer = await post(proxy.url, body)
    assert (status, len(answer["result"])) == (200, 3)


async def test_lagging_head__what_is_newer_is_not_there(proxy: RpcProxy) -> None:
    head = await call(proxy, "eth_getBlockByNumber", "latest", False)
    proxy.plan = Always([LagHead(2)])
    assert await call(proxy, "eth_blockNumber") == "0x1"
    assert (await call(proxy, "eth_getBlockByNumber", "latest", False))["number"] == "0x1"
    assert await call(proxy, "eth_getBlockByNumber", "0x2", False) is None
    assert await call(proxy, "eth_getBlockByHash", head["hash"], False) is None
    assert await call(proxy, "eth_getLogs", LOGS) == []
    proxy.plan = Calm()
    assert await call(proxy, "eth_blockNumber") == "0x3"


async def test_head_that_goes_back__and_forth(proxy: RpcProxy) -> None:
    proxy.plan = InOrder([None, LagHead(1), None])
    assert [await call(proxy, "eth_blockNumber") for _ in range(3)] == ["0x3", "0x2", "0x3"]


async def test_tag_unknown__only_for_that_tag(proxy: RpcProxy) -> None:
    proxy.plan = Always([NoTag("finalized")])
    error = await call(proxy, "eth_getBlockByNumber", "finalized", False)
    assert error["code"] == -32602
    assert (await call(proxy, "eth_getBlockByNumber", "latest", False))["number"] == "0x3"


async def test_stored_fork__answers_as_before_the_reorganisation(
    proxy: RpcProxy, anvil: Anvil
) -> None:
    async with Rpc([anvil.url]) as rpc:
        fork = await StoredChain.record(rpc.request, 2, 3)
        before = [await call(proxy, "eth_getBlockByNumber", hex(n), False) for n in range(4)]
        await rpc.request("anvil_setCoinbase", ["0x" + "ab" * 20])
        await rpc.request("anvil_reorg", [2, []])
        await rpc.request("anvil_mine", ["0x1"])
        new = await call(proxy, "eth_getBlockByNumber", "0x3", False)
    assert new["hash"] != before[3]["hash"]
    proxy.plan = Always([AnswerFrom(fork)])
    assert await call(proxy, "eth_getBlockByNumber", "latest", False) == before[3]
    assert (await call(proxy, "eth_getBlockByNumber", "finalized", False))["number"] == "0x2"
    assert await call(proxy, "eth_getBlockByHash", before[2]["hash"], False) == before[2]
    assert await call(proxy, "eth_getBlockByHash", before[1]["hash"], False) == before[1]
    assert await call(proxy, "eth_getBlockByHash", new["hash"], False) is None
    assert await call(proxy, "eth_getBlockByNumber", "0x4", False) is None
    assert await call(proxy, "eth_chainId") == "0x7a69"
    _, answers = await post(proxy.url, BATCH)
    assert [answer["result"] for answer in answers] == before
    assert len(await call(proxy, "eth_getLogs", LOGS)) == 3
    assert len(await call(proxy, "eth_getLogs", {"blockHash": before[3]["hash"]})) == 3
    assert (await call(proxy, "eth_getLogs", {"blockHash": new["hash"]}))["code"] == -32000
    proxy.plan = Calm()
    assert await call(proxy, "eth_getLogs", LOGS) == []


async def test_other_node__answers_in_the_first_one_s_place(proxy: RpcProxy) -> None:
    config = replace(load_anvil_config(), port=0, block_time_s=0)
    with start_anvil(config) as other:
        proxy.plan = InOrder([AnswerFrom(OtherNode(other.url))])
        assert await call(proxy, "eth_blockNumber") == "0x0"
        assert await call(proxy, "eth_blockNumber") == "0x3"


class Exchanged:
    """What a plan is asked about."""

    def __init__(self, method: str) -> None:
        self.methods = frozenset([method])


def test_random_plan__same_seed__same_faults() -> None:
    chances = [
        Chance(HangUp(), weight=2),
        Chance(OmitLogs(), frozenset(["eth_getLogs"])),
        Chance(LagHead(1), calls=5),
    ]

    def told(seed: int) -> list[Sequence[Fault]]:
        plan = AtRandom(seed, 0.3, chances)
        asked = ["eth_getLogs", "eth_blockNumber"] * 200
        return [plan.faults(Exchanged(method)) for method in asked]  # type: ignore[arg-type]

    assert told(1) == told(1)
    assert told(1) != told(2)
    faults = [fault for step in told(3) for fault in step]
    assert {type(fault) for fault in faults} == {HangUp, OmitLogs, LagHead}
    assert 60 < len(faults) < 300
    blocks_only = told(3)[1::2]
    assert not any(isinstance(fault, OmitLogs) for step in blocks_only for fault in step)


def test_plan_in_order__only_its_methods_count() -> None:
    plan = InOrder([None, HangUp()], frozenset(["a"]))
    asked = [plan.faults(Exchanged(method)) for method in "abaab"]  # type: ignore[arg-type]
    assert asked == [(), (), (HangUp(),), (), ()]
    assert plan.told == 1
