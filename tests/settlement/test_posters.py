"""Several keys of one operator: what is ready is divided among them, and one in trouble stands
aside alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from eth_utils.address import to_checksum_address

from indexer.database import Fence, Pool
from indexer.types import Address, BlockRef
from inferd.chain.signers import LocalSigner, SignedTx, SignerTrouble, TransactionSigner
from inferd.node.leader import Leadership, LostLeadership, become_leader, poster_role
from inferd.settlement.engine import Settlement
from inferd.settlement.key_queue import Claim
from inferd.settlement.lanes import Lane, Lanes
from inferd.settlement.receipts import ALREADY_SETTLED
from inferd.settlement.runway import FundsState
from inferd.settlement.settings import KeyStatus, PausedReason
from inferd.settlement.turns import RESULTS, Turns
from tests.settlement.scripted import ScriptedRpc, error
from tests.settlement.test_accounts_equal_the_chain import Books
from tests.settlement.world import ETHER, GWEI, World


class Switched:
    """A signer that can be away."""

    def __init__(self, signer: TransactionSigner) -> None:
        self._signer = signer
        self.away = False
        self.asked = 0

    @property
    def address(self) -> Address:
        return self._signer.address

    async def sign(self, transaction: Mapping[str, Any]) -> SignedTx:
        self.asked += 1
        if self.away:
            raise SignerTrouble("it is away", help_text="wait")
        return await self._signer.sign(transaction)


class Posters:
    """The world's own key and another, both of which can lose their signer."""

    def __init__(self, world: World, settings: Mapping[str, Any]) -> None:
        self.world = world
        self.first = Switched(world.poster)
        self.second = Switched(LocalSigner(world.anvil.config.account(8)))
        self.rpc = ScriptedRpc(world.rpc)
        self._settings = settings
        self.settlement = self.anew()

    def anew(self) -> Settlement:
        signers = (self.first, self.second)
        return self.world.settlement(self.rpc, signers=signers, **self._settings)

    async def ready(self, count: int, **request: Any) -> list[int]:
        ids = await self.world.submit(count, batchable=False, **request)
        await self.world.compute(ids)
        return ids

    async def set_balance(self, signer: TransactionSigner, wei: int) -> None:
        account = to_checksum_address(signer.address)
        await self.world.rpc.request("anvil_setBalance", [account, hex(wei)])

    async def sent(self) -> list[int]:
        """Transactions of each key that are on chain."""
        return [await self.world.rpc.nonce(one.address) for one in (self.first, self.second)]

    async def live_items(self) -> int:
        return await self.world.pool.fetchval("SELECT count(*) FROM node.tx_item WHERE live")  # type: ignore[no-any-return]

    @property
    def paused(self) -> list[PausedReason | None]:
        return [key.paused_reason for key in self.settlement.status.keys]


@pytest.fixture
def posters(world: World) -> Posters:
    return Posters(world, {"max_in_flight": 2})


async def test_two_keys_carry_twice_as_many_posts_at_once(world: World, posters: Posters) -> None:
    ids = await posters.ready(8)
    one = world.settlement(signers=[posters.first], max_in_flight=2)
    head = await world.index()
    await one.step(head)
    assert (await posters.live_items(), one.status.in_flight) == (2, 2)
    await posters.settlement.step(head)
    assert await posters.live_items() == 4
    status = posters.settlement.status
    assert [key.in_flight for key in status.keys] == [2, 2]
    assert status.crowded_out == 4
    await world.tick(posters.settlement, 8)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await posters.sent() == [4, 4]
    outcomes = await world.items()
    assert all(outcomes[one] == ["settled"] for one in ids)


async def test_a_key_without_ether_stands_aside_alone(world: World, posters: Posters) -> None:
    await posters.set_balance(posters.first, 0)
    ids = await posters.ready(4)
    await world.tick(posters.settlement, 6)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await posters.sent() == [0, 4]
    # Of nothing to send nothing is missing: it says so where it would have had to.
    await posters.ready(3)
    await posters.settlement.step(await world.index())
    assert posters.settlement.status.paused_reason is None
    await posters.set_balance(posters.first, ETHER)
    await world.tick(posters.settlement, 3)
    more = await posters.ready(4)
    await world.tick(posters.settlement, 4)
    assert (await posters.sent())[0] > 0
    assert set(more) <= set(await world.fulfilled_events())


