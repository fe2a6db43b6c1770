"""What the report adds up to is what the chain has, to the wei, whatever happened on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields

import pytest
from eth_utils.address import to_canonical_address
from eth_utils.crypto import keccak

from indexer.database import Connection
from indexer.follow import Indexer
from indexer.recheck import Recheck
from indexer.types import DAY_S, Address
from inferd.chain.disputes import rule
from inferd.node import metrics, retention
from inferd.node.account_lines import load_lines, load_lines_of
from inferd.node.account_metrics import measure
from inferd.node.account_rows import load_now_s, load_report, load_senders, load_spent
from inferd.node.accounts import Figures, Line, Period, Report
from inferd.node.retention import Retention
from inferd.protocol import calls
from inferd.protocol.hold import Hold
from inferd.settlement.engine import Settlement
from tests.indexer.test_recheck import FINAL_BLOCKS, recheck_all
from tests.settlement.held import BOND, accuse, as_arbiter, hold_states, pass_time, set_terms
from tests.settlement.scripted import ScriptedRpc
from tests.settlement.test_refused import _never_the_first
from tests.settlement.world import ETHER, GWEI, World

OWNER, REQUESTER = 0, 1
WINDOW = 16
FEE = ETHER // 100


def account(world: World, index: int) -> Address:
    return Address(to_canonical_address(world.anvil.config.account(index).address))


class Books:
    """The chain's own account of balances and credits, from one moment on."""

    def __init__(self, world: World, posters: Sequence[Address] = ()) -> None:
        self.world = world
        self.posters = tuple(posters) or (world.poster.address,)
        self.own = frozenset({account(world, OWNER), *self.posters})

    async def open(self) -> Books:
        self.balances_wei = await self.balances()
        assert {await self.world.credit(one) for one in self.own} == {0}
        return self

    async def balances(self) -> dict[Address, int]:
        return {one: await self.world.rpc.balance(one) for one in self.posters}

    async def report(self, begin_s: int = 0, end_s: int = 2**40) -> Report:
        async with self.world.pool.acquire() as connection:
            accounts = self.own | await load_senders(connection)
            return await load_report(connection, Period.around(begin_s, end_s), accounts)

    async def lines(self) -> list[Line]:
        async with self.world.pool.acquire() as connection:
            found = load_lines(connection, Period.around(0, 2**40), self.own)
            return [line async for line in found]

    async def held(self) -> dict[Address, int]:
        """What the events say that is neither paid nor ruled on."""
        held_wei: dict[Address, int] = {}
        async with self.world.pool.acquire() as connection:
            for row in await connection.fetch(
                "SELECT * FROM chain.hold WHERE closed_block IS NULL"
            ):
                for account in (row["poster"], *row["owners"]):
                    if account in self.own:
                        part = Hold.from_row(row).due_to([account])
                        held_wei[account] = held_wei.get(account, 0) + part
        return held_wei

    async def compare(self) -> Report:
        """Asserts that the report is the chain's account, and so are its lines."""
        report = await self.report()
        total = report.total
        left_wei = await self.balances()
        spent_wei = {one: wei - left_wei[one] for one, wei in self.balances_wei.items()}
        assert total.gas_wei + total.bonds_wei == sum(spent_wei.values())
        flows = {flow.account: flow for flow in report.accounts}
        for own in self.own:
            flow = flows[own]
            fees_wei = flow.poster_fees_wei + flow.worker_fees_wei
            credit_wei = fees_wei + flow.released_wei + flow.other_credits_wei
            credit_wei -= flow.withdrawn_wei
            assert credit_wei == await self.world.credit(own)
        paid_wei = {one: flows[one].gas_wei + flows[one].bonds_wei for one in self.posters}
        assert paid_wei == spent_wei
        assert sum(flow.released_wei for flow in flows.values()) == total.released_wei
        assert report.held_wei == await self.held()
        assert sum(flow.poster_fees_wei for flow in flows.values()) == total.poster_fees_wei
        assert sum(flow.worker_fees_wei for flow in flows.values()) == total.worker_fees_wei
        lines = await self.lines()
        assert sum(line.poster_fee_wei for line in lines) == total.poster_fees_wei
        assert sum(line.worker_fee_wei for line in lines) == total.worker_fees_wei
        assert sum(line.gas_wei for line in lines) == total.gas_wei
        assert sum(line.released_wei for line in lines) == total.released_wei
        assert sum(line.bond_wei for line in lines) == total.bonds_wei
        assert sum(line.profit_wei for line in lines) == total.profit_wei
        return report


