"""Lies that are settled on chain under a window: which of them are disputed, and what became of the
records of those that were. Pure but for its SQL.

What is recorded of a dispute is derived from the indexed chain at each step, whoever opened it: a
reorganisation that takes a settlement, a dispute or a ruling away needs nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from indexer.database import Connection, Pool
from indexer.types import DAY_S, Address, BlockRef
from inferd.protocol.hold import Hold
from inferd.settlement.records import Item
from inferd.settlement.settings import OpenDisputes
from inferd.settlement.state import LIVE_SQL

_NEWEST = 1_000
"""Records that are looked at; what is older is over, or past every window."""

# The settled result is the accused's lie where it has its digest and the accused among its workers.
_OF_CHAIN = f"""
    SELECT d.id, d.dispute, d.dispute_tx,
           CASE WHEN h.state = 'held' THEN 'wanted'
                WHEN h.state = 'disputed' THEN 'opened'
                WHEN h.state = 'released' THEN 'unneeded'
                WHEN h.state IS NOT NULL THEN h.state
                WHEN r.status = 'pending' THEN 'wanted'
                WHEN r.status IS NOT NULL THEN 'unneeded'
                ELSE d.dispute END AS on_chain,
           CASE WHEN h.state IS NOT NULL THEN h.opened_tx_hash
                WHEN r.status IS NOT NULL THEN NULL
                ELSE d.dispute_tx END AS on_chain_tx
    FROM (SELECT * FROM node.disagreement WHERE dispute <> 'none'
          ORDER BY id DESC LIMIT {_NEWEST}) d
    LEFT JOIN chain.request r ON r.id = d.request_id AND r.commitment = d.commitment
    LEFT JOIN chain.hold h ON h.request_id = d.request_id AND h.commitment = d.commitment
         AND h.digest = d.digest AND d.accused = ANY(h.workers)
"""  # noqa: S608 - a constant
_CHANGED = f"""
    SELECT id, on_chain, on_chain_tx FROM ({_OF_CHAIN}) seen
    WHERE (dispute, dispute_tx) IS DISTINCT FROM (on_chain, on_chain_tx) ORDER BY id
"""  # noqa: S608 - constants
_WRITE = "UPDATE node.disagreement SET dispute = $2, dispute_tx = $3 WHERE id = $1"

_OPEN_TO_DISPUTE = """
    SELECT DISTINCT ON (h.request_id) h.*, d.id AS disagreement
    FROM node.disagreement d
    JOIN chain.hold h ON h.request_id = d.request_id AND h.commitment = d.commitment
         AND h.digest = d.digest AND d.accused = ANY(h.workers)
    WHERE d.dispute = 'wanted' AND d.decided AND h.state = 'held' AND h.disputable_until_s >= $1
      AND NOT h.owners && $2::bytea[]
      AND NOT EXISTS (SELECT FROM node.tx_item i JOIN node.tx_intent t ON t.id = i.intent_id
                      WHERE i.request_id = h.request_id AND i.commitment = h.commitment
                        AND (i.live OR (i.outcome = 'abandoned' AND t.kind = 'dispute')))
    ORDER BY h.request_id, d.id
"""
_STAKED = f"""
    SELECT coalesce(sum(t.value_wei), 0) FROM node.tx_intent t
    WHERE t.kind = 'dispute' AND (t.{LIVE_SQL} OR (
        t.closed_at >= now() - $1 * interval '1 second'
        AND EXISTS (SELECT FROM node.tx_attempt a
                    WHERE a.intent_id = t.id AND a.status = 1 AND a.value_wei > 0)))
"""  # noqa: S608 - a constant
_OPEN = """
    SELECT count(*) AS disputes, coalesce(sum(bond_wei), 0) AS bonds_wei FROM chain.hold
    WHERE state = 'disputed' AND disputer = ANY($1::bytea[])
"""


@dataclass(frozen=True, slots=True)
class Lie:
    """A settled result that a record says is wrong."""

    held: Hold
    disagreement: int
    """Which record: `inferd workers evidence` has it."""

    def outbox_item(self) -> Item:
        return Item(self.held.request_id, self.held.commitment, None)


@dataclass(frozen=True, slots=True)
class BondCaps:
    """What the operator stakes at most."""

    each_wei: int
    day_wei: int
    """In any 24 hours, whether it came back meanwhile or not."""
    staked_wei: int
    """Within the last 24 hours."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is disputed, in this order, and how many are not for which reason."""

    lies: tuple[Lie, ...]
    """Each of them alone is within the caps."""
    over_cap: int = 0
    over_budget: int = 0


def choose(lies: Sequence[Lie], caps: BondCaps) -> Chosen:
    """Those whose bond the caps allow, the one whose window ends first before the others."""
    affordable = [lie for lie in lies if lie.held.bond_wei <= caps.each_wei]
    left_wei = caps.day_wei - caps.staked_wei
    within = [lie for lie in affordable if lie.held.bond_wei <= left_wei]
    in_order = sorted(within, key=lambda lie: lie.held.disputable_until_s)
    return Chosen(tuple(in_order), len(lies) - len(affordable), len(affordable) - len(within))


async def load_changed(connection: Connection) -> list[tuple[int, str, bytes | None]]:
    """Records of which the chain tells something else by now: id, what it tells, and by which
    transaction the dispute was opened."""
    rows = await connection.fetch(_CHANGED)
    return [(row["id"], row["on_chain"], row["on_chain_tx"]) for row in rows]


async def write_changed(
    connection: Connection, changed: Sequence[tuple[int, str, bytes | None]]
) -> None:
    """In the caller's transaction."""
    await connection.executemany(_WRITE, changed)


async def load_lies(pool: Pool, own: Collection[Address], *, open_until_s: float) -> list[Lie]:
    """Those that can be disputed at that time of the chain, and whose loss is not our own: a
    dispute slashes every worker of the result."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(_OPEN_TO_DISPUTE, int(open_until_s), sorted(own))
    return [Lie(Hold.from_row(row), row["disagreement"]) for row in rows]


async def load_staked_wei(pool: Pool) -> int:
    """Bonds that this node's transactions staked within the last 24 hours, or still may."""
    async with pool.acquire() as connection:
        return int(await connection.fetchval(_STAKED, DAY_S))


async def load_open(pool: Pool, own: Collection[Address]) -> OpenDisputes:
    """Disputes of these accounts on which nobody has ruled yet."""
    async with pool.acquire() as connection:
        (row,) = await connection.fetch(_OPEN, sorted(own))
    return OpenDisputes(row["disputes"], int(row["bonds_wei"]))


def is_open(head: BlockRef, interval_s: float) -> float:
    """Until when a window has to be open for a transaction that is made now: two blocks more, as
    the next one may be full."""
    return head.timestamp_s + 2 * interval_s