async def test_while_one_key_is_full_and_the_other_empty_results_wait_for_slots(
    world: World, posters: Posters
) -> None:
    await posters.set_balance(posters.second, 0)
    await posters.ready(6)
    head = await world.index()
    for _ in range(2):
        await posters.settlement.step(head)
        assert [key.in_flight for key in posters.settlement.status.keys] == [2, 0]
        assert posters.settlement.status.crowded_out == 4
    await world.tick(posters.settlement, 6)
    assert posters.settlement.status.crowded_out == 0


async def test_each_balance_has_thresholds_of_its_own(world: World) -> None:
    posters = Posters(world, {"warn_runway_results": 200, "stop_runway_results": 20})
    await world.tick(posters.settlement)
    first, second = posters.settlement.status.keys
    assert first.projection is not None
    await posters.set_balance(posters.first, 10 * first.projection.result_wei)
    ids = await posters.ready(4)
    await world.tick(posters.settlement, 3)
    assert (first.funds, second.funds) == (FundsState.SPENT, FundsState.ENOUGH)
    assert posters.paused == [PausedReason.INSUFFICIENT_FUNDS, None]
    status = posters.settlement.status
    assert (status.paused_reason, status.funds) == (None, FundsState.ENOUGH)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await posters.sent() == [0, 4]
    await posters.set_balance(posters.second, 0)
    await posters.ready(1)
    await world.tick(posters.settlement, 2)
    assert status.paused_reason is PausedReason.INSUFFICIENT_FUNDS
    assert status.funds is FundsState.SPENT
    assert "balance" in status.posting


async def test_what_a_key_cannot_sign_goes_to_the_other_in_the_same_step(
    world: World, posters: Posters
) -> None:
    posters.first.away = True
    ids = await posters.ready(8)
    await posters.settlement.step(await world.index())
    assert posters.paused == [PausedReason.SIGNER_UNAVAILABLE, None]
    status = posters.settlement.status
    assert (status.paused_reason, status.last_error) == (None, "it is away")
    assert status.keys[1].in_flight == await posters.live_items() == 2
    await world.tick(posters.settlement, 6)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await posters.sent() == [0, 8]
    # It rests, and is not asked in each block; no nonce was spent on it.
    asked = posters.first.asked
    assert asked <= 3
    posters.first.away = False
    await world.mine(8)
    more = await posters.ready(4)
    await world.tick(posters.settlement, 4)
    assert await posters.sent() == [2, 10]
    assert posters.paused == [None, None]
    assert set(more) <= set(await world.fulfilled_events())
    cancelled = [one for one in await world.intents() if one["outcome"] == "not_sent"]
    assert 1 <= len(cancelled) <= asked


async def test_a_gap_of_a_key_that_cannot_sign_waits_as_long_as_the_key_rests(
    world: World, posters: Posters
) -> None:
    """One intent that is not sent for each time that the signer is asked, and no more."""
    await posters.set_balance(posters.second, 0)
    ids = await posters.ready(1)
    before = await world.index()
    await world.poster_transfer(0)
    await world.mine()
    await posters.settlement.step(head := await world.index())
    assert [attempt["nonce"] for attempt in await world.attempts()] == [1]
    await world.rpc.request("anvil_reorg", [head.number - before.number, []])
    assert (await posters.sent())[0] == 0
    posters.first.away = True
    for _ in range(20):
        await world.tick(posters.settlement)
    fillers = [one for one in await world.intents() if one["reason"] == "fill_nonce_gap"]
    assert 1 <= len(fillers) <= 5
    posters.first.away = False
    await world.tick(posters.settlement, 16)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_with_every_signer_away_all_waits_and_nothing_is_lost(
    world: World, posters: Posters
) -> None:
    posters.first.away = posters.second.away = True
    ids = await posters.ready(3)
    await world.tick(posters.settlement, 4)
    status = posters.settlement.status
    assert status.paused_reason is PausedReason.SIGNER_UNAVAILABLE
    assert await world.attempts() == []
    posters.first.away = posters.second.away = False
    await world.mine(8)
    await world.tick(posters.settlement, 4)
    assert status.paused_reason is None
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_an_intent_that_a_crash_left_unsigned_goes_to_the_other_key(
    world: World, posters: Posters
) -> None:
    ids = await posters.ready(1)
    posters.rpc.then("nonce", error("down"))  # between plan and signature
    await posters.settlement.step(await world.index())
    (planned,) = await world.intents()
    assert planned["state"] == "planned"
    holder = posters.first if planned["sender"] == posters.first.address else posters.second
    holder.away = True
    await world.tick(posters.anew(), 4)
    first, second = await world.intents()
    assert (first["state"], first["outcome"]) == ("final", "not_sent")
    assert second["sender"] != first["sender"]
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)