async def several_groups(world: World) -> None:
    ids = await world.submit(5, fee_wei=FEE + GWEI)
    await world.compute(ids[:3], 0)
    await world.compute(ids[3:], 1)
    await world.tick(world.settlement(), 4)


async def a_revert(world: World) -> None:
    await world.compute(await world.submit(3))
    settlement = world.settlement()
    await settlement.step(await world.index())
    results = "0x" + world.contracts.results.hex()
    code = await world.rpc.request("eth_getCode", [results, "latest"])
    await world.rpc.request("anvil_setCode", [results, "0x5f5ffd"])
    await world.mine()
    await world.rpc.request("anvil_setCode", [results, code])
    # Its items go on alone.
    await world.tick(settlement, 8)
    assert settlement.status.failed_transactions == 1


async def refunds(world: World, settlement: Settlement) -> None:
    await world.submit(3, lifetime_s=5)
    await world.rpc.request("evm_increaseTime", [10])
    await world.tick(settlement, 4)


async def callbacks(world: World, settlement: Settlement) -> None:
    diary = await world.new_diary()
    ids = [await world.ask_by(diary) for _ in range(2)]
    await world.compute(ids)
    await world.tick(settlement, 8)


async def a_spike(world: World) -> None:
    await world.compute(await world.submit(2, fee_wei=ETHER))
    settlement = world.settlement()
    await settlement.step(await world.index())
    for _ in range(4):
        await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(20 * GWEI)])
        await world.tick(settlement)
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(GWEI)])
    await world.tick(settlement, 3)


async def given_up(world: World) -> None:
    """An endpoint never takes the bytes: a transaction without effect takes the nonce."""
    await world.compute(await world.submit(1))
    rpc = ScriptedRpc(world.rpc)
    rpc.always("send_raw_transaction", _never_the_first([]))
    settlement = world.settlement(rpc, max_refused_blocks=2)
    await world.tick(settlement, 8)


async def a_stranger_is_first(world: World) -> None:
    """Its post is mined in the block before ours."""
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    await world.post_by_a_stranger(request_id)


async def a_lost_race(world: World) -> None:
    (request_id,) = await world.submit(1)
    await world.compute([request_id])
    settlement = world.settlement()
    await settlement.step(await world.index())
    (raw,) = [a["raw"] for a in await world.attempts() if a["state"] == "broadcast"]
    await world.rpc.request("anvil_dropTransaction", ["0x" + _hash(raw).hex()])
    await world.post_by_a_stranger(request_id)
    await world.rpc.send_raw_transaction(raw)
    await world.tick(settlement, 4)


def _hash(raw: bytes) -> bytes:
    return keccak(raw)


async def a_reorganisation(world: World) -> None:
    await world.compute(await world.submit(2))
    settlement = world.settlement()
    await world.tick(settlement, 4)
    await settlement.step(await world.reorg(4))
    # The requests are gone with their blocks, and the nonce of their post is a gap.
    await world.tick(settlement, 8)


async def gifts_and_withdrawals(world: World) -> None:
    await world.automine(True)
    gift = calls.credit(account(world, OWNER))
    await world.requester.send(world.contracts.requests, gift, value_wei=12_345)
    await world.withdraw_first(OWNER)
    await world.automine(False)
    await world.mine()


async def held_back(world: World) -> None:
    """Under a window: one is released, one found wrong, one found right, one lapses."""
    await set_terms(world)
    ids = await world.submit(4, fee_wei=FEE + GWEI, lifetime_s=30 * DAY_S)
    await world.compute(ids)
    settlement = world.settlement(
        disputes=True, dispute_max_bond_wei=BOND, dispute_max_bonds_wei_per_day=9 * BOND
    )
    await world.tick(settlement, 3)
    for request_id in ids[1:]:
        await accuse(world, request_id)
    await world.tick(settlement, 9)
    assert set((await hold_states(world)).values()) == {"held", "disputed"}
    await as_arbiter(world, rule, ids[1], upheld=True)
    await as_arbiter(world, rule, ids[2], upheld=False)
    await pass_time(world, 3 * DAY_S + 1)
    await world.tick(settlement, 6)
    assert list((await hold_states(world)).values()) == [
        "released",
        "upheld",
        "rejected",
        "lapsed",
    ]
    await set_terms(world, 0)


