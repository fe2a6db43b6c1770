"""A daemon and a model with a dispute window: served, paid later; a lie of others disputed."""

from __future__ import annotations

from typing import Any

from eth_keys.datatypes import PrivateKey

from indexer.database import connect
from indexer.types import ZERO_HASH, Address, Hash32, Wei
from inferd.chain.admin import set_model_terms
from inferd.chain.disputes import rule
from inferd.chain.register import register_worker
from inferd.protocol import calls
from inferd.protocol.request import model_id
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.terms import ModelTerms
from inferd.protocol.typed_data import domain_separator, group_digest, sign_digest
from inferd.workers.checks import evidence
from inferd.workers.checks.evidence import Disagreement, Kind, Side
from scheduler.model import RequestKey
from tests.harness import (
    DEPLOYER,
    FEE_WEI,
    MODEL,
    OWNER,
    POSTER,
    REQUESTER,
    SECOND_POSTER,
    NodeProcess,
    System,
    account,
    address,
)

_LIAR = 7
_BOND_WEI = 10**15
_WINDOW_S = 3_600
_SECTION = "[disputes]\nopen = true\nmax_bond_gwei = 1_000_000\nmax_bonds_gwei_per_day = 1_000_000"


async def _settled_lie(world: System) -> Disagreement:
    """A stranger's worker is first, and its answer is wrong; and what shows that."""
    contracts = world.deployment.contracts
    await register_worker(
        world.sender(SECOND_POSTER), account(_LIAR), [MODEL], 1, 0, None, contracts
    )
    asked = await world.ask("whom can one believe")
    key = PrivateKey(bytes(account(_LIAR).key))
    item = ResultItem(asked.request_id, asked.commitment, digest_of(b"a lie"))
    domain = domain_separator(contracts.chain_id, contracts.results)
    signature = sign_digest(key, group_digest(domain, pack_items([item])))
    data = calls.post_proven([(pack_items([item]), [signature], [b""])], ZERO_HASH)
    await world.sender(SECOND_POSTER).send(contracts.results, data)
    return Disagreement(
        kind=Kind.SPOT,
        key=RequestKey(asked.request_id, asked.commitment),
        model_id=model_id(MODEL),
        accused=Side(address(_LIAR), item.digest, signature, b"a lie", 5),
        others=(Side(address(5), Hash32(b"\1" * 32), signature, b"truth", 5),),
        reason="another worker says something else",
    )


async def _until(node: NodeProcess, connection: Any, query: str, wanted: object) -> None:
    async def check() -> bool:
        return bool(await connection.fetchval(query) == wanted)

    await node.until(check, 60, f"at {wanted!r}")


async def test_held_and_released__and_a_lie_disputed(world: System, empty_database: str) -> None:
    contracts = world.deployment.contracts
    terms = ModelTerms(model_id(MODEL), dispute_window_s=_WINDOW_S, bond_wei=Wei(_BOND_WEI))
    await set_model_terms(world.sender(DEPLOYER), contracts, terms)
    lie = await _settled_lie(world)
    node = world.start_node("node", empty_database, sections=_SECTION)
    await node.until_ready()
    connection = await connect(empty_database)
    async with connection.transaction():
        await evidence.record(connection, lie)
    await _until(node, connection, "SELECT dispute FROM node.disagreement", "opened")
    honest = await world.ask("under a window")
    await node.until_state(honest.request_id, "settled")
    held = f"SELECT state FROM chain.hold WHERE request_id = {honest.request_id}"
    await _until(node, connection, held, "held")
    assert await world.credit_wei(POSTER) == 0

    repaid = await world.credit_wei(REQUESTER)
    await rule(world.sender(DEPLOYER), contracts, lie.key.id, upheld=True)
    await _until(node, connection, "SELECT dispute FROM node.disagreement", "upheld")
    assert await world.credit_wei(REQUESTER) == repaid + FEE_WEI
    slashed = "SELECT slashed_wei::text FROM chain.hold WHERE state = 'upheld'"
    await _until(node, connection, slashed, str(_BOND_WEI))
    returned = await world.credit_wei(POSTER)
    assert returned >= _BOND_WEI

    await world.rpc.request("evm_increaseTime", [_WINDOW_S + 1])
    await _until(node, connection, held, "released")
    assert await world.credit_wei(POSTER) == returned + FEE_WEI // 5
    assert await world.credit_wei(OWNER) == FEE_WEI * 4 // 5
    sender = Address(address(POSTER))
    done = "SELECT array_agg(kind ORDER BY id) FROM node.tx_intent WHERE sender = $1"
    assert await connection.fetchval(done, sender) == ["dispute", "post", "release"]
    closed = "SELECT count(*) FROM node.tx_item WHERE outcome = 'released'"
    await _until(node, connection, closed, 1)
    status, body = await node.get("/v1/report")
    assert (status, body["total"]["releases"], body["total"]["disputes"]) == (200, 1, 1)
    _, seen = await node.get(f"/v1/requests/{lie.key.id}")
    assert (seen["payment"], seen["disagreement"]) == ("upheld", 1)
    await connection.close()
    assert node.stop() == 0