async def test_bytes_that_nobody_takes_hold_up_their_own_key_only(
    world: World, posters: Posters
) -> None:
    async def refuses_the_first(real: Any, raw: bytes) -> Any:
        sender = await world.pool.fetchval("SELECT sender FROM node.tx_attempt WHERE raw=$1", raw)
        refused = sender == posters.first.address
        return await (error("not today")(real, raw) if refused else real(raw))

    posters.rpc.always("send_raw_transaction", refuses_the_first)
    ids = await posters.ready(5)
    await world.tick(posters.settlement, 4)
    held = await world.pool.fetch(
        "SELECT i.request_id FROM node.tx_item i JOIN node.tx_intent t ON t.id = i.intent_id"
        " WHERE i.live AND t.sender = $1",
        posters.first.address,
    )
    assert len(held) == 1
    stuck = held[0]["request_id"]
    assert await world.fulfilled_events() == {one: 1 for one in ids if one != stuck}
    assert posters.paused == [PausedReason.TRANSACTION_REFUSED, None]
    posters.rpc.always("send_raw_transaction", None)
    await world.tick(posters.settlement, 4)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert posters.paused == [None, None]


async def test_a_delivery_that_is_stuck_with_one_key_holds_up_none_by_another(
    world: World, posters: Posters
) -> None:
    async def refuses_the_first(real: Any, raw: bytes) -> Any:
        refused = await world.pool.fetchval(
            "SELECT a.sender = $2 AND i.kind <> 'post' FROM node.tx_attempt a"
            " JOIN node.tx_intent i ON i.id = a.intent_id WHERE a.raw = $1",
            raw,
            posters.first.address,
        )
        return await (error("not today")(real, raw) if refused else real(raw))

    await posters.set_balance(posters.second, ETHER)
    posters.rpc.always("send_raw_transaction", refuses_the_first)
    diary = await world.new_diary()
    for number in range(2):
        request_id = await world.ask_by(diary)
        await world.compute([request_id])
        await world.tick(posters.settlement, 5)
        answer = await world.answer_of(diary, request_id)
        assert answer == (f"answer {request_id}".encode() if number else b"")
    assert posters.paused == [PausedReason.TRANSACTION_REFUSED, None]


async def test_a_key_that_is_taken_out_is_followed_to_its_end(
    world: World, posters: Posters
) -> None:
    ids = await posters.ready(4)
    await posters.settlement.step(await world.index())
    left = world.settlement(signers=[posters.second], max_in_flight=2)
    await world.tick(left, 1)
    former = left.status.former[posters.first.address]
    assert former.in_flight == 0  # mined, and not yet confirmed
    await world.tick(left, 5)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert (former.confirmed_transactions, left.status.confirmed_transactions) == (2, 4)
    more = await posters.ready(2)
    await world.tick(left, 4)
    assert await posters.sent() == [2, 4]
    assert set(more) <= set(await world.fulfilled_events())


