"""A round is the same however it goes about it: from kept facts or from none, block by block of
seats or all at once, the first requests in order or all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from scheduler import assignment, blocks, prospects
from scheduler.allowance import Budget, Limits, Probation, Quota, Taken, Use
from scheduler.experiment import Split
from scheduler.model import Moment, PendingRequest, Rules, ServiceEstimate, TenantId, WorkerView
from scheduler.plan import plan
from scheduler.planner import Changes, Planner
from scheduler.policies import POLICIES
from tests.scheduler.make import NOW_S, block, model, request, snapshot, worker, worker_id

_TENANTS = [TenantId(bytes([n]) * 20) for n in range(1, 5)]
_SPLITS = {
    "split": Split((POLICIES["value"], POLICIES["balanced"]), (9, 1), 3),
    "three": Split(
        (POLICIES["p2c"], POLICIES["edf"], POLICIES["weighted-round-robin"]), (1, 1, 1), 9
    ),
}
_POLICIES = POLICIES | _SPLITS


@contextmanager
def _sizes(block_: int, first: int, chunk: int, few: int) -> Iterator[None]:
    with (
        patch.object(blocks, "_BLOCK", block_),
        patch.object(blocks, "_AT_ONCE", 7 * block_),
        patch.object(assignment, "_FIRST", first),
        patch.object(assignment, "_CHUNK", chunk),
        patch.object(prospects, "_FEW", few),
    ):
        yield


def _worker(rng: Random, number: int) -> WorkerView:
    served = rng.sample((1, 2, 3), rng.randint(1, 2))
    slots = rng.randint(0, 3)
    return worker(
        number,
        slots=slots,
        in_flight=rng.randint(0, slots),
        memory_mb=rng.choice((1_000, 2_000, 3_000)),
        available=rng.random() < 0.8,
        owned=rng.random() < 0.4,
        stake_wei=rng.choice((0, 10**17, 10**18)),
        fees_in_hand_wei=rng.choice((0, 10**15)),
        loaded=rng.choice((None, frozenset({model(1)}))),
        service={model(one): _estimate(rng) for one in served},
    )


def _estimate(rng: Random) -> ServiceEstimate:
    """Of few values, so that many are equal."""
    return ServiceEstimate(
        rng.choice((100.0, 400.0, 4_000.0)),
        rng.choice((1.0, 5.0, 40.0)),
        rng.choice((0.0, 0.2, 0.8)),
        samples=9,
        success_lower=rng.choice((0.1, 0.5, 0.9, 0.95)),
        ewma_ms=rng.choice((0.0, 700.0)),
        load_ms=rng.choice((0.0, 3_000.0)),
        p90_factor=rng.choice((0.7, 1.0, 2.5)),
    )


def _request(rng: Random, number: int) -> PendingRequest:
    tried = frozenset(worker_id(rng.randint(1, 40)) for _ in range(rng.choice((0, 0, 0, 1, 30))))
    return request(
        number,
        tenant=rng.choice(_TENANTS),
        model=model(rng.choice((1, 1, 2, 3, 4))),
        memory_mb=rng.choice((0, 1_500, 2_500, 4_000)),
        fee_wei=rng.choice((0, 10**13, 10**15, 10**16)),
        submitted_at_s=NOW_S - rng.choice((0, 10, 100)),
        deadline_s=NOW_S + rng.choice((2, 8, 15, 30, 60, 600)),
        tokens_mean=rng.choice((0.0, 20.0, 300.0)),
        tokens_sigma=rng.choice((0.0, 0.6)),
        tried=tried,
        attempts=len(tried) % 3,
    )


def _limits(rng: Random, kind: str) -> Limits:
    if kind == "free":
        return Limits()
    quota = Quota(weight=rng.choice((1.0, 3.0)))
    if kind == "quotas":
        quota = replace(
            quota,
            tokens_per_s=rng.choice((0.0, 1.0)),
            burst_tokens=rng.choice((500.0, 5_000.0)),
            in_flight=rng.choice((0, 3)),
        )
    probation = Probation(rng.choice((0.0, 0.6)), 1, rng.choice((1_000, 10_000)))
    return Limits(quota, {_TENANTS[0]: Quota(weight=2.0)}, rng.choice((0.0, 100.0)), probation)


def _moment(rng: Random, kind: str, number: int) -> Moment:
    budgets = (Budget(3_600, 10**16, 10**12),) if number % 2 else ()
    uses = {one: Use(1, None, rng.choice((0.0, 50.0))) for one in _TENANTS[:2]}
    rules = Rules(
        1_000, max_wait_s=rng.choice((1, 60)), expected_batch=8, limits=_limits(rng, kind)
    )
    seen = snapshot(
        (),
        (),
        now_s=NOW_S + 3.0 * number,
        block=block(number=100 + number, hash=bytes([number]) * 32),
        rules=rules,
        taken=Taken() if kind == "free" else Taken(uses, budgets),
    )
    return seen.moment


def _changed(rng: Random, before: WorkerView) -> WorkerView:
    """In anything but its seats."""
    other = _worker(rng, 0)
    return replace(
        before,
        in_flight=rng.randint(0, before.slots),
        available=rng.choice((before.available, other.available)),
        owned=rng.choice((before.owned, before.owned, other.owned)),
        loaded=rng.choice((before.loaded, other.loaded)),
        service={
            one: rng.choice((estimate, _estimate(rng))) for one, estimate in before.service.items()
        },
    )


@pytest.mark.parametrize("kind", ["free", "turns", "quotas"])
@pytest.mark.parametrize("policy", sorted(_POLICIES))
def test_a_plan_is_that_of_a_fresh_start_and_of_all_at_once(policy: str, kind: str) -> None:
    """A fresh start gives all of it: workers, reasons and numbers of what is assigned, kept and
    refused. All at once gives the same assignments; which of several true reasons keeps a request
    is told by which is found out first."""
    chosen = _POLICIES[policy]
    for seed in range(2):
        rng = Random(f"{policy} {kind} {seed}")
        planner = Planner()
        requests = {n: _request(rng, n) for n in range(60)}
        pool = {n: _worker(rng, n) for n in range(1, 41)}
        planner.apply(Changes(list(requests.values()), workers=list(pool.values())))
        for number in range(5):
            moment = _moment(rng, kind, number)
            seen = planner.snapshot(moment)
            with _sizes(2, 1, 3, 2):
                kept = planner.plan(moment, chosen)
            with _sizes(1_000, 1, 3, 2):
                assert kept == plan(seen, chosen)
            decided = [*kept.assigned, *kept.kept, *kept.refused]
            assert sorted(one.key.id for one in decided) == sorted(requests)
            if kind != "quotas":  # a quota is closed by the first that is looked at
                with _sizes(1_000, 10**6, 10**6, 10**6):
                    at_once = plan(seen, chosen)
                assert (kept.assigned, kept.refused) == (at_once.assigned, at_once.refused)
            gone = [requests.pop(n).key for n in list(requests) if rng.random() < 0.2]
            came = [_request(rng, n) for n in rng.sample(range(90), 12)]
            requests |= {one.key.id: one for one in came}
            changed = {n: _changed(rng, pool[n]) for n in rng.sample(sorted(pool), 4)}
            pool |= changed
            left = rng.sample(sorted(pool), 1) if number == 2 else []
            away = [pool.pop(n).id for n in left]
            news = [view for n, view in changed.items() if n not in left]
            planner.apply(Changes(came, gone, news, away))
