"""Payments that are held back, and what models ask for: rows as the logs say, whatever happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexer import events as ev
from indexer.compare import Kind
from indexer.database import Pool
from indexer.derive import LocatedEvent
from indexer.events import DisputeEvent
from indexer.holds import fold_hold
from indexer.rpc.types import RawLog
from indexer.types import ZERO_HASH, Address, Hash32, Wei
from inferd.protocol import calls
from inferd.protocol.hold import Hold
from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.terms import ModelTerms
from inferd.protocol.typed_data import domain_separator, group_digest, sign_digest
from tests.indexer.test_recheck import DIGEST, FINAL_BLOCKS
from tests.indexer.test_verify import repaired, verified
from tests.indexer.world import (
    GWEI,
    MODEL,
    World,
    caught_up,
    differences,
    index_once,
    running,
    tables,
)

WINDOW_S = 3_600
BOND = 10**6 * GWEI


async def set_terms(world: World, window_s: int) -> None:
    terms = ModelTerms(MODEL)
    if window_s:
        terms = ModelTerms(MODEL, dispute_window_s=window_s, bond_wei=Wei(BOND))
    await world.send(0, world.contracts.requests, calls.set_model_terms(terms))


async def post_proven(world: World, request_id: int) -> None:
    commitment = world.commitment_of(request_id, world.params[request_id])
    item = ResultItem(request_id, commitment, DIGEST)
    domain = domain_separator(world.contracts.chain_id, world.contracts.results)
    signature = sign_digest(world.worker_key, group_digest(domain, pack_items([item])))
    data = calls.post_proven([(pack_items([item]), [signature], [b""])], ZERO_HASH)
    await world.send(3, world.contracts.results, data)


async def held(pool: Pool, request_id: int) -> Hold:
    row = await pool.fetchrow("SELECT * FROM chain.hold WHERE request_id = $1", request_id)
    return Hold.from_row(row)


async def history(world: World, pool: Pool) -> None:
    """Three under a window, of which one is released, one disputed and lapsed, one held."""
    await world.register()
    await set_terms(world, WINDOW_S)
    for text in (b"one", b"two", b"three"):
        await world.submit(text, deadline_in_s=30 * 86_400)
    await set_terms(world, 0)
    await post_proven(world, 1)
    await post_proven(world, 2)
    await index_once(world, pool)
    first, second = await held(pool, 1), await held(pool, 2)
    await world.send(1, world.contracts.disputes, calls.open_dispute(second), BOND)
    await world.rpc.request("evm_increaseTime", [WINDOW_S + 1])
    await world.send(3, world.contracts.disputes, calls.release([first, second]))
    await world.rpc.request("evm_increaseTime", [3 * 86_400 + 1])
    await world.send(3, world.contracts.disputes, calls.close_dispute(second))
    await post_proven(world, 3)


async def test_rows_say_what_became_of_each(world: World, pool: Pool, fresh_pool: Pool) -> None:
    await history(world, pool)
    await index_once(world, pool)
    rows = await pool.fetch("SELECT * FROM chain.hold ORDER BY request_id")
    assert [row["state"] for row in rows] == ["released", "lapsed", "held"]
    first, second, third = rows
    assert (second["disputer"], second["bond_wei"]) == (world.accounts[1], BOND)
    assert (first["poster"], first["owners"]) == (world.accounts[3], [world.accounts[2]])
    assert first["closed_block"] > first["held_block"]
    assert (third["closed_block"], third["disputer"]) == (None, None)
    windows = await pool.fetch("SELECT dispute_window_s FROM chain.terms ORDER BY block_number")
    assert [row["dispute_window_s"] for row in windows] == [WINDOW_S, 0]
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


async def test_a_reorganisation_takes_what_it_takes(
    world: World, pool: Pool, fresh_pool: Pool
) -> None:
    await history(world, pool)
    taken = [
        (0, ["released", "lapsed", "held"]),
        (1, ["released", "lapsed"]),
        (2, ["released", "disputed"]),
        (3, ["held", "disputed"]),
        (4, ["held", "held"]),
    ]
    async with running(world.indexer(pool)) as indexer:
        for depth, expected in taken:
            if depth:
                await world.reorg(depth, [])
            await caught_up(indexer, world)
            rows = await pool.fetch("SELECT state FROM chain.hold ORDER BY request_id")
            assert [row["state"] for row in rows] == expected
    await index_once(world, fresh_pool)
    assert differences(await tables(pool), await tables(fresh_pool)) == {}


DAMAGES = {
    "a hold lacks": ("DELETE FROM chain.hold WHERE request_id = 1", {Kind.WRONG_HOLD}),
    "one that nobody held": (
        "INSERT INTO chain.hold SELECT (r).* FROM (SELECT"
        " jsonb_populate_record(h, '{\"request_id\": 9}') AS r FROM chain.hold h"
        " WHERE request_id = 3) made",
        {Kind.WRONG_HOLD},
    ),
    "another state": ("UPDATE chain.hold SET state = 'held'", {Kind.WRONG_HOLD}),
    "terms lack": ("DELETE FROM chain.terms", {Kind.WRONG_TERMS}),
    "other terms": ("UPDATE chain.terms SET bond_wei = bond_wei + 1", {Kind.WRONG_TERMS}),
}


async def test_damages__found_and_mended__and_an_older_database_filled(
    world: World, pool: Pool
) -> None:
    await history(world, pool)
    await world.mine(FINAL_BLOCKS)
    await index_once(world, pool)
    before = await tables(pool)
    assert await verified(world, pool) == []
    for name, (damage, kinds) in DAMAGES.items():
        await pool.execute(damage)
        assert {one.kind for one in await verified(world, pool)} == kinds, name
        await repaired(world, pool)
        assert differences(await tables(pool), before) == {}, name
    # As a release leaves it that had no such tables.
    await pool.execute("DELETE FROM chain.hold")
    await pool.execute("DELETE FROM chain.terms")
    await index_once(world, pool)
    assert differences(await tables(pool), before) == {}


SOMEBODY = Address(b"\1" * 20)
DISPUTE_EVENTS = st.sampled_from(
    [
        ev.PaymentHeld(
            request_id=1,
            commitment=bytes(20),
            digest=Hash32(bytes(32)),
            workers=(SOMEBODY,),
            owners=(SOMEBODY,),
            payment_wei=Wei(8),
            poster=SOMEBODY,
            poster_wei=Wei(2),
            bond_wei=Wei(5),
            disputable_until_s=9,
        ),
        ev.PaymentReleased(1),
        ev.DisputeOpened(1, SOMEBODY, 99),
        ev.DisputeRuled(1, SOMEBODY, True, Wei(3)),
        ev.DisputeRuled(1, SOMEBODY, False, Wei(0)),
        ev.DisputeLapsed(1),
    ]
)


@given(st.lists(DISPUTE_EVENTS, max_size=8))
def test_folds_of_any_logs(found: list[DisputeEvent]) -> None:
    """Nothing before the newest hold counts, and a row is closed where it says by what."""
    row = fold_hold(located(found))
    begun = [n for n, event in enumerate(found) if isinstance(event, ev.PaymentHeld)]
    assert (row is None) == (not begun)
    if row is not None:
        assert row == fold_hold(located(found)[begun[-1] :])
        assert row.held_block == begun[-1]
        closing = (ev.PaymentReleased, ev.DisputeRuled, ev.DisputeLapsed)
        closed = any(isinstance(event, closing) for event in found[begun[-1] :])
        assert (row.closed_block is not None) == closed


def located(found: list[DisputeEvent]) -> list[LocatedEvent]:
    return [
        LocatedEvent(
            RawLog(SOMEBODY, (), b"", number, ZERO_HASH, Hash32(bytes(32)), 0, number),
            event,
            number,
        )
        for number, event in enumerate(found)
    ]


@given(
    owners=st.lists(st.sampled_from([b"\1" * 20, b"\2" * 20]), min_size=1, max_size=5),
    payment=st.integers(0, 2**70),
    also=st.integers(0, 2**70),
    poster=st.sampled_from([b"\1" * 20, b"\3" * 20]),
)
def test_what_is_due_adds_up(owners: list[bytes], payment: int, also: int, poster: bytes) -> None:
    one = Hold(
        request_id=1,
        commitment=bytes(20),  # type: ignore[arg-type]
        digest=Hash32(bytes(32)),
        workers=tuple(map(Address, owners)),
        owners=tuple(map(Address, owners)),
        payment_wei=Wei(payment),
        poster=Address(poster),
        poster_wei=Wei(7),
        bond_wei=Wei(1),
        disputable_until_s=1,
    )
    everybody = {Address(account) for account in (*owners, poster)}
    parts = [one.due_to([account], also_wei=also) for account in everybody]
    assert sum(parts) == one.due_to(everybody, also_wei=also) == payment + also + 7
