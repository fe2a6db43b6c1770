"""The pool that stands in for geth's does what geth does where Anvil does otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from indexer.rpc import Rpc, RpcError
from indexer.types import Hash32
from inferd.chain.anvil import Anvil
from inferd.chain.signers import LocalSigner
from tests.faults.geth_pool import GethPool
from tests.faults.rpc_plans import Always
from tests.faults.rpc_proxy import rpc_proxy
from tests.settlement.conftest import anvil, slots_in_an_epoch
from tests.settlement.world import GWEI

__all__ = ["anvil", "slots_in_an_epoch"]


@dataclass
class Node:
    pool: GethPool
    rpc: Rpc
    chain: Rpc
    signer: LocalSigner

    async def send(self, nonce: int, max_fee_wei: int, tip_wei: int) -> Hash32:
        transaction: dict[str, Any] = {
            "type": 2,
            "chainId": 31337,
            "nonce": nonce,
            "to": self.signer.address,
            "value": 0,
            "data": b"",
            "gas": 21_000,
            "maxFeePerGas": max_fee_wei,
            "maxPriorityFeePerGas": tip_wei,
        }
        return await self.rpc.send_raw_transaction((await self.signer.sign(transaction)).raw)

    async def refusal(self, nonce: int, max_fee_wei: int, tip_wei: int) -> str:
        with pytest.raises(RpcError) as caught:
            await self.send(nonce, max_fee_wei, tip_wei)
        return caught.value.message


@pytest.fixture
async def node(anvil: Anvil) -> AsyncIterator[Node]:
    pool = GethPool()
    async with (
        Rpc([anvil.url]) as chain,
        rpc_proxy(anvil.url, Always([pool])) as proxy,
        Rpc([proxy.url]) as rpc,
    ):
        await chain.request("evm_setAutomine", [False])
        yield Node(pool, rpc, chain, LocalSigner(anvil.config.account(2)))


@pytest.mark.parametrize(
    ("max_fee_wei", "tip_wei"),
    [(1_099, 1_000), (1_100, 109), (1_099, 110), (2_000, 100), (1_000, 200), (1_000, 100)],
)
async def test_replaced_by_a_tenth_more_in_both_fields_and_nothing_less(
    node: Node, max_fee_wei: int, tip_wei: int
) -> None:
    first = await node.send(0, 1_000 * GWEI, 100 * GWEI)
    words = {True: "already known", False: "replacement transaction underpriced"}
    said = await node.refusal(0, max_fee_wei * GWEI, tip_wei * GWEI)
    assert said == words[(max_fee_wei, tip_wei) == (1_000, 100)]
    second = await node.send(0, 1_100 * GWEI, 110 * GWEI)
    assert [await node.rpc.transaction_exists(one) for one in (first, second)] == [False, True]
    await node.pool.mine(node.chain)
    assert await node.rpc.receipt(second) is not None
    assert "nonce too low" in await node.refusal(0, 2_000 * GWEI, 200 * GWEI)


async def test_too_cheap_for_the_block__pooled_until_it_is_not(node: Node) -> None:
    await node.chain.request("anvil_setNextBlockBaseFeePerGas", [hex(9 * GWEI)])
    await node.chain.request("anvil_mine", [1])
    tx_hash = await node.send(0, GWEI, 1)
    await node.pool.mine(node.chain)
    assert await node.rpc.receipt(tx_hash) is None
    assert await node.rpc.transaction_exists(tx_hash)
    await node.chain.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI // 2)])
    await node.chain.request("anvil_mine", [1])
    await node.chain.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI // 2)])
    await node.pool.mine(node.chain)
    assert await node.rpc.receipt(tx_hash) is not None


async def test_what_a_reorganisation_takes_is_pooled_again(node: Node) -> None:
    tx_hash = await node.send(0, 10 * GWEI, GWEI)
    await node.pool.mine(node.chain)
    await node.pool.reorg(node.chain, 1)
    assert await node.rpc.receipt(tx_hash) is None
    assert await node.rpc.transaction_exists(tx_hash)
    assert await node.rpc.nonce(node.signer.address, "pending") == 1
    await node.pool.mine(node.chain)
    assert await node.rpc.receipt(tx_hash) is not None


async def test_a_nonce_after_a_gap__queued_or_refused(node: Node) -> None:
    await node.send(1, 10 * GWEI, GWEI)
    assert await node.rpc.nonce(node.signer.address, "pending") == 0
    node.pool.held.clear()
    node.pool.gapless = True
    assert await node.refusal(1, 10 * GWEI, GWEI) == "nonce too high"


async def test_all_of_an_account_shares_its_balance__a_replacement_counts_once(node: Node) -> None:
    one_wei = 21_000 * 10 * GWEI
    place = "0x" + node.signer.address.hex()
    await node.chain.request("anvil_setBalance", [place, hex(5 * one_wei // 2)])
    await node.send(0, 10 * GWEI, GWEI)
    await node.send(1, 10 * GWEI, GWEI)
    assert "tx cost" in await node.refusal(2, 10 * GWEI, GWEI)
    await node.send(1, 15 * GWEI, 2 * GWEI)
    assert "tx bumped" in await node.refusal(0, 11 * GWEI, 2 * GWEI)
    assert "overshot" in await node.refusal(0, 11 * GWEI, 2 * GWEI)
