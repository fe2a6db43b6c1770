"""Which requests take part in a round, and why the others do not.

The checks run from "never, whatever happens" to "not at this gas price": unsupported, bad input,
expired, model unknown, memory, attempts, deadline, gas. The first that fails is recorded.

Deadlines are chain time. The clock of a round is the later of `now_s` and the block's timestamp:
a wall clock that lags behind the chain must not make a deadline look further away than it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import NamedTuple

from scheduler.model import Decision, PendingRequest, Reason, Rules, Snapshot
from scheduler.pool import Facts, Pool
from scheduler.words import count, eth, short

_PPM = 1_000_000
_BPS = 10_000


class Admitted(NamedTuple):
    """A request that may be assigned in this round, with what admission found out about it."""

    request: PendingRequest
    wait_s: float
    """Time since it was submitted."""
    budget_ms: int
    """How long its computation may take: until the deadline, less the time for inclusion."""
    slack_s: float
    """What is left of the budget after the best worker's p90; never negative."""
    revenue_wei: int
    """What it earns this operator on the workers it may go to."""
    gas_need_wei: int
    """What it has to earn: its share of a post's gas and its delivery's, times the margin."""
    owned_only: bool
    """Whether only the operator's own workers make it worth its gas."""
    facts: Facts
    """What the workers that serve it can do."""


def clock_s(snapshot: Snapshot) -> float:
    """The time all of a round's decisions are made at, seconds since the epoch."""
    return max(snapshot.now_s, float(snapshot.block.timestamp_s))


