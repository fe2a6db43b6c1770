"""When the turn of our work comes, where rivals do the same work.

Nothing of it is stored: after a restart, what is ready waits anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from indexer.database import Pool
from indexer.types import Address, BlockRef
from inferd.settlement.batch import StoredResult
from inferd.settlement.receipts import (
    ALREADY_SETTLED,
    CALLBACK_FAILED_OUTCOME,
    DELIVERED,
    NOT_HELD,
    NOT_OWED,
    REFUNDED_OUTCOME,
    RELEASED,
    SETTLED,
)
from inferd.settlement.records import Item
from inferd.settlement.rivalry import MEMORY_BLOCKS, Outcomes, Standing, standing
from inferd.settlement.settings import SettlementSettings
from scheduler.words import count

_log = structlog.get_logger("settlement")
_NEWEST = 128
_TOGETHER = 256
"""Requests whose refunds wait together: their bits share a word of the contract's storage."""


@dataclass(frozen=True, slots=True)
class Race:
    """What others can be first with."""

    kind: str
    """Of intent."""
    won: tuple[str, ...]
    lost: str
    """Outcomes of its items."""
    is_rare: bool = False
    """There can be hundreds of blocks between two of them: what became of them is remembered by
    their number instead."""
    is_shared: bool = False
    """One alone takes several times the gas: those of neighbouring requests that are ready at once
    draw one wait."""
    settles: bool = False
    """The request names the transaction that was first, whatever became of its intent."""

    def lot(self, item: Item, since: int) -> bytes:
        """What its wait is drawn by."""
        if not self.is_shared:
            return item.commitment
        return (item.request_id // _TOGETHER).to_bytes(8, "big") + since.to_bytes(8, "big")


RESULTS = Race("post", (SETTLED,), ALREADY_SETTLED, settles=True)
REFUNDS = Race("refund", (REFUNDED_OUTCOME,), ALREADY_SETTLED, is_rare=True, is_shared=True)
RELEASES = Race("release", (RELEASED,), NOT_HELD, is_rare=True, is_shared=True)
DELIVERIES = Race("deliver", (DELIVERED, CALLBACK_FAILED_OUTCOME), NOT_OWED)

_NOT_BY_ANOTHER_OF_OURS = """
                   AND NOT EXISTS (
                   SELECT FROM chain.request r
                   JOIN node.tx_attempt own ON own.hash = r.settled_tx_hash
                   WHERE r.id = i.request_id AND r.commitment = i.commitment)"""


def load_outcomes(race: Race) -> str:
    """SQL, of all keys of this operator: what another of ours was first with is not lost."""
    newest = f"kind = '{race.kind}' AND" if race.is_rare else ""
    not_ours = _NOT_BY_ANOTHER_OF_OURS if race.settles else ""
    return f"""
        SELECT a.mined_block, count(*) FILTER (WHERE i.outcome = ANY($2::text[])) AS won,
               count(*) FILTER (WHERE i.outcome = $3 AND NOT EXISTS (
                   SELECT FROM node.tx_item o
                   WHERE o.request_id = i.request_id AND o.commitment = i.commitment
                     AND o.outcome = ANY($2::text[])){not_ours}) AS lost
        FROM (
            SELECT id, kind FROM node.tx_intent WHERE {newest} closed_at IS NOT NULL
            ORDER BY closed_at DESC, id DESC LIMIT $4
        ) newest
        JOIN node.tx_attempt a ON a.intent_id = newest.id AND a.state = 'mined'
        JOIN node.tx_item i ON i.intent_id = newest.id
        WHERE newest.kind = '{race.kind}' AND a.mined_block > $1
        GROUP BY a.mined_block ORDER BY a.mined_block DESC
    """  # noqa: S608 - constants


class Turns:
    def __init__(self, pool: Pool, poster: Address, race: Race) -> None:
        """`poster` stands for all keys of the operator: whichever sends, the wait is one."""
        self._pool = pool
        self._poster = poster
        self._race = race
        self._standing = Standing()
        self._ready_since: dict[Item, int] = {}

    @property
    def has_rivals(self) -> bool:
        """Whether others were first of late."""
        return self._standing.window_blocks > 0

    async def look(self, head: BlockRef) -> None:
        """Learns what became of the newest transactions."""
        is_rare = self._race.is_rare
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                load_outcomes(self._race),
                -1 if is_rare else head.number - MEMORY_BLOCKS,
                list(self._race.won),
                self._race.lost,
                _NEWEST,
            )
        before = self.has_rivals
        found = [Outcomes(*row) for row in rows]
        if is_rare:
            found = [replace(one, block=head.number - age) for age, one in enumerate(found)]
        self._standing = standing(found, head.number)
        if self.has_rivals != before:
            _log.info(
                "rivals_seen" if self.has_rivals else "rivals_gone",
                kind=self._race.kind,
                chance_bps=self._standing.chance_bps,
                window_blocks=self._standing.window_blocks,
            )

    def see(self, items: Iterable[Item], head: BlockRef) -> None:
        """These are ready now, and no others; each waits from when it was seen first."""
        since = self._ready_since
        self._ready_since = {item: since.get(item, head.number) for item in items}

    def is_up(self, item: Item, head: BlockRef) -> bool:
        """Whether one that was seen has waited for its turn."""
        since = self._ready_since[item]
        wait = self._standing.wait_blocks(self._race.lot(item, since), self._poster)
        return head.number >= since + wait

    def told(self, waiting: int, noun: str = "result") -> str:
        """Why so many are left alone, in one sentence; empty where there are none."""
        if not waiting:
            return ""
        lost = 100 - self._standing.chance_bps // 100
        return (
            f" {count(waiting, noun)} waiting for a turn, as others were first with"
            f" {lost} % of those sent of late."
        )


class ResultTurns(Turns):
    """Of results, which have deadlines and earn something."""

    def __init__(self, pool: Pool, poster: Address, settings: SettlementSettings) -> None:
        super().__init__(pool, poster, RESULTS)
        self._guard_s = settings.guard_s

    def come(
        self, found: Sequence[StoredResult], head: BlockRef, now_s: float, interval_s: float
    ) -> list[StoredResult]:
        """Those whose turn has come, each with what it earns on average instead of at best.

        Where a deadline is so near that the result would be urgent in the next block, it has.
        """
        items = [result.outbox_item() for result in found]
        self.see(items, head)
        if not self.has_rivals:
            return list(found)
        now_s = max(now_s, float(head.timestamp_s))
        urgent_until_s = max(now_s + self._guard_s, now_s + interval_s) + 2 * interval_s
        return [
            self._at_odds(result)
            for result, item in zip(found, items, strict=True)
            if result.ready.deadline_s < urgent_until_s or self.is_up(item, head)
        ]

    def _at_odds(self, result: StoredResult) -> StoredResult:
        expected_wei = self._standing.expected_wei(result.ready.revenue_wei)
        return replace(result, ready=replace(result.ready, revenue_wei=expected_wei))
