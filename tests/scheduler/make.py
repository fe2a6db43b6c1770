"""Small snapshots for the scheduler's tests, and the hypothesis strategies of them."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import Any

import numpy as np
from hypothesis import strategies as st

from scheduler.kinds import (
    PER_SIGMA,
    Z90,
    kind_codes,
    mean_ms,
    p90_factors,
    p90_ms,
    sigma_class_of,
    tokens_of,
)
from scheduler.model import (
    Block,
    DeliveryKind,
    GasModel,
    ModelId,
    PendingRequest,
    RequestKey,
    Rules,
    ServiceEstimate,
    Snapshot,
    TenantId,
    WorkerId,
    WorkerView,
)
from scheduler.posting_model import PostingRules, PostingSnapshot, ReadyResult

NOW_S = 1_700_000_000
GWEI = 10**9
ETH = 10**18
GAS = GasModel(fixed_gas=50_000, per_group_gas=10_000, per_result_gas=5_000)


def block(**changes: Any) -> Block:
    values = {
        "number": 100,
        "hash": b"\x11" * 32,
        "timestamp_s": NOW_S,
        "base_fee_wei": GWEI,
        "gas_limit": 30_000_000,
    }
    return Block(**(values | changes))


def model(number: int = 1) -> ModelId:
    return ModelId(number.to_bytes(32, "big"))


def key(number: int) -> RequestKey:
    return RequestKey(number, number.to_bytes(20, "little"))


def worker_id(number: int) -> WorkerId:
    return WorkerId(number.to_bytes(20, "big"))


def request(number: int = 1, **changes: Any) -> PendingRequest:
    values = {
        "key": key(number),
        "tenant": TenantId(b"\x22" * 20),
        "model": model(),
        "fee_wei": ETH // 100,
        "submitted_at_s": NOW_S,
        "deadline_s": NOW_S + 600,
        "max_tokens": 64,
        "input_bytes": 32,
        "memory_mb": 1_000,
    }
    return PendingRequest(**(values | changes))


def service(mean_ms: float = 1_000.0, p90_ms: float = 2_000.0, **changes: Any) -> ServiceEstimate:
    """With the spread that leads to the p90, which is 1 to 2.27 times the mean."""
    sigma = Z90 - sqrt(max(0.0, Z90**2 - 2 * log(p90_ms / mean_ms)))
    return ServiceEstimate(mean_ms, **{"sigma": sigma, "samples": 10} | changes)


def p90_of(estimate: ServiceEstimate, one: PendingRequest | None = None) -> float:
    """What the scheduler reckons with, for a model that is loaded."""
    one = one or request()
    kind = kind_codes(np.array([0]), np.array([one.tokens_mean]), np.array([one.tokens_sigma]))
    mean = mean_ms(np.array([estimate.base_ms]), np.array([estimate.per_token_ms]), tokens_of(kind))
    sigma = int(sigma_class_of(kind)[0]) / PER_SIGMA
    factors = p90_factors(np.array([estimate.sigma]), sigma) * estimate.p90_factor
    return float(p90_ms(mean, factors)[0])


def worker(number: int = 1, **changes: Any) -> WorkerView:
    values = {
        "id": worker_id(number),
        "slots": 1,
        "in_flight": 0,
        "memory_mb": 8_000,
        "available": True,
        "service": {model(): service()},
        "owned": True,
    }
    return WorkerView(**(values | changes))


def snapshot(
    requests: tuple[PendingRequest, ...], workers: tuple[WorkerView, ...], **changes: Any
) -> Snapshot:
    values = {
        "block": block(),
        "now_s": float(NOW_S),
        "gas": GAS,
        "rules": Rules(poster_bps=1_000, expected_batch=8),
    }
    return Snapshot(requests=requests, workers=workers, **(values | changes))


def ready(number: int = 1, **changes: Any) -> ReadyResult:
    values = {
        "key": key(number),
        "worker": worker_id(1),
        "fee_wei": ETH // 100,
        "revenue_wei": ETH // 1_000,
        "deadline_s": NOW_S + 600,
        "computed_at_s": float(NOW_S),
        "batchable": True,
    }
    return ReadyResult(**(values | changes))


def posting_rules(**changes: Any) -> PostingRules:
    values = {
        "delay_price_wei_per_s": 10**12,
        "max_results": 100,
        "max_gas": 10_000_000,
        "guard_s": 20.0,
        "priority_fee_wei": 0,
        "max_fee_per_gas_wei": 500 * GWEI,
    }
    return PostingRules(**(values | changes))


def posting(results: tuple[ReadyResult, ...], **changes: Any) -> PostingSnapshot:
    values = {
        "block": block(),
        "now_s": float(NOW_S),
        "gas": GAS,
        "rules": posting_rules(),
        "block_interval_s": 0.0,
    }
    return PostingSnapshot(ready=results, **(values | changes))


# Made once: to make a strategy takes as long as to draw from it.
_UP_TO_3 = st.integers(0, 3)
_BOOLEANS = st.booleans()
_SERVED = st.sets(st.integers(1, 3), max_size=3)
_MEMORY = st.integers(1, 12)
_BASE_MS = st.sampled_from([0.0, 700.0, 1_000.0]) | st.floats(0.0, 5_000.0)
_PER_TOKEN_MS = st.sampled_from([0.0, 0.0, 10.0, 40.0])
_SIGMA = st.sampled_from([0.0, 0.5, 3.0])
_SUCCESS_LOWER = st.sampled_from([1.0, 0.5, 0.0])
_LOAD_MS = st.sampled_from([0.0, 2_000.0])
_EWMA_MS = st.sampled_from([0.0, 500.0])
_P90_FACTOR = st.sampled_from([1.0, 0.5, 2.0])
_LOADED = st.none() | st.sets(st.sampled_from([model(1), model(2)])).map(frozenset)
_TRIED = st.sets(st.integers(1, 4), max_size=2)
_NUMBER = st.integers(1, 4)
_FEE_WEI = st.sampled_from([0, 10**13, 10**14, 10**15, 10**16, 10**17, 2**255])
_AGE_S = st.integers(-5, 300)
_LEFT_S = st.integers(-5, 60)
_WANTED_MEMORY = st.integers(0, 14)
_UNSUPPORTED = st.sampled_from([None, None, None, "quorum of 2"])
_BAD_INPUT = st.sampled_from([None, None, None, "not UTF-8"])
_INPUT_AWAITED = st.sampled_from([False, False, False, True])
_INPUT_LOST = st.sampled_from([None, None, None, "HTTP 404"])
_DELIVERY = st.sampled_from(DeliveryKind)
_LATER_GAS = st.sampled_from([0, 0, 40_000])
_TENANT = st.integers(0, 2)
_TOKENS_MEAN = st.sampled_from([0.0, 0.5, 30.0, 64.0])
_TOKENS_SIGMA = st.sampled_from([0.0, 0.3, 2.0])
_MOST_REQUESTS, _MOST_WORKERS = st.integers(0, 25), st.integers(0, 6)
_SKEW_S = st.floats(-5.0, 5.0)
_RECENT_FEES_WEI = st.lists(st.integers(0, 10**17), max_size=5)
_LEFT_OF_EACH_S = st.lists(st.integers(-5, 100), min_size=1, max_size=25)
_REVENUE = st.integers(0, 40)
_COMPUTED_AGO_S = st.floats(-1.0, 200.0)
_BATCHABLE = st.sampled_from([True, True, True, False])
_POSTED_LATER_GAS = st.sampled_from([0, 0, 3_000, 40_000])
_BASE_FEE_WEI = st.sampled_from([0, GWEI // 10, GWEI, 3 * GWEI])
_DELAY_PRICE = st.sampled_from([0, 10**10, 10**12])
_MAX_RESULTS = st.integers(1, 20)
_MAX_GAS = st.sampled_from([50_000, 80_000, 120_000, 10_000_000])
_MAX_FEE_GWEI = st.sampled_from([2, 10])
_INTERVAL_S = st.sampled_from([0.0, 0.5, 2.0, 12.0, 30.0])
_RECENT_BASE_FEES_WEI = st.lists(st.integers(GWEI // 2, 2 * GWEI), max_size=32)
_GAS_MODEL = st.sampled_from([GAS, replace(GAS, per_stored_gas=4_000, per_callback_gas=5_000)])


@st.composite
def workers(draw: st.DrawFn, number: int) -> WorkerView:
    served = draw(_SERVED)
    return worker(
        number,
        slots=draw(_UP_TO_3),
        in_flight=draw(_UP_TO_3),
        memory_mb=draw(_MEMORY) * 1_000,
        available=draw(_BOOLEANS),
        owned=draw(_BOOLEANS),
        service={
            model(one): ServiceEstimate(
                draw(_BASE_MS),
                draw(_PER_TOKEN_MS),
                draw(_SIGMA),
                10,
                draw(_SUCCESS_LOWER),
                draw(_LOAD_MS),
                draw(_EWMA_MS),
                draw(_P90_FACTOR),
            )
            for one in served
        },
        loaded=draw(_LOADED),
    )


@st.composite
def pending(draw: st.DrawFn, number: int) -> PendingRequest:
    tried = draw(_TRIED)
    return request(
        number,
        model=model(draw(_NUMBER)),
        fee_wei=draw(_FEE_WEI),
        submitted_at_s=NOW_S - draw(_AGE_S),
        deadline_s=NOW_S + draw(_LEFT_S),
        memory_mb=draw(_WANTED_MEMORY) * 1_000,
        attempts=draw(_UP_TO_3),
        tried=frozenset(worker_id(one) for one in tried),
        unsupported=draw(_UNSUPPORTED),
        bad_input=draw(_BAD_INPUT),
        input_awaited=draw(_INPUT_AWAITED),
        input_lost=draw(_INPUT_LOST),
        batchable=draw(_BOOLEANS),
        delivery=draw(_DELIVERY),
        later_gas=draw(_LATER_GAS),
        tenant=TenantId(bytes([draw(_TENANT)]) * 20),
        tokens_mean=draw(_TOKENS_MEAN),
        tokens_sigma=draw(_TOKENS_SIGMA),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    return snapshot(
        tuple(draw(pending(number)) for number in range(draw(_MOST_REQUESTS))),
        tuple(draw(workers(number)) for number in range(1, draw(_MOST_WORKERS) + 1)),
        now_s=NOW_S + draw(_SKEW_S),
        recent_fees_wei=tuple(draw(_RECENT_FEES_WEI)),
    )


@st.composite
def postings(draw: st.DrawFn) -> PostingSnapshot:
    left_s = draw(_LEFT_OF_EACH_S)  # of each request
    delivery = [draw(_DELIVERY) for _ in left_s]
    results = tuple(
        ready(
            number := draw(st.integers(1, len(left_s))),
            worker=worker_id(draw(_NUMBER)),
            revenue_wei=draw(_REVENUE) * 2_000 * GWEI,
            deadline_s=NOW_S + left_s[number - 1],
            computed_at_s=NOW_S - draw(_COMPUTED_AGO_S),
            batchable=draw(_BATCHABLE),
            delivery=delivery[number - 1],
            later_gas=draw(_POSTED_LATER_GAS),
        )
        for _ in range(draw(_MOST_REQUESTS))
    )
    return posting(
        tuple({(r.key, r.worker): r for r in results}.values()),
        block=block(base_fee_wei=draw(_BASE_FEE_WEI)),
        rules=posting_rules(
            delay_price_wei_per_s=draw(_DELAY_PRICE),
            max_results=draw(_MAX_RESULTS),
            max_gas=draw(_MAX_GAS),
            max_fee_per_gas_wei=draw(_MAX_FEE_GWEI) * GWEI,
        ),
        block_interval_s=draw(_INTERVAL_S),
        recent_base_fees_wei=tuple(draw(_RECENT_BASE_FEES_WEI)),
        gas=draw(_GAS_MODEL),
    )
