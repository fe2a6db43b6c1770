"""When results are posted, and which ones: never at a loss, never too late if it can be helped.

The rule is that of the TCP acknowledgement problem: wait until the delay that has accumulated
costs as much as the fixed part of a transaction, which is at most twice the cost of the best choice
in hindsight at a constant gas price (Dooly, Goldman, Scott, "TCP dynamic acknowledgment delay",
STOC 1998). When gas is cheap the fixed cost is small and single results go almost at once.

    post when   sum over ready results of age_s * delay_price  >=  fixed_gas * gas price
    or          a deadline is nearer than guard_s and a block interval, or than two intervals
    or          the batch is full (max_results, max_gas)
    or          a result must travel alone: it goes at once, by itself

Only results that pay for the gas they add count, in the sum as in the batch: one that does not
would press for a post each time and never leave. With those, and without the workers whose results
together do not pay for their group, every result added makes a batch more profitable; what remains
to be checked is the fixed part.

Decisions are made once a block, and what is posted now is mined in the next one. So a result waits
only while the block after the next is within its deadline, and one whose deadline the next block
will miss is left out for good: it would be skipped on chain, and its gas wasted.

The gas price is the base fee of the block plus the tip; of two results for one request only one is
taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.model import (
    PostingDecision,
    PostingSnapshot,
    PostReason,
    ReadyResult,
    RequestKey,
    WorkerId,
)
from scheduler.words import count, eth


class _Sorted(NamedTuple):
    """The ready results: those that may be posted, and how many may not and why."""

    together: list[ReadyResult]
    """May share a transaction and pay for what they add to it."""
    alone: list[ReadyResult]
    """Must travel alone and pay for a transaction of their own."""
    duplicates: int
    unprofitable: int


@dataclass(frozen=True, slots=True)
class _Posting:
    """The figures of one decision."""

    snapshot: PostingSnapshot
    price_wei: int
    now_s: float
    urgent_until_s: float
    """Whose deadline is before this goes now."""
    in_time: tuple[ReadyResult, ...]
    too_late: tuple[ReadyResult, ...]
    max_gas: int
    inputs: dict[str, int | float | str]

    def cost_wei(self, groups: int, results: int) -> int:
        return self.snapshot.gas.of(groups, results) * self.price_wei

    def wait(self, reason: PostReason, sentence: str) -> PostingDecision:
        return PostingDecision(reason, sentence, (), 0, 0, 0, self.too_late, self.inputs)

    def post(self, reason: PostReason, why: str, results: Sequence[ReadyResult]) -> PostingDecision:
        groups = len({result.worker for result in results})
        cost_wei = self.cost_wei(groups, len(results))
        revenue_wei = sum(result.revenue_wei for result in results)
        return PostingDecision(
            reason,
            f"{count(len(results), 'result')} of {count(groups, 'worker')}: {why}; the post earns "
            f"{eth(revenue_wei)} and costs {eth(cost_wei)} of gas.",
            tuple(results),
            self.snapshot.gas.of(groups, len(results)),
            cost_wei,
            revenue_wei,
            self.too_late,
            self.inputs,
        )


def decide(snapshot: PostingSnapshot) -> PostingDecision:
    """Which results to post in the next transaction, or why to wait."""
    rules, posting = snapshot.rules, _posting(snapshot)
    price_wei, inputs = posting.price_wei, posting.inputs
    if not snapshot.ready:
        return posting.wait(PostReason.NOTHING_READY, "No result is ready.")
    if price_wei > rules.max_fee_per_gas_wei:
        return posting.wait(
            PostReason.GAS_PRICE_OVER_CAP,
            f"Gas costs {price_wei} wei; the cap is {rules.max_fee_per_gas_wei} wei.",
        )

    ready = _sort_out(posting)
    inputs["duplicates"] = ready.duplicates
    inputs["unprofitable"] = ready.unprofitable
    if not ready.together and not ready.alone:
        return posting.wait(
            PostReason.UNPROFITABLE if ready.unprofitable else PostReason.TOO_LATE,
            f"None of the {count(len(snapshot.ready), 'ready result')} can be posted: "
            f"{ready.unprofitable} earn less than the gas they add, {inputs['expired']} are past "
            f"their deadline, {inputs['too_late']} would be past it in the next block, "
            f"{ready.duplicates} are there twice.",
        )

    next_alone = min(ready.alone, key=_by_deadline, default=None)
    together = _decide_together(posting, ready.together)
    if next_alone is None:
        return together
    if together.reason is PostReason.DEADLINE_NEAR:
        nearest = min(together.results, key=_by_deadline)
        if nearest.deadline_s < next_alone.deadline_s:
            return together
    return posting.post(PostReason.NOT_BATCHABLE, "it must travel alone", [next_alone])


def _posting(snapshot: PostingSnapshot) -> _Posting:
    rules, block, interval_s = snapshot.rules, snapshot.block, snapshot.block_interval_s
    now_s = max(snapshot.now_s, float(block.timestamp_s))
    next_block_s = max(block.timestamp_s + interval_s, now_s)
    too_late = sorted((r for r in snapshot.ready if r.deadline_s < next_block_s), key=_by_deadline)
    expired = sum(r.deadline_s < now_s for r in too_late)
    price_wei = block.base_fee_wei + rules.priority_fee_wei
    return _Posting(
        snapshot,
        price_wei,
        now_s,
        urgent_until_s=max(now_s + rules.guard_s, next_block_s) + interval_s,
        in_time=tuple(r for r in snapshot.ready if r.deadline_s >= next_block_s),
        too_late=tuple(too_late),
        max_gas=min(rules.max_gas, block.gas_limit),
        inputs={
            "ready": len(snapshot.ready),
            "expired": expired,
            "too_late": len(too_late) - expired,
            "gas_price_wei": price_wei,
            "block_interval_s": interval_s,
        },
    )


def _sort_out(posting: _Posting) -> _Sorted:
    snapshot, alive = posting.snapshot, posting.in_time
    # The best of several results for one request: what earns most, then what came first.
    best: dict[RequestKey, ReadyResult] = {}
    for result in sorted(alive, key=lambda r: (-r.revenue_wei, r.computed_at_s, r.worker)):
        best.setdefault(result.key, result)
    alone_cost_wei = posting.cost_wei(1, 1)
    fits_alone = snapshot.gas.of(1, 1) <= posting.max_gas
    alone = [
        r
        for r in best.values()
        if not r.batchable and r.revenue_wei >= alone_cost_wei and fits_alone
    ]
    added_wei = snapshot.gas.per_result_gas * posting.price_wei
    paying = [r for r in best.values() if r.batchable and r.revenue_wei >= added_wei]
    losing = _losing_workers(posting, paying)
    together = [r for r in paying if r.worker not in losing]
    return _Sorted(
        together,
        alone,
        duplicates=len(alive) - len(best),
        unprofitable=len(best) - len(together) - len(alone),
    )


def _losing_workers(posting: _Posting, results: Iterable[ReadyResult]) -> set[WorkerId]:
    """The workers whose results do not even pay for their own group in a batch."""
    added_wei = posting.snapshot.gas.per_result_gas * posting.price_wei
    group_wei = posting.snapshot.gas.per_group_gas * posting.price_wei
    surplus_wei: dict[WorkerId, int] = {}
    for result in results:
        earned_wei = result.revenue_wei - added_wei
        surplus_wei[result.worker] = surplus_wei.get(result.worker, 0) + earned_wei
    return {worker for worker, earned_wei in surplus_wei.items() if earned_wei < group_wei}


def _decide_together(posting: _Posting, results: Sequence[ReadyResult]) -> PostingDecision:
    snapshot, rules, now_s = posting.snapshot, posting.snapshot.rules, posting.now_s
    if not results:
        return posting.wait(PostReason.ACCUMULATING, "No result waits for a shared transaction.")
    fixed_wei = snapshot.gas.fixed_gas * posting.price_wei
    ages_ms = sum(max(0, int((now_s - r.computed_at_s) * 1000)) for r in results)
    delay_wei = ages_ms * rules.delay_price_wei_per_s // 1000
    nearest = min(results, key=_by_deadline)
    posting.inputs["delay_cost_wei"] = delay_wei
    posting.inputs["fixed_cost_wei"] = fixed_wei
    posting.inputs["nearest_deadline_s"] = nearest.deadline_s

    urgent = {r for r in results if r.deadline_s < posting.urgent_until_s}
    chosen = _fill(posting, sorted(results, key=lambda r: _first_then_richest(r, urgent)))
    if urgent:
        reason = PostReason.DEADLINE_NEAR
        left_s, urgent_s = nearest.deadline_s - now_s, posting.urgent_until_s - now_s
        why = f"a deadline is {left_s:.1f} s away, and what is nearer than {urgent_s:.1f} s goes"
    elif delay_wei >= fixed_wei:
        reason = PostReason.WORTH_IT
        why = f"their delay has cost {eth(delay_wei)}, a transaction's fixed gas {eth(fixed_wei)}"
    elif _is_full(posting, results):
        reason = PostReason.BATCH_FULL
        why = f"{len(results)} wait and no more fit into one transaction"
    else:
        return posting.wait(
            PostReason.ACCUMULATING,
            f"{count(len(results), 'result')} wait: their delay has cost {eth(delay_wei)} of the "
            f"{eth(fixed_wei)} of fixed gas that makes a post worth it.",
        )
    if not _pays(posting, chosen):
        # Urgent results that earn little may have taken the places of those that carry the post.
        alone_wei = posting.cost_wei(1, 1)
        carrying = {r for r in urgent if r.revenue_wei >= alone_wei}
        chosen = _fill(posting, sorted(results, key=lambda r: _first_then_richest(r, carrying)))
    if not _pays(posting, chosen):
        return posting.wait(
            PostReason.UNPROFITABLE,
            f"{why[0].upper()}{why[1:]}; but the {count(len(results), 'result')} earn "
            f"{eth(sum(r.revenue_wei for r in results))}, less than their post's gas.",
        )
    return posting.post(reason, why, chosen)


def _fill(posting: _Posting, ordered: Sequence[ReadyResult]) -> list[ReadyResult]:
    """The longest batch in that order within the caps whose every group pays for itself."""
    gas, max_results = posting.snapshot.gas, posting.snapshot.rules.max_results
    candidates = list(ordered)
    while True:
        chosen: list[ReadyResult] = []
        workers: set[WorkerId] = set()
        for result in candidates:
            if len(chosen) >= max_results:
                break
            groups = len(workers | {result.worker})
            if gas.of(groups, len(chosen) + 1) <= posting.max_gas:
                chosen.append(result)
                workers.add(result.worker)
        # The caps can cut a group down to less than it costs; without it there is room for others.
        losing = _losing_workers(posting, chosen)
        if not losing:
            return chosen
        candidates = [r for r in candidates if r.worker not in losing]


def _is_full(posting: _Posting, results: Sequence[ReadyResult]) -> bool:
    """Whether one more result would not fit beside these, in count or in gas."""
    groups = len({result.worker for result in results})
    one_more = posting.snapshot.gas.of(groups, len(results) + 1)
    return len(results) >= posting.snapshot.rules.max_results or one_more > posting.max_gas


def _pays(posting: _Posting, results: Sequence[ReadyResult]) -> bool:
    groups = len({result.worker for result in results})
    revenue_wei = sum(result.revenue_wei for result in results)
    return bool(results) and revenue_wei >= posting.cost_wei(groups, len(results))


def _by_deadline(result: ReadyResult) -> tuple[int, int, bytes, WorkerId]:
    return result.deadline_s, result.key.id, result.key.commitment, result.worker


def _first_then_richest(
    result: ReadyResult, first: Collection[ReadyResult]
) -> tuple[bool, int, int, bytes]:
    """Some first, nearest deadline first; then the others by revenue."""
    preferred = result in first
    value = result.deadline_s if preferred else -result.revenue_wei
    return not preferred, value, result.key.id, result.key.commitment
