"""Requests and workers to measure rounds on, drawn from a fixed seed.

The laws. Models are asked for and served by Zipf's law (exponent 1). A worker serves 1 to 3 models
on 1 to 4 slots with the memory of one of six common cards; 98 % are available, 30 % the
operator's own, one model in ten is cold. Its time is base + per token, both log-normal, as is
the spread of its times. Its p90 is that law's times a factor, log-normal with sigma 0.3, so that no
two are alike, and each lease that ends moves the factor as calibration does. A tenant (1,000 of
them, Zipf) asks a model for outputs of its own typical length (log-normal, median 200 tokens, sigma
0.7), never above max_tokens (64 to 2,048). Fees are log-normal, deadlines 2 to 30 minutes away. All
workers are idle: the most that a round can have to assign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log
from random import Random

from scheduler.calibration import BOUND, LEVEL, factor, tracked
from scheduler.model import (
    Block,
    GasModel,
    ModelId,
    Moment,
    PendingRequest,
    RequestKey,
    Rules,
    ServiceEstimate,
    Snapshot,
    TenantId,
    WorkerId,
    WorkerView,
)

_NOW_S = 1_700_000_000
_CARDS_MB = (8_000, 12_000, 16_000, 24_000, 48_000, 80_000)
_MAX_TOKENS = (64, 128, 256, 512, 1_024, 2_048)
_TENANTS = 1_000


@dataclass(frozen=True, slots=True)
class Size:
    """Of one round."""

    pending: int
    workers: int
    models: int


class World:
    """Draws requests and workers; the same seed draws the same."""

    def __init__(self, size: Size, seed: int = 1) -> None:
        self._rng = Random(seed)  # noqa: S311 - not for secrets
        self._models = [ModelId(n.to_bytes(32, "big")) for n in range(1, size.models + 1)]
        self._model_weights = [1 / n for n in range(1, size.models + 1)]
        self._tenants = [TenantId(n.to_bytes(20, "big")) for n in range(_TENANTS)]
        self._tenant_weights = [1 / n for n in range(1, _TENANTS + 1)]
        self._lengths: dict[tuple[ModelId, TenantId], tuple[float, float]] = {}
        self._memory_mb = {
            model: self._rng.choice((4_000, 8_000, 8_000, 16_000, 24_000)) for model in self._models
        }
        self.snapshot = Snapshot(
            block=Block(100, bytes(32), _NOW_S, 10**9, 30_000_000),
            now_s=float(_NOW_S),
            requests=self.requests(0, size.pending),
            workers=tuple(self._worker(n) for n in range(size.workers)),
            gas=GasModel(45_000, 14_000, 5_500),
            rules=Rules(
                poster_bps=2_000,
                expected_batch=8,
                block_interval_s=2.0,
                base_fee_quantiles_ppm=tuple(1_000_000 + 20_000 * n for n in range(1, 65)),
            ),
            recent_fees_wei=tuple(self._fee_wei() for _ in range(256)),
        )

    def requests(self, first_id: int, number: int) -> tuple[PendingRequest, ...]:
        """New requests."""
        return tuple(self._request(first_id + n) for n in range(number))

    def later(self, moment: Moment, blocks: int) -> Moment:
        """The moment so many blocks further on."""
        seconds, block = 2 * blocks, moment.block
        return replace(
            moment,
            now_s=moment.now_s + seconds,
            block=replace(
                block,
                number=block.number + blocks,
                hash=(block.number + blocks).to_bytes(32, "big"),
                timestamp_s=block.timestamp_s + seconds,
                base_fee_wei=10**9 + self._rng.randrange(10**8),
            ),
        )

    def finished(self, view: WorkerView, model: ModelId) -> WorkerView:
        """The worker after a lease on the model has ended: a slot is free, its estimate is new."""
        before = view.service[model]
        was_late = self._rng.random() > LEVEL
        moved = tracked(log(before.p90_factor), predicted=1.0, observed=2.0 if was_late else 0.0)
        after = replace(
            before,
            base_ms=before.base_ms * self._rng.uniform(0.97, 1.03),
            p90_factor=factor(moved),
        )
        return replace(view, in_flight=view.in_flight - 1, service={**view.service, model: after})

    def _request(self, number: int) -> PendingRequest:
        rng = self._rng
        (model,) = rng.choices(self._models, self._model_weights)
        (tenant,) = rng.choices(self._tenants, self._tenant_weights)
        length = self._lengths.get((model, tenant))
        if length is None:
            length = 200 * exp(rng.gauss(0, 0.7)), rng.choice((0.25, 0.5, 0.75))
            self._lengths[model, tenant] = length
        max_tokens = rng.choice(_MAX_TOKENS)
        submitted_at_s = _NOW_S - rng.randrange(120)
        return PendingRequest(
            key=RequestKey(number, rng.randbytes(20)),
            tenant=tenant,
            model=model,
            fee_wei=int(10**16 * exp(rng.gauss(0, 1))),
            submitted_at_s=submitted_at_s,
            deadline_s=submitted_at_s + rng.randrange(240, 1_800),
            max_tokens=max_tokens,
            input_bytes=400,
            memory_mb=self._memory_mb[model],
            tokens_mean=min(length[0], max_tokens),
            tokens_sigma=length[1],
        )

    def _worker(self, number: int) -> WorkerView:
        rng = self._rng
        served = set(rng.choices(self._models, self._model_weights, k=rng.randint(1, 3)))
        speed = exp(rng.gauss(0, 0.5))
        service = {
            model: ServiceEstimate(
                base_ms=300 * speed * exp(rng.gauss(0, 0.2)),
                per_token_ms=15 * speed * exp(rng.gauss(0, 0.2)),
                sigma=rng.uniform(0.1, 0.6),
                samples=50,
                success_lower=rng.uniform(0.8, 1.0),
                load_ms=rng.uniform(3_000, 15_000),
                p90_factor=factor(min(max(rng.gauss(0, 0.3), -BOUND), BOUND)),
            )
            for model in sorted(served)
        }
        return WorkerView(
            id=WorkerId(rng.randbytes(20)),
            slots=rng.randint(1, 4),
            in_flight=0,
            memory_mb=rng.choice(_CARDS_MB),
            available=rng.random() < 0.98,
            service=service,
            owned=rng.random() < 0.3,
            loaded=frozenset(model for model in service if rng.random() < 0.9),
        )

    def _fee_wei(self) -> int:
        return int(10**16 * exp(self._rng.gauss(0, 1)))
