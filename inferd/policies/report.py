"""What each arm of an experiment did with its requests, and how surely one is better."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from indexer.database import Connection
from indexer.types import Address
from inferd.policies.journal import Entry
from scheduler.experiment import RATIO_ALARM, Difference, difference, ratio_p_value, sample

_BPS = 10_000

# What a request cost: its part of each transaction that it was in and that was mined, whatever came
# of it. The parts of a transaction sum to what was paid for it: the first ones have a wei more
# where it does not go up. The dearest bytes of a nonce are the ones that were mined.
_SELECT = """
    WITH assigned AS (
        SELECT DISTINCT ON (d.request_id, d.commitment)
               d.request_id, d.commitment, d.arm, r.created_at
        FROM node.decision d JOIN node.round r ON r.id = d.round_id
        WHERE r.policy_id = $1 AND d.kind = 'assign' AND d.arm IS NOT NULL
        ORDER BY d.request_id, d.commitment, d.id
    ), spent AS (
        SELECT i.request_id, i.commitment,
               sum(div(a.paid_wei, among.items) + (among.before < a.paid_wei % among.items)::int)
               AS gas_wei
        FROM assigned s
        JOIN node.tx_item i ON i.request_id = s.request_id AND i.commitment = s.commitment
        JOIN node.tx_intent t ON t.id = i.intent_id AND t.kind IN ('post', 'deliver')
        CROSS JOIN LATERAL (
            SELECT gas_used * effective_gas_price_wei + data_fee_wei AS paid_wei
            FROM node.tx_attempt
            WHERE intent_id = i.intent_id AND gas_used IS NOT NULL AND state = 'mined'
        ) a
        CROSS JOIN LATERAL (
            SELECT count(*) AS items,
                   count(*) FILTER (WHERE (o.request_id, o.commitment)
                                          < (i.request_id, i.commitment)) AS before
            FROM node.tx_item o WHERE o.intent_id = i.intent_id
        ) among
        GROUP BY i.request_id, i.commitment
    )
    SELECT s.arm, q.status = 'fulfilled' AS settled, q.fee_wei, w.owner,
           q.deadline_s < (SELECT timestamp_s FROM chain.cursor) AS over,
           greatest(0, extract(epoch FROM s.created_at)::double precision - q.created_at_s)
           AS wait_s,
           coalesce(p.gas_wei, 0) AS gas_wei,
           EXISTS (SELECT FROM node.tx_attempt a WHERE a.hash = q.settled_tx_hash) AS posted_here
    FROM assigned s
    JOIN chain.request q ON q.id = s.request_id AND q.commitment = s.commitment
    LEFT JOIN chain.worker w ON w.signer = q.worker
    LEFT JOIN spent p ON p.request_id = s.request_id AND p.commitment = s.commitment
    WHERE s.created_at >= now() - $2 * interval '1 second'
"""


@dataclass(frozen=True, slots=True)
class ArmReport:
    """Figures of one arm; waits are seconds from submission to the first assignment."""

    policy: str
    share: int
    requests: int
    settled: int
    on_time: float | None
    """Of those that are settled or past their deadline; None where there are none."""
    fee_wei: int
    """Of settled requests."""
    gas_wei: int
    profit_wei: int
    wait_p50_s: float | None
    wait_p95_s: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm less the first one, each per request."""

    policy: str
    on_time: Difference
    profit_wei: Difference
    """In wei, as floats: a statistic, not an amount."""
    wait_s: Difference