async def small_window(world: World) -> None:
    world.indexer = Indexer(
        world.rpc,
        world.pool,
        world.contracts,
        genesis_hash=world.genesis_hash,
        window_blocks=WINDOW,
    )
    await world.indexer.prepare()


async def all_of_it(world: World) -> Books:
    await small_window(world)
    books = await Books(world).open()
    settlement = world.settlement()
    await several_groups(world)
    await a_revert(world)
    await refunds(world, settlement)
    await callbacks(world, settlement)
    await a_spike(world)
    await gifts_and_withdrawals(world)
    await given_up(world)
    await a_stranger_is_first(world)
    await a_lost_race(world)
    await a_reorganisation(world)
    await several_groups(world)
    await world.tick(world.settlement(), 3)
    await held_back(world)
    return books


async def test_everything_that_can_happen__adds_up_to_the_wei(world: World) -> None:
    books = await all_of_it(world)
    total = (await books.compare()).total
    done = await world.pool.fetchval("SELECT count(*) FROM node.tx_item WHERE outcome = 'settled'")
    assert total.results == done
    assert (total.refunds, total.callbacks) == (3, 2)
    assert total.wasted_transactions >= 3  # reverted, given up, lost
    assert 0 < total.wasted_gas_wei < total.gas_wei
    assert total.transactions == await world.posted()
    assert min(total.post_gas_wei, total.delivery_gas_wei, total.refund_gas_wei) > 0
    states = {row["state"] for row in await world.attempts()}
    assert "replaced" in states
    outcomes = {outcome for each in (await world.items()).values() for outcome in each}
    assert {"settled", "refunded", "delivered", "reverted"} <= outcomes
    lines = await books.lines()
    assert {line.kind for line in lines} == {
        *("post", "refund", "deliver", "foreign"),
        *("release", "close", "dispute"),
    }
    assert (total.releases, total.disputes) == (2, 3)
    assert total.bonds_wei == 3 * BOND


async def test_at_every_moment__also_while_transactions_are_under_way(world: World) -> None:
    books = await Books(world).open()
    settlement = world.settlement()
    await world.compute(await world.submit(3))
    for depth in (0, 0, 0, 2, 0, 1, 0, 0, 3, 0, 0, 0):
        head = await (world.reorg(depth) if depth else world.mine())
        if depth:
            await books.compare()  # what is mined no more costs nothing, seen or not
        await settlement.step(head)
        await books.compare()


async def test_one_request__its_lines_in_all_its_transactions(world: World) -> None:
    diary = await world.new_diary()
    request_id = await world.ask_by(diary)
    other = await world.ask_by(diary)
    await world.compute([request_id, other])
    await world.tick(world.settlement(), 8)
    own = frozenset({account(world, OWNER), world.poster.address})
    async with world.pool.acquire() as connection:
        lines = await load_lines_of(connection, request_id, own)
        every = [line async for line in load_lines(connection, Period.around(0, 2**40), own)]
    assert [(line.kind, line.outcome) for line in lines] == [
        ("post", "settled"),
        ("deliver", "delivered"),
    ]
    assert lines == [line for line in every if line.request_id == request_id]
    assert sum(line.poster_fee_wei + line.worker_fee_wei for line in lines) == FEE
    assert lines[0].poster_fee_wei == FEE // 5


async def no_fence(connection: Connection) -> None:
    pass


async def forget_all(world: World) -> None:
    """As the periodic job does when all of it is old and final."""
    await world.rpc.request("evm_increaseTime", [91 * 86_400])
    await world.mine(FINAL_BLOCKS + WINDOW)
    await world.pool.execute("UPDATE node.tx_intent SET closed_at = closed_at - interval '91 days'")
    await recheck_all(Recheck(world.rpc, world.pool, world.contracts))
    await Retention(world.pool, no_fence, settled_days=90).run()


