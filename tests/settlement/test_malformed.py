"""Answers that cannot be read are trouble with the endpoint: recorded, and met again later."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.rpc import RawLog, Receipt
from inferd.settlement.receipts import GROUP_SKIPPED
from inferd.settlement.settings import PausedReason
from tests.settlement.scripted import ScriptedRpc, answer, error
from tests.settlement.world import World


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("request", None),
        ("request", "0x"),
        ("request", "zz"),
        ("request", 7),
        ("request", {}),
        ("call", b""),
        ("call", b"\x01" * 31),
    ],
)
async def test_a_malformed_answer_stays_within_the_step(
    world: World, method: str, value: Any
) -> None:
    ids = await world.submit(1)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)
    rpc.always(method, answer(value))
    settlement = world.settlement(rpc)
    await settlement.step(await world.index())
    assert settlement.status.paused_reason is PausedReason.RPC_TROUBLE
    assert settlement.status.last_error is not None
    rpc.always(method, None)
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_a_refusal_in_bytes_that_no_text_column_takes(world: World) -> None:
    ids = await world.submit(1)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)
    rpc.then("send_raw_transaction", error("no\x00such \ud800thing"))
    settlement = world.settlement(rpc)
    await world.tick(settlement)
    assert settlement.status.paused_reason is PausedReason.TRANSACTION_REFUSED
    await world.tick(settlement, 4)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_a_receipt_that_tells_of_a_group_we_never_posted(world: World) -> None:
    ids = await world.submit(1)
    await world.compute(ids)
    rpc = ScriptedRpc(world.rpc)

    async def with_foreign_log(real: Any, tx_hash: bytes) -> Any:
        found: Receipt | None = await real(tx_hash)
        if found is None:
            return None
        log = RawLog(
            world.contracts.results,
            (GROUP_SKIPPED, (2**255).to_bytes(32, "big")),
            b"",
            found.block_number,
            found.block_hash,
            found.tx_hash,
            0,
            9,
        )
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        return Receipt(**{**fields, "logs": (*found.logs, log)})

    rpc.always("receipt", with_foreign_log)
    await world.tick(world.settlement(rpc), 4)
    assert await world.items() == {ids[0]: ["settled"]}
