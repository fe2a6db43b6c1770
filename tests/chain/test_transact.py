"""A transaction is sent once, whatever the endpoint does while it takes it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from eth_account import Account

from indexer.errors import RpcUnreachable
from indexer.rpc import Rpc, RpcError
from indexer.types import Address, Hash32
from inferd.chain import transact
from inferd.chain.transact import (
    InsufficientFunds,
    Sender,
    TransactionPending,
    TransactionRefused,
)
from tests.chain.world import REQUESTER, World

RECEIVER = Address(b"\x55" * 20)


class Flaky(Rpc):
    """Fails the first sends, before or after it has taken the transaction."""

    def __init__(self, url: str, failures: list[str]) -> None:
        super().__init__([url])
        self.failures = failures
        self.sent: list[bytes] = []

    async def send_raw_transaction(self, raw: bytes) -> Hash32:
        self.sent.append(raw)
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "before":
            raise RpcUnreachable("reset", help_text="x")
        if failure.startswith("refuses"):
            raise RpcError(-32000, failure)
        tx_hash = await super().send_raw_transaction(raw)
        if failure == "after":
            raise RpcUnreachable("reset", help_text="x")
        if failure.startswith("says "):
            raise RpcError(-32000, failure.removeprefix("says "))
        return tx_hash


@pytest.mark.parametrize(
    "failures",
    [
        ["before"],
        ["after"],
        ["before", "after"],
        ["says already known"],
        ["says AlreadyKnown"],
        ["says Known transaction"],
        ["says nonce too low"],
        ["after", "says insufficient funds for gas * price + value"],
    ],
    ids=str,
)
async def test_a_failing_endpoint_never_causes_a_second_transaction(
    world: World, failures: list[str]
) -> None:
    async with Flaky(world.anvil.url, failures) as rpc:
        sender = replace(world.sender(REQUESTER), rpc=rpc)

        receipt = await sender.send(RECEIVER, b"", value_wei=5)

        assert receipt.succeeded
        assert len(set(rpc.sent)) == 1
    assert await world.rpc.balance(RECEIVER) == 5
    assert await world.rpc.nonce(sender.address) == 1


async def test_sends_at_the_same_time_get_nonces_one_after_another(world: World) -> None:
    await world.rpc.request("evm_setAutomine", [False])
    sender = world.sender(REQUESTER)
    sends = [asyncio.create_task(sender.send(RECEIVER, b"", value_wei=1)) for _ in range(5)]
    while await world.rpc.nonce(sender.address, "pending") < 5:
        await asyncio.sleep(0.02)
    await world.rpc.request("evm_mine")

    receipts = await asyncio.gather(*sends)

    assert len({receipt.block_number for receipt in receipts}) == 1
    assert await world.rpc.balance(RECEIVER) == 5


async def test_a_transaction_that_is_not_mined_is_named(world: World) -> None:
    await world.rpc.request("evm_setAutomine", [False])

    with pytest.raises(TransactionPending, match=r"0x[0-9a-f]{64} was sent") as pending:
        await world.sender(REQUESTER).send(RECEIVER, b"", value_wei=5, timeout_s=0.3)

    assert "before you send another" in pending.value.help_text


async def test_a_refusal_on_sending_never_says_that_nothing_was_sent(world: World) -> None:
    async with Flaky(world.anvil.url, ["refuses"]) as rpc:
        with pytest.raises(TransactionRefused, match=r"0x[0-9a-f]{64}") as refused:
            await replace(world.sender(REQUESTER), rpc=rpc).send(RECEIVER, b"", value_wei=5)

    assert "nothing was sent" not in refused.value.help_text


async def test_a_nonce_that_another_transaction_took_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transact, "_NONCE_TAKEN_S", 0.2)
    async with Flaky(world.anvil.url, ["refuses with nonce too low"] * 50) as rpc:
        with pytest.raises(TransactionPending, match="another transaction"):
            await replace(world.sender(REQUESTER), rpc=rpc).send(RECEIVER, b"", value_wei=5)


async def test_an_empty_account_is_told(world: World) -> None:
    poor = Sender(world.rpc, Account.create(), world.contracts.chain_id)

    with pytest.raises(InsufficientFunds) as refused:
        await poor.send(RECEIVER, b"", value_wei=5)

    assert "fund" in refused.value.help_text


async def test_what_holds_the_value_but_not_the_gas_is_told(world: World) -> None:
    account: Any = Account.create()
    await world.rpc.request("anvil_setBalance", [account.address, hex(21_000)])
    poor = Sender(world.rpc, account, world.contracts.chain_id)

    with pytest.raises(InsufficientFunds):
        await poor.send(RECEIVER, b"", value_wei=5)
