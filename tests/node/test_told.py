"""What the processes of a split node tell each other."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from indexer.database import Pool
from indexer.types import Address
from inferd.node.api import ApiState
from inferd.node.api_models import EncryptionKeyView, PosterView, SettlementView
from inferd.node.health import Health
from inferd.node.leader import become_leader
from inferd.node.others import Others, together
from inferd.node.part import Part
from inferd.node.pool_models import PoolWorkerView
from inferd.node.roles import Role
from inferd.node.told import (
    LIVES_S,
    Market,
    Said,
    Teller,
    forget_processes,
    load_processes,
    said_of,
    said_presence,
)
from inferd.protocol.request import ModelId
from inferd.workers.standings import Offered, Presence
from scheduler.model import GasModel

MODEL = ModelId(b"\1" * 32)
GAS = GasModel(45_000, 14_000, 5_500, 100, 200)


def presence(worker: int, *, available: bool = True) -> Presence:
    offered = {MODEL: Offered("model", 120.0, loaded=True, load_ms=3.5)}
    return Presence(Address(bytes([worker]) * 20), 4, 3, 1, 2_000, available, offered)


async def said(
    pool: Pool, process: str, roles: list[str], what: Said, *presences: Presence
) -> None:
    what.presences = [said_presence(one) for one in presences]
    async with pool.acquire() as connection, connection.transaction():
        await Teller(process, f"host:{process}", roles).tell(connection, what, presences)


async def test_what_is_told_is_what_the_others_go_by(pool: Pool) -> None:
    rung = []
    names: dict[bytes, str] = {}
    others = Others(pool, names, on_change=lambda: rung.append(1))
    await others.look()
    assert (others.caught_up, others.knows_prices, others.has_offers) == (False, False, False)
    assert others.missing == ["dispatch", "index", "schedule", "settle"]
    own = Address(b"\7" * 20)
    await said(pool, "i", ["index", "schedule"], Said(caught_up=True))
    market = Market(GAS, 10**18, 40)
    await said(pool, "s", ["settle"], Said(market=said_of(market), own_accounts=[own.hex()]))
    for name, found in (("d", presence(2)), ("e", presence(2, available=False))):
        await said(pool, name, ["dispatch"], Said(), found)
    await others.look()
    assert others.missing == []
    assert others.caught_up
    assert others.knows_prices
    assert others.has_offers
    assert (others.market, others.own_accounts) == (market, {own})
    (merged,) = others.presences
    assert (merged.available, merged.most_at_once, merged.in_flight) == (True, 3, 2)
    assert merged.models == presence(2).models
    assert names == {MODEL: "model"}
    assert rung == [1]
    await others.look()
    assert rung == [1], "nothing is new"

    # Who has told nothing for long does not count; of prices the last that were seen are kept.
    for process in ("s", "d", "e"):
        await pool.execute(
            "UPDATE node.process SET at = now() - $1 * interval '1 second' WHERE id = $2",
            LIVES_S + 1,
            process,
        )
    await others.look()
    assert others.missing == ["dispatch", "settle"]
    assert (others.knows_prices, others.has_offers, others.presences) == (False, False, ())
    assert others.market == market
    async with pool.acquire() as connection:
        await forget_processes(connection, ["i"])
        assert await load_processes(connection) == []


async def test_of_offers_what_has_changed_is_written_and_read(pool: Pool) -> None:
    async def tell(teller: Teller, *presences: Presence) -> None:
        what = Said(presences=[said_presence(one) for one in presences])
        async with pool.acquire() as connection, connection.transaction():
            await teller.tell(connection, what, presences)

    async def written() -> dict[int, int]:
        rows = await pool.fetch(
            "SELECT worker, version FROM node.process_offers WHERE process = 'one' ORDER BY worker"
        )
        return {row["worker"][0]: row["version"] for row in rows}

    def heard() -> dict[int, str]:
        return {one.address[0]: one.models[MODEL].name for one in others.presences}

    one, other = Teller("one", "host", ["dispatch"]), Teller("other", "host", ["dispatch"])
    others = Others(pool, {})
    await tell(one, presence(2), presence(3))
    await tell(other, presence(3))
    await others.look()
    assert heard() == {2: "model", 3: "model"}
    assert await written() == {2: 1, 3: 1}
    first, second = others._offers["one"], others._offers["other"]
    three = presence(3).address
    assert first.by_worker[three] is second.by_worker[three]

    # It has more in hand, and offers the same.
    await tell(one, replace(presence(2), in_flight=3), presence(3))
    await others.look()
    assert await written() == {2: 1, 3: 1}
    assert others.presences[0].in_flight == 3
    assert others._offers["one"] is first

    renamed = replace(presence(3), models={MODEL: Offered("aaa", 9.0, loaded=True, load_ms=0.0)})
    await tell(one, presence(2), renamed)
    await others.look()
    assert await written() == {2: 1, 3: 2}
    assert heard() == {2: "model", 3: "aaa"}
    await tell(one, renamed)
    await others.look()
    assert await written() == {3: 2}
    assert heard() == {3: "aaa"}
    newcomer = Others(pool, {})
    await newcomer.look()
    assert newcomer.presences == others.presences

    # Nobody heard of it for an hour, and it lives.
    await pool.execute("DELETE FROM node.process WHERE id = 'one'")
    await tell(one, renamed)
    await others.look()
    assert await written() == {3: 4}
    assert heard() == {3: "aaa"}

    # A transaction that failed may have left less than was told.
    await pool.execute("DELETE FROM node.process_offers")
    one.forget()
    await tell(one, renamed)
    await others.look()
    assert await written() == {3: 5}
    assert heard() == {3: "aaa"}


async def test_people_see_workers_as_who_gives_them_work_does(pool: Pool) -> None:
    def shown(*, in_pool: bool, slots: int) -> PoolWorkerView:
        return PoolWorkerView(
            address="0xa",
            name="",
            embedded=False,
            endpoint="",
            in_pool=in_pool,
            reason="",
            slots=slots,
            limit=None,
            in_flight=0,
            circuit="closed",
            heartbeat_age_s=None,
            skew_ms=None,
            stake_wei=None,
            models=[],
        )

    tellers = [Teller(name, "host", ["dispatch"]) for name in ("one", "other")]
    others = Others(pool, {})
    async with pool.acquire() as connection:
        await tellers[0].tell(connection, Said(), (), [shown(in_pool=True, slots=1)])
        await tellers[1].tell(connection, Said(), (), [shown(in_pool=False, slots=2)])
        await tellers[0].tell(connection, Said())
        await others.look()
        assert (await others.pool(connection))["0xa"].slots == 1
        await connection.execute("UPDATE node.process SET pool = '[{}]' WHERE id = 'one'")
        assert (await others.pool(connection))["0xa"].slots == 2


async def test_a_key_for_private_inputs_is_told_by_who_has_it_alone(pool: Pool) -> None:
    key = EncryptionKeyView(key="0x01", poster="0x02", signature=None)
    await said(pool, "computes", ["dispatch", "settle"], Said(encryption_key=key))
    others = Others(pool, {})
    await others.look()
    api = ApiState(Health(), roles=frozenset({Role.DISPATCH}), others=others)
    assert api.encryption_key() == key
    session = SimpleNamespace(roles=api.roles, keys_held={})
    node = SimpleNamespace(health=api.health, api=api)
    leadership = SimpleNamespace(process="dispatches", holder="host")
    part: Any = Part(session, node, pool, leadership)  # type: ignore[arg-type]
    told = await part._said()
    assert told.encryption_key is None


async def test_whose_money_is_the_operators_is_known_while_nobody_settles(pool: Pool) -> None:
    own = Address(b"\7" * 20)
    await said(pool, "s", ["settle"], Said(own_accounts=[own.hex()]))
    others = Others(pool, {})
    await others.look()
    assert others.own_accounts == {own}
    await pool.execute("DELETE FROM node.process")
    await others.look()
    assert others.own_accounts == {own}


async def test_results_wait_for_room_as_far_as_they_do_for_everybody(pool: Pool) -> None:
    for process, unposted in (("one", 40), ("other", 0)):
        what = Said(market=said_of(Market(GAS, 1, unposted)), own_accounts=[process.encode().hex()])
        await said(pool, process, ["settle"], what)
    others = Others(pool, {})
    await others.look()
    assert others.market == Market(GAS, 1, 0)
    assert others.own_accounts == {b"one", b"other"}


async def test_a_process_of_another_release_is_understood_or_left_out(pool: Pool) -> None:
    await said(pool, "newer", ["index"], Said(caught_up=True))
    await said(pool, "odd", ["settle"], Said())
    await pool.execute(
        "UPDATE node.process SET told = told || $1 WHERE id = 'newer'", {"more": "of it"}
    )
    await pool.execute("UPDATE node.process SET told = $1 WHERE id = 'odd'", {"caught_up": "x"})
    async with pool.acquire() as connection:
        (found,) = await load_processes(connection)
    assert (found.id, found.said.caught_up) == ("newer", True)


async def test_beside_a_whole_daemon_no_role_is_missing(pool: Pool, database: str) -> None:
    leadership = await become_leader(database, "whole")
    others = Others(pool, {})
    await others.look()
    assert others.missing == []
    await leadership.release()


def test_settlement_of_several_is_paused_where_all_are() -> None:
    def view(address: str, **changes: Any) -> SettlementView:
        poster = PosterView(
            address=address,
            former=False,
            balance_wei="1",
            funds=None,
            in_flight=1,
            confirmed=2,
            paused_reason=None,
            error=None,
        )
        fields: dict[str, Any] = {
            "posters": [poster],
            "in_flight": 1,
            "ready": 5,
            "paused_reason": None,
            "confirmed": 2,
            "callbacks_owed": 0,
            "delivering": "",
            "disputes_open": 0,
            "bonds_staked_wei": "0",
            "disputing": "",
            "releasing": "",
        }
        return SettlementView(**fields | changes)

    one, other = view("0xb", paused_reason="signer_unavailable"), view("0xa")
    both = together([one, other])
    assert [poster.address for poster in both.posters] == ["0xa", "0xb"]
    assert (both.in_flight, both.confirmed, both.ready, both.paused_reason) == (2, 4, 5, None)
    assert together([one]) == one