@dataclass(frozen=True, slots=True)
class Report:
    entry: Entry
    since_s: int
    arms: tuple[ArmReport, ...]
    comparisons: tuple[Comparison, ...]
    ratio_p_value: float
    fallback_rounds: int
    """Rounds that went by the fallback: in them no arm had its policy."""

    @property
    def ratio_is_wrong(self) -> bool:
        """Whether requests are lost on the way to an arm, so that no figure can be trusted."""
        return self.ratio_p_value < RATIO_ALARM


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request of an arm."""

    arm: int
    settled: bool
    over: bool
    """Past its deadline."""
    fee_wei: int
    revenue_wei: int
    gas_wei: int
    wait_s: float

    @property
    def is_known(self) -> bool:
        return self.settled or self.over

    @property
    def profit_wei(self) -> int:
        return self.revenue_wei - self.gas_wei


async def count_fallbacks(connection: Connection, entry: Entry, since_s: int) -> int:
    """The rounds of the experiment within the time that went by the fallback."""
    rounds: int = await connection.fetchval(
        "SELECT count(*) FROM node.round WHERE policy_id = $1 AND fallback IS NOT NULL"
        " AND created_at >= now() - $2 * interval '1 second'",
        entry.id,
        since_s,
    )
    return rounds


async def load_outcomes(
    connection: Connection,
    entry: Entry,
    *,
    since_s: int,
    poster_bps: int,
    own_accounts: Collection[Address],
) -> list[Outcome]:
    """The requests that were first assigned within the experiment, at most `since_s` ago."""
    rows = await connection.fetch(_SELECT, entry.id, since_s)
    return [
        Outcome(
            arm=row["arm"],
            settled=row["settled"],
            over=row["over"] or False,
            fee_wei=row["fee_wei"],
            revenue_wei=_revenue_wei(row, poster_bps, own_accounts),
            gas_wei=row["gas_wei"],
            wait_s=row["wait_s"],
        )
        for row in rows
    ]


def report(
    entry: Entry, since_s: int, outcomes: Sequence[Outcome], fallback_rounds: int = 0
) -> Report:
    """The figures of each arm and their differences to the first. Pure."""
    arms = entry.choice.arms
    by_arm: list[list[Outcome]] = [[] for _ in arms]
    for outcome in outcomes:
        by_arm[outcome.arm].append(outcome)
    return Report(
        entry=entry,
        since_s=since_s,
        arms=tuple(
            _arm(arm.policy, arm.share, theirs) for arm, theirs in zip(arms, by_arm, strict=True)
        ),
        comparisons=tuple(
            _comparison(arm.policy, theirs, by_arm[0])
            for arm, theirs in zip(arms[1:], by_arm[1:], strict=True)
        ),
        ratio_p_value=ratio_p_value([len(theirs) for theirs in by_arm], entry.choice.shares),
        fallback_rounds=fallback_rounds,
    )


def _arm(policy: str, share: int, outcomes: Sequence[Outcome]) -> ArmReport:
    settled = [one for one in outcomes if one.settled]
    known = sum(one.is_known for one in outcomes)
    waits_s = [one.wait_s for one in outcomes]
    p50_s, p95_s = np.quantile(waits_s, (0.5, 0.95)).tolist() if waits_s else (None, None)
    return ArmReport(
        policy=policy,
        share=share,
        requests=len(outcomes),
        settled=len(settled),
        on_time=len(settled) / known if known else None,
        fee_wei=sum(one.fee_wei for one in settled),
        gas_wei=sum(one.gas_wei for one in outcomes),
        profit_wei=sum(one.profit_wei for one in outcomes),
        wait_p50_s=p50_s,
        wait_p95_s=p95_s,
    )


def _comparison(policy: str, one: Sequence[Outcome], first: Sequence[Outcome]) -> Comparison:
    known = [[outcome for outcome in arm if outcome.is_known] for arm in (one, first)]
    on_time = [sample(float(outcome.settled) for outcome in arm) for arm in known]
    profit = [sample(float(outcome.profit_wei) for outcome in arm) for arm in known]
    wait = [sample(outcome.wait_s for outcome in arm) for arm in (one, first)]
    return Comparison(policy, difference(*on_time), difference(*profit), difference(*wait))


def _revenue_wei(row: Any, poster_bps: int, own_accounts: Collection[Address]) -> int:
    """What a settled request earned this operator: the poster's share if it posted, the worker's
    where that is paid to one of its accounts."""
    if not row["settled"]:
        return 0
    fee_wei: int = row["fee_wei"]
    poster_wei = fee_wei * poster_bps // _BPS
    worker_wei = fee_wei - poster_wei if row["owner"] in own_accounts else 0
    return worker_wei + (poster_wei if row["posted_here"] else 0)