def gas_need_wei(snapshot: Snapshot, batchable: bool) -> int:
    """What a result must earn to be worth posting, in wei.

    Its share of a post of `expected_batch` results at today's base fee + tip, times `gas_margin`.
    Such a post names at most as many workers as there are, so at most that many groups.
    A result that must travel alone bears a whole post.
    """
    rules = snapshot.rules
    results = max(1, rules.expected_batch) if batchable else 1
    groups = max(1, min(results, len(snapshot.workers)))
    price_wei = snapshot.block.base_fee_wei + rules.priority_fee_wei
    post_wei = snapshot.gas.of(groups, results) * price_wei
    margin_ppm = round(rules.gas_margin * _PPM)
    return -(-post_wei * margin_ppm // (results * _PPM))


def poster_share_wei(fee_wei: int, rules: Rules) -> int:
    """The part of a fee that the poster earns whoever computed the result, in wei."""
    return fee_wei * rules.poster_bps // _BPS


class Admission:
    """The checks of one round; call `check` with each request."""

    def __init__(self, snapshot: Snapshot, pool: Pool) -> None:
        self._pool = pool
        self._block = snapshot.block
        self._rules = snapshot.rules
        self._now_s = clock_s(snapshot)
        self._price_wei = snapshot.block.base_fee_wei + snapshot.rules.priority_fee_wei
        self._need_batched_wei = gas_need_wei(snapshot, batchable=True)
        self._need_alone_wei = gas_need_wei(snapshot, batchable=False)

    def check(self, request: PendingRequest) -> Admitted | Decision:
        """The request as admitted, or the decision that keeps or refuses it."""
        if request.unsupported is not None:
            return _turned_away(
                request,
                Reason.UNSUPPORTED,
                f"This node cannot serve it: {request.unsupported}.",
                {"unsupported": request.unsupported},
            )
        if request.bad_input is not None:
            return _turned_away(
                request,
                Reason.BAD_INPUT,
                f"A worker could not read its input: {request.bad_input}.",
                {"bad_input": request.bad_input},
            )
        if self._block.timestamp_s > request.deadline_s:
            return self._expired(request)
        model = self._pool.models.get(request.model)
        if model is None:
            return _turned_away(
                request,
                Reason.MODEL_UNKNOWN,
                f"No registered worker serves model {short(request.model)} "
                f"({count(len(self._pool.workers), 'worker')} registered).",
                {"workers": len(self._pool.workers), "model": "0x" + request.model.hex()},
            )
        facts = model.facts(request.memory_mb)
        if facts is None:
            return _turned_away(
                request,
                Reason.MEMORY_TOO_LARGE,
                f"It asks for {request.memory_mb} MB of memory; the largest worker that serves "
                f"its model has {model.largest_memory_mb} MB.",
                {"memory_mb": request.memory_mb, "largest_memory_mb": model.largest_memory_mb},
            )
        if request.attempts >= self._rules.max_attempts:
            return _turned_away(
                request,
                Reason.ATTEMPTS_EXHAUSTED,
                f"It was tried {count(request.attempts, 'time')} without a result; "
                f"the limit is {self._rules.max_attempts}.",
                {"attempts": request.attempts, "max_attempts": self._rules.max_attempts},
            )
        budget_ms = floor((request.deadline_s - self._rules.inclusion_s - self._now_s) * 1000)
        if facts.registered_p90_ms > budget_ms:
            return self._infeasible(request, budget_ms, facts.registered_p90_ms)

        need_wei = self._need_wei(request)
        revenue_wei = poster_share_wei(request.fee_wei, self._rules)
        best_p90_ms = facts.registered_p90_ms
        owned_only = False
        owned_in_time = facts.registered_owned_p90_ms <= budget_ms
        if revenue_wei < need_wei:
            if not (owned_in_time and request.fee_wei >= need_wei):
                return self._too_dear(request, need_wei, revenue_wei, owned_in_time)
            owned_only = True
            revenue_wei = request.fee_wei
            best_p90_ms = facts.registered_owned_p90_ms
        return Admitted(
            request,
            max(0.0, self._now_s - request.submitted_at_s),
            budget_ms,
            (budget_ms - best_p90_ms) / 1000,
            revenue_wei,
            need_wei,
            owned_only,
            facts,
        )

    def _need_wei(self, request: PendingRequest) -> int:
        """Its share of a post, and its delivery, times the margin."""
        post_wei = self._need_batched_wei if request.batchable else self._need_alone_wei
        margin_ppm = round(self._rules.gas_margin * _PPM)
        return post_wei - (-request.delivery_gas * self._price_wei * margin_ppm // _PPM)

    def _expired(self, request: PendingRequest) -> Decision:
        late_s = self._block.timestamp_s - request.deadline_s
        return _turned_away(
            request,
            Reason.EXPIRED,
            f"Its deadline {request.deadline_s} passed {late_s} s before block "
            f"{self._block.number} ({self._block.timestamp_s}).",
            {
                "deadline_s": request.deadline_s,
                "block_number": self._block.number,
                "block_timestamp_s": self._block.timestamp_s,
            },
        )

    def _infeasible(self, request: PendingRequest, budget_ms: int, p90_ms: float) -> Decision:
        left_s = request.deadline_s - self._now_s
        return _turned_away(
            request,
            Reason.DEADLINE_INFEASIBLE,
            f"Its deadline is {left_s:.1f} s away; the fastest worker that serves it needs "
            f"{p90_ms / 1000:.1f} s (p90), and the post {self._rules.inclusion_s:.1f} s more.",
            {
                "deadline_s": request.deadline_s,
                "now_s": self._now_s,
                "budget_ms": budget_ms,
                "best_p90_ms": p90_ms,
                "inclusion_s": self._rules.inclusion_s,
            },
        )

    def _too_dear(
        self, request: PendingRequest, need_wei: int, poster_wei: int, owned: bool
    ) -> Decision:
        earned_wei = request.fee_wei if owned else poster_wei
        return Decision(
            request.key,
            Reason.GAS_TOO_DEAR_NOW,
            f"Serving it earns {eth(earned_wei)} of its fee of {eth(request.fee_wei)}; at "
            f"{self._price_wei} wei per gas it would have to earn {eth(need_wei)} "
            f"({self._rules.gas_margin:g} times its share of the post's gas"
            f"{' and its delivery' if request.delivery_gas else ''}).",
            inputs={
                "fee_wei": request.fee_wei,
                "revenue_wei": earned_wei,
                "gas_need_wei": need_wei,
                "gas_price_wei": self._price_wei,
                "gas_margin": self._rules.gas_margin,
                "delivery_gas": request.delivery_gas,
            },
        )


def _turned_away(
    request: PendingRequest,
    reason: Reason,
    sentence: str,
    inputs: Mapping[str, int | float | str],
) -> Decision:
    return Decision(request.key, reason, sentence, inputs=inputs)
