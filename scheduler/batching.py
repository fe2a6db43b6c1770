"""When results are posted, and which ones: never at a loss, never too late if it can be helped.

    post when   another block of waiting costs more than it saves (`scheduler.worth`)
    or          a deadline is nearer than guard_s and a block interval, or than two intervals
    or          the batch is full (max_results, max_gas, the block's gas limit, EIP-7825)
    or          a result must travel alone: it goes at once, by itself

and before the moment shortly before the next block (`scheduler.gathering`) only for the last three.

When gas is cheap the fixed cost is small and single results go almost at once.

Only results that pay for the gas they add count, in the sum as in the batch (`scheduler.packing`):
one that does not would press for a post each time and never leave. What a result adds depends on
its delivery, and includes the call that the operator makes of a contract afterwards. With those,
and without the workers whose results together do not pay for their group, every result added makes
a batch more profitable; what remains to be checked is the fixed part.

Decisions are made once a block, or at once where blocks are near together, and what is posted now
is mined in the next one. So a result waits only while the block after the next is within its
deadline, and one whose deadline the next block will miss is left out for good: it would be skipped
on chain, and its gas wasted.

The gas price is the base fee of the next block, which the head determines exactly, plus the tip. A
transaction that the next block does not take must not be priced out before the first deadline in
it, nor ever be mined at a loss: its fee cap is what the base fee can reach by that deadline, within
what the batch earns and what the operator allows. Of two results for one request only one is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scheduler.gas import MAX_TRANSACTION_GAS, base_fee_bound
from scheduler.model import WorkerId
from scheduler.packing import Packing
from scheduler.posting_model import PostingDecision, PostingSnapshot, PostReason, ReadyResult
from scheduler.words import count, eth
from scheduler.worth import Worth, weigh

_MOST_RISES = 60
"""Blocks after which any fee cap is reached: 1.125^60 is more than a thousand."""

_JUST_AFTER_S = 0.05


@dataclass(frozen=True, slots=True)
class _Posting:
    """The figures of one decision."""

    snapshot: PostingSnapshot
    packing: Packing
    now_s: float
    urgent_until_s: float
    """Whose deadline is before this goes now."""
    in_time: tuple[ReadyResult, ...]
    too_late: tuple[ReadyResult, ...]
    inputs: dict[str, int | float | str]

    def wait(self, reason: PostReason, sentence: str, again_at_s: float = 0.0) -> PostingDecision:
        return PostingDecision(
            reason,
            sentence,
            (),
            0,
            0,
            0,
            too_late=self.too_late,
            again_at_s=again_at_s,
            inputs=self.inputs,
        )

    def post(self, reason: PostReason, why: str, results: Sequence[ReadyResult]) -> PostingDecision:
        packing = self.packing
        groups = len({result.signers for result in results})
        cost_wei, later_wei = packing.cost_wei(results), packing.later_wei(results)
        revenue_wei = sum(result.revenue_wei for result in results)
        calls = f", and the calls of contracts {eth(later_wei)}" if later_wei else ""
        data_wei = packing.data_wei(results)
        of_what = f", {eth(data_wei)} of it for its bytes" if data_wei else " of gas"
        return PostingDecision(
            reason,
            f"{count(len(results), 'result')} of {_who(results, groups)}: {why}; the post earns "
            f"{eth(revenue_wei)} and costs {eth(cost_wei)}{of_what}{calls}.",
            tuple(results),
            packing.gas_of(results),
            cost_wei,
            revenue_wei,
            later_wei,
            self._fee_cap_wei(results, revenue_wei),
            self.too_late,
            inputs=self.inputs,
        )

    def spare_blocks(self, nearest: ReadyResult) -> int:
        """For how many blocks a result can wait before it goes whatever gas costs."""
        interval_s, spare_s = (
            self.snapshot.block_interval_s,
            nearest.deadline_s - self.urgent_until_s,
        )
        return 1 + int(spare_s / interval_s) if interval_s > 0 and spare_s >= 0 else 0

    def _fee_cap_wei(self, results: Sequence[ReadyResult], revenue_wei: int) -> int:
        rules, block = self.snapshot.rules, self.snapshot.block
        left_s = min(result.deadline_s for result in results) - block.timestamp_s
        interval_s = self.snapshot.block_interval_s
        # One rise more than there are before the last block in time: the head may be replaced.
        rises = min(int(left_s / interval_s), _MOST_RISES) if interval_s > 0 else _MOST_RISES
        reached_wei = base_fee_bound(block.base_fee_wei, rises) + rules.priority_fee_wei
        # The calls come after the post, at what gas costs by then.
        later_gas = sum(result.later_gas for result in results)
        data_wei = self.packing.data_wei(results) + sum(r.later_data_wei for r in results)
        left_wei = max(revenue_wei - data_wei, 0)
        break_even_wei = left_wei // (self.packing.gas_of(results) + later_gas)
        return min(reached_wei, break_even_wei, rules.max_fee_per_gas_wei)


def decide(snapshot: PostingSnapshot) -> PostingDecision:
    """Which results to post in the next transaction, or why to wait."""
    rules, posting = snapshot.rules, _posting(snapshot)
    price_wei, inputs = posting.packing.price_wei, posting.inputs
    if not snapshot.ready:
        return posting.wait(PostReason.NOTHING_READY, "No result is ready.")
    if price_wei > rules.max_fee_per_gas_wei:
        return posting.wait(
            PostReason.GAS_PRICE_OVER_CAP,
            f"Gas costs {price_wei} wei; the cap is {rules.max_fee_per_gas_wei} wei.",
        )

    ready = posting.packing.sort_out(posting.in_time)
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
        Packing(
            snapshot.gas,
            price_wei,
            max_gas=min(rules.max_gas, block.gas_limit, MAX_TRANSACTION_GAS),
            max_results=rules.max_results,
            data_fee=snapshot.data_fee,
        ),
        now_s,
        urgent_until_s=max(now_s + rules.guard_s, next_block_s) + interval_s,
        in_time=tuple(r for r in snapshot.ready if r.deadline_s >= next_block_s),
        too_late=tuple(too_late),
        inputs={
            "ready": len(snapshot.ready),
            "expired": expired,
            "too_late": len(too_late) - expired,
            "gas_price_wei": price_wei,
            "block_interval_s": interval_s,
        },
    )


def _decide_together(posting: _Posting, results: Sequence[ReadyResult]) -> PostingDecision:
    packing, now_s = posting.packing, posting.now_s
    if not results:
        return posting.wait(PostReason.ACCUMULATING, "No result waits for a shared transaction.")
    urgent = {r for r in results if r.deadline_s < posting.urgent_until_s}
    nearest = min(results, key=_by_deadline)
    gas = min(packing.gas_of(results), packing.max_gas)
    worth = weigh(posting.snapshot, results, gas, now_s, posting.spare_blocks(nearest))
    posting.inputs["delay_cost_wei"] = worth.delay_wei
    posting.inputs["fixed_cost_wei"] = worth.fixed_wei
    posting.inputs["next_block_cost_wei"] = worth.next_block_wei
    posting.inputs["expected_fall_wei"] = worth.fall_wei
    posting.inputs["wait_saves_wei"] = worth.wait_saves_wei
    posting.inputs["nearest_deadline_s"] = nearest.deadline_s

    if urgent:
        reason = PostReason.DEADLINE_NEAR
        left_s, urgent_s = nearest.deadline_s - now_s, posting.urgent_until_s - now_s
        why = f"a deadline is {left_s:.1f} s away, and what is nearer than {urgent_s:.1f} s goes"
    elif posting.snapshot.now_s < posting.snapshot.due_at_s and not packing.is_full(results):
        return _gather(posting, len(results), nearest)
    elif worth.is_worth_it:
        reason, why = PostReason.WORTH_IT, _why_worth_it(worth)
    elif packing.is_full(results):
        reason = PostReason.BATCH_FULL
        why = f"{len(results)} wait and no more fit into one transaction"
    else:
        return _accumulate(posting, len(results), worth)
    chosen = packing.fill(_in_order(results, urgent, packing))
    if not packing.pays(chosen):
        # Urgent results that earn little may have taken the places of those that carry the post.
        carrying = {r for r in urgent if packing.pays([r])}
        chosen = packing.fill(_in_order(results, carrying, packing))
    if not packing.pays(chosen):
        # As may those that leave much, each with a group of its own to pay for.
        chosen = packing.fill(packing.by_group(posting.in_time))
    if not packing.pays(chosen):
        return posting.wait(
            PostReason.UNPROFITABLE,
            f"{why[0].upper()}{why[1:]}; but the {count(len(results), 'result')} earn "
            f"{eth(sum(r.revenue_wei for r in results))}, less than their post's gas.",
        )
    return posting.post(reason, why, chosen)


def _who(results: Sequence[ReadyResult], groups: int) -> str:
    return count(groups, "group" if any(result.others for result in results) else "worker")


def _why_worth_it(worth: Worth) -> str:
    if worth.has_accumulated:
        return (
            f"their delay has cost {eth(worth.delay_wei)}, a transaction's fixed gas "
            f"{eth(worth.fixed_wei)}"
        )
    return (
        f"another block would cost {eth(worth.next_block_wei)}, more than a block does on average; "
        f"their delay has cost {eth(worth.delay_wei)}"
    )


def _gather(posting: _Posting, results: int, nearest: ReadyResult) -> PostingDecision:
    snapshot = posting.snapshot
    guard_ends_s = nearest.deadline_s - snapshot.block_interval_s - snapshot.rules.guard_s
    urgent_at_s = guard_ends_s + _JUST_AFTER_S
    return posting.wait(
        PostReason.GATHERING,
        f"{count(results, 'result')} wait for others that come before the next block: it is "
        f"decided {snapshot.due_at_s - snapshot.now_s:.1f} s from now.",
        min(snapshot.due_at_s, urgent_at_s),
    )


def _accumulate(posting: _Posting, results: int, worth: Worth) -> PostingDecision:
    if worth.awaits_usual:
        return posting.wait(
            PostReason.FEE_FALLING,
            f"{count(results, 'result')} wait: their gas costs {eth(worth.excess_wei)} more than "
            "it usually does, and to wait for it to come down is expected to save "
            f"{eth(worth.wait_saves_wei)} beyond the delay.",
        )
    so_far = (
        f"{count(results, 'result')} wait: their delay has cost {eth(worth.delay_wei)} of the "
        f"{eth(worth.fixed_wei)} of fixed gas that makes a post worth it"
    )
    if worth.awaits_fall:
        return posting.wait(
            PostReason.FEE_FALLING,
            f"{so_far}, and with the next block gas is expected to get {eth(worth.fall_wei)} "
            "cheaper for them.",
        )
    return posting.wait(PostReason.ACCUMULATING, f"{so_far}.")


def _by_deadline(result: ReadyResult) -> tuple[int, int, bytes, WorkerId]:
    return result.deadline_s, result.key.id, result.key.commitment, result.worker


def _in_order(
    results: Sequence[ReadyResult], first: Collection[ReadyResult], packing: Packing
) -> list[ReadyResult]:
    """Some first, nearest deadline first; then the others by what each leaves."""

    def place(result: ReadyResult) -> tuple[bool, int, int, bytes]:
        preferred = result in first
        value = result.deadline_s if preferred else -packing.surplus_wei(result)
        return not preferred, value, result.key.id, result.key.commitment

    return sorted(results, key=place)