async def test_forgotten__no_sum_changes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_NONCES_KEPT", 0)
    books = await all_of_it(world)
    before = await books.report()
    await forget_all(world)
    left = await world.pool.fetchval("SELECT count(*) FROM chain.request WHERE status <> 'pending'")
    assert left == 0
    assert await world.intents() == []
    after = await books.report()
    assert astuple(after.total) == astuple(before.total)
    assert (after.days, after.accounts) == (before.days, before.accounts)
    # By the hour too: what is outside stays outside.
    async with world.pool.acquire() as connection:
        hours = await connection.fetch("SELECT DISTINCT hour_s FROM node.gas_ledger ORDER BY 1")
    begin, end = hours[0]["hour_s"], hours[-1]["hour_s"] + 3_600
    assert astuple((await books.report(begin, end)).total) == astuple(before.total)
    assert (await books.report(end, end + 3_600)).total == Figures()
    # What goes on is added to it.
    await several_groups(world)
    report = await books.report()
    *days, newest = report.days
    assert tuple(days) == before.days
    assert newest.figures.results == 2  # the other worker was slashed, and its stake is too small


async def test_forgotten_twice__in_one_hour__is_added_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_NONCES_KEPT", 0)
    monkeypatch.setattr(retention, "_AT_ONCE", 1)  # a transaction for each
    await small_window(world)
    books = await Books(world).open()
    await several_groups(world)
    await a_revert(world)
    await several_groups(world)
    before = await books.compare()
    await forget_all(world)
    rows = await world.pool.fetch("SELECT * FROM node.gas_ledger")
    assert await world.intents() == []
    assert sum(row["transactions"] for row in rows) == before.total.transactions
    after = await books.report()
    for one in fields(Figures):
        assert getattr(after.total, one.name) == getattr(before.total, one.name), one.name


async def test_spent__of_late(world: World) -> None:
    books = await Books(world).open()
    await several_groups(world)
    async with world.pool.acquire() as connection:
        now_s = await load_now_s(connection)
        assert now_s is not None
        spent_wei, first_s = await load_spent(connection, now_s - 86_400, world.poster.address)
        assert spent_wei == (await books.report()).total.gas_wei > 0
        assert first_s is not None
        assert now_s - 60 < first_s <= now_s
        assert await load_spent(connection, now_s + 1, world.poster.address) == (0, None)


async def test_the_gauges__are_of_the_last_day(world: World) -> None:
    books = await Books(world).open()
    await several_groups(world)
    await a_revert(world)
    async with world.pool.acquire() as connection:
        await measure(connection, books.own)
    total = (await books.report()).total
    assert metrics.DAY_FEES.labels("poster")._value.get() == total.poster_fees_wei > 0
    assert metrics.DAY_FEES.labels("worker")._value.get() == total.worker_fees_wei > 0
    assert metrics.DAY_GAS.labels("post")._value.get() == total.post_gas_wei > 0
    assert metrics.DAY_GAS.labels("refund")._value.get() == 0
    assert metrics.DAY_WASTED_GAS._value.get() == total.wasted_gas_wei > 0
    assert metrics.DAY_PROFIT._value.get() == float(total.profit_wei)
    await world.rpc.request("evm_increaseTime", [2 * 86_400])
    await world.mine()
    async with world.pool.acquire() as connection:
        await measure(connection, books.own)
    assert metrics.DAY_PROFIT._value.get() == metrics.DAY_GAS.labels("post")._value.get() == 0


async def test_mined_in_a_block_whose_header_is_gone__dated_by_a_log(world: World) -> None:
    await several_groups(world)
    (exact,) = [row["mined_at_s"] for row in await world.attempts()]
    header = await world.rpc.header((await world.attempts())[0]["mined_block"])
    assert header is not None
    assert exact == header.timestamp_s
    anew = "UPDATE node.tx_attempt SET mined_block = mined_block"
    await world.pool.execute("DELETE FROM chain.block")
    await world.pool.execute(anew)
    assert [row["mined_at_s"] for row in await world.attempts()] == [exact]
    # Of a block without any log of ours: by the nearest one below it.
    await world.pool.execute("UPDATE node.tx_attempt SET mined_block_hash = '\\x00'")
    await world.pool.execute("DELETE FROM chain.log WHERE block_number = $1", header.number)
    await world.pool.execute("UPDATE chain.log SET timestamp_s = timestamp_s - 60")
    await world.pool.execute(anew)
    (near,) = [row["mined_at_s"] for row in await world.attempts()]
    assert exact - 3600 < near <= exact - 60
    await world.pool.execute("DELETE FROM chain.log")
    await world.pool.execute(anew)
    (newest,) = [row["mined_at_s"] for row in await world.attempts()]
    assert newest == await world.pool.fetchval("SELECT timestamp_s FROM chain.cursor")