async def test_the_budget_is_of_all_keys_together(world: World) -> None:
    dear = Posters(world, {"max_in_flight": 4})
    await dear.ready(1)
    await dear.settlement.step(await world.index())
    (attempt,) = await world.attempts()
    one_wei = int(attempt["max_fee_wei"]) * attempt["gas_limit"]
    await world.tick(dear.settlement, 3)
    spent = await world.pool.fetchval(
        "SELECT sum(gas_used * effective_gas_price_wei) FROM node.tx_attempt"
    )
    capped = Posters(world, {"max_in_flight": 4, "cap_wei_per_hour": int(spent) + 7 * one_wei // 2})
    await capped.ready(8)
    await capped.settlement.step(await world.index())
    committed = [
        int(one["max_fee_wei"]) * one["gas_limit"]
        for one in await world.attempts()
        if one["state"] == "broadcast"
    ]
    assert 3 <= len(committed) < 8
    assert sum(committed) <= 7 * one_wei // 2
    senders = {row["sender"] for row in await world.intents()}
    assert senders == {capped.first.address, capped.second.address}
    assert capped.settlement.status.paused_reason is PausedReason.SPENDING_OVER_CAP


@pytest.mark.parametrize("slots_in_an_epoch", [4])
async def test_each_key_counts_what_a_reorganisation_opened_again_once(
    world: World, posters: Posters
) -> None:
    ids = await posters.ready(4)
    await world.tick(posters.settlement, 4)
    status = posters.settlement.status
    counted = [2, 2]
    assert [key.confirmed_transactions for key in status.keys] == counted
    await posters.settlement.step(await world.reorg(4))
    assert status.in_flight == 4
    await world.tick(posters.settlement, 4)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert [key.confirmed_transactions for key in status.keys] == counted
    assert status.items_by_outcome == {"settled": 4}
    attempts = await world.attempts()
    assert status.gas_spent_wei == sum(
        int(one["gas_used"]) * int(one["effective_gas_price_wei"]) for one in attempts
    )
    assert all(key.ended for key in status.keys)
    await world.tick(posters.settlement, 16)
    assert {intent["state"] for intent in await world.intents()} == {"final"}
    assert not any(key.ended for key in status.keys)


async def test_refunds_and_deliveries_are_made_by_one_key_at_a_time(world: World) -> None:
    posters = Posters(world, {"refund_max_claims": 2})
    diary = await world.new_diary()
    owed = [await world.ask_by(diary) for _ in range(2)]
    await world.compute(owed)
    late = await world.submit(4, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    for _ in range(14):
        await world.tick(posters.settlement)
        at_once = await world.pool.fetch(
            "SELECT kind, count(*) AS n FROM node.tx_intent WHERE kind <> 'post'"
            " AND state IN ('planned', 'signed', 'unknown', 'broadcast', 'mined') GROUP BY kind"
        )
        assert all(row["n"] == 1 for row in at_once)
    statuses = await world.statuses()
    assert {statuses[one] for one in late} == {"refunded"}
    outcomes = await world.items()
    assert {one: outcomes[one] for one in late} == {one: ["refunded"] for one in late}
    assert {one: outcomes[one] for one in owed} == {one: ["settled", "delivered"] for one in owed}


async def test_another_key_of_ours_is_no_rival(world: World, posters: Posters) -> None:
    ids = await posters.ready(6)
    await world.tick(posters.settlement, 6)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    # As after a reorganisation that left room for both: each lost what the other had settled.
    lost = "UPDATE node.tx_item SET outcome = $1"
    await world.pool.execute(lost, ALREADY_SETTLED)
    head = await world.index()
    turns = Turns(world.pool, posters.first.address, RESULTS)
    await turns.look(head)
    assert not turns.has_rivals
    await world.pool.execute("UPDATE chain.request SET settled_tx_hash = '\\x77'")
    await turns.look(head)
    assert turns.has_rivals


async def test_accounts_equal_the_chain_with_two_keys(world: World) -> None:
    posters = Posters(world, {"max_in_flight": 1})
    both = [posters.first.address, posters.second.address]
    books = await Books(world, both).open()
    await posters.ready(3, fee_wei=ETHER // 100 + GWEI)
    await world.submit(3, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    for reorg in (0, 0, 2, 0, 0, 0, 0, 0, 0):
        head = await (world.reorg(reorg) if reorg else world.mine())
        await posters.settlement.step(head)
        await books.compare()
    report = await books.compare()
    assert min(flow.gas_wei for flow in report.accounts if flow.account in both) > 0
    assert report.total.results == 3
    assert report.total.transactions == sum(await posters.sent())


def claims(leadership: Leadership) -> Claim:
    async def claim(poster: Address) -> Fence | None:
        return await leadership.claim(poster_role(31337, poster))

    return claim


async def test_two_processes_with_keys_of_their_own_share_one_database(
    world: World, posters: Posters, database: str
) -> None:
    """As settlement split over processes would be: they race, and no result is in two intents."""
    one, other = [await become_leader(database, name, role=name) for name in ("one", "other")]
    settlements = [
        world.settlement(signers=[signer], claim=claims(leadership), max_in_flight=2)
        for signer, leadership in ((posters.first, one), (posters.second, other))
    ]
    ids = await posters.ready(9)

    async def race(head: BlockRef) -> None:
        await asyncio.gather(*(settlement.step(head) for settlement in settlements))
        twice = await world.pool.fetch(
            "SELECT request_id FROM node.tx_item WHERE live GROUP BY 1 HAVING count(*) > 1"
        )
        assert twice == []

    await race(await world.index())
    for _ in range(8):
        await race(await world.mine())
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert all(outcomes == ["settled"] for outcomes in (await world.items()).values())
    sent = await posters.sent()
    assert sum(sent) == len(ids)
    assert min(sent) > 0
    # Neither took the other's transactions for those of a former key.
    assert [
        settlement.status.former[key].confirmed_transactions
        for settlement, key in zip(
            settlements, (posters.second.address, posters.first.address), strict=True
        )
    ] == [0, 0]
    await one.release()
    await other.release()


async def test_a_key_that_another_process_has_is_left_to_it(
    world: World, posters: Posters, database: str
) -> None:
    holder = await become_leader(database, "holder", role="holder")
    ours = await become_leader(database, "ours", role="ours")
    assert await claims(holder)(posters.first.address) is not None
    settlement = world.settlement(
        signers=[posters.first, posters.second], claim=claims(ours), max_in_flight=2
    )
    ids = await posters.ready(3)
    await world.tick(settlement, 3)
    assert [key.paused_reason for key in settlement.status.keys] == [PausedReason.KEY_IN_USE, None]
    assert settlement.status.paused_reason is None
    assert (await posters.sent())[0] == 0
    await holder.release()
    await world.tick(settlement, 3)
    assert [key.paused_reason for key in settlement.status.keys] == [None, None]
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    await ours.release()


async def test_a_key_that_was_taken_over_unnoticed_writes_nothing(
    world: World, posters: Posters, pool: Pool, database: str
) -> None:
    ours = await become_leader(database, "ours", role="ours")
    settlement = world.settlement(signers=[posters.first], claim=claims(ours))
    await settlement.step(await world.index())
    await posters.ready(1)
    role = poster_role(31337, posters.first.address)
    await pool.execute("UPDATE node.leader SET epoch = epoch + 1 WHERE role = $1", role)
    with pytest.raises(LostLeadership, match="poster 31337"):
        await settlement.step(await world.index())
    assert await world.intents() == []
    await ours.release()


def _lane(slots: int, free_wei: int) -> Lane:
    sight: Any = type("Seen", (), {"free_wei": free_wei})()
    launcher: Any = None
    return Lane(launcher, sight, slots, KeyStatus(Address(bytes(20))))


def test_the_next_key_is_the_idlest_that_can_pay() -> None:
    poor, idle, busy, full = _lane(9, 5), _lane(3, 20), _lane(2, 99), _lane(0, 10**18)
    lanes = Lanes([poor, idle, busy, full])
    assert lanes.slots == 14
    assert lanes.next(6) is idle
    assert lanes.next(21) is busy
    assert lanes.next(5) is poor
    assert lanes.richest() is busy
    assert lanes.next(100) is None
    noticed = [lane.key.noticed for lane in (poor, idle, busy, full)]
    assert noticed == [PausedReason.INSUFFICIENT_FUNDS] * 3 + [None]
