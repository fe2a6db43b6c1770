"""The event loop: blocks, leases and rounds in virtual time.

What happens when:

- A block mines the posts that were sent since the one before, at its own base fee; brings the
  requests that were submitted since; then a round and a posting decision follow at once.
- A lease that ends leads to a round and a posting decision too, but no two rounds are nearer than
  `ROUND_GAP_MS`, as a daemon's round takes time itself.
- Posting that can wait is decided shortly before the next block (`scheduler.gathering`).
- A lease that expires frees its slot: its worker is told to stop.
- After its n-th failure a request rests 2^(n-1) s, or a quarter of its time left if that is less.
- A policy that raises, or gives what is no order, is replaced for that round by `least-requests`.
- A refusal is final. A worker in an outage is not available; leases on it go on when it is over.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from math import ceil
from typing import NamedTuple

from scheduler.batching import decide
from scheduler.decision import Plan
from scheduler.gas import FORECAST_BLOCKS
from scheduler.gathering import Gathering, gather
from scheduler.model import (
    Block,
    ModelId,
    Moment,
    PendingRequest,
    PostingSnapshot,
    PostReason,
    ReadyResult,
    Reason,
    RequestKey,
    WorkerId,
    WorkerView,
)
from scheduler.planner import Changes, Planner
from scheduler.policies import POLICIES, Policy
from scheduler.simulation.beliefs import Beliefs
from scheduler.simulation.outcome import End, Outcome, PostEnd, RequestEnd
from scheduler.simulation.scenario import GAS_LIMIT, World
from scheduler.simulation.workers import BOGUS_SHARE, SEGMENT_MS, Conduct, SimWorker
from scheduler.simulation.workload import START_S, SimRequest

ROUND_GAP_MS = 100
MAX_POSTS_IN_FLIGHT = 4
FALLBACK = POLICIES["least-requests"]
_BPS = 10_000
_RECENT_FEES = 256


class _Kind(IntEnum):
    """Events at the same time happen in this order."""

    BLOCK = 0
    LEASE_END = 1
    RESTED = 2
    ROUND = 3
    POSTING = 4


class _Event(NamedTuple):
    at_ms: int
    kind: _Kind
    number: int
    """The order in which they were planned: no two events are equal."""
    subject: RequestKey | None


@dataclass(slots=True)
class _Progress:
    """A request on its way."""

    request: SimRequest
    tried: set[WorkerId] = field(default_factory=set)
    failed: int = 0
    worker: SimWorker | None = None
    leased_at_ms: int | None = None
    first_leased_at_ms: int | None = None
    computed_at_ms: int | None = None
    valid: bool = False
    """Whether the running lease will end in a result."""


class Simulation:
    """One policy in one world; call `run` once."""

    def __init__(self, world: World, policy: Policy, beliefs: Beliefs) -> None:
        self._world = world
        self._policy, self._beliefs = policy, beliefs
        self._planner = Planner()
        self._workers = {worker.id: worker for worker in world.workers}
        self._events: list[_Event] = []
        self._planned = 0
        self._now_ms = 0
        self._block = 0
        self._last_round_ms = -ROUND_GAP_MS
        self._round_planned = False
        self._arriving: dict[int, list[SimRequest]] = defaultdict(list)
        for request in world.requests:
            self._arriving[request.seen_at_ms // world.block_ms].append(request)
        self._progress: dict[RequestKey, _Progress] = {}
        self._added: list[PendingRequest] = []
        self._removed: list[RequestKey] = []
        """What has changed since the last round."""
        self._views: dict[WorkerId, WorkerView] = {}
        """As the planner knows them."""
        self._ready: dict[RequestKey, ReadyResult] = {}
        self._gathering: Gathering | None = None
        self._posting_at_ms = -1
        """For when the newest posting decision was planned."""
        self._in_flight: list[tuple[ReadyResult, ...]] = []
        self._used: dict[WorkerId, int] = defaultdict(int)
        self._loaded: dict[WorkerId, ModelId] = {}
        self._recent_fees_wei: list[int] = []
        self._ends: dict[RequestKey, RequestEnd] = {}
        self._posts: list[PostEnd] = []
        self._rounds = self._dispatches = self._negative_slack = self._fallbacks = 0

    def run(self) -> Outcome:
        """What becomes of every request."""
        world = self._world
        for number in range(len(world.base_fees_wei)):
            self._at(number * world.block_ms, _Kind.BLOCK)
        while self._events and len(self._ends) < len(world.requests):
            event = heappop(self._events)
            self._now_ms = event.at_ms
            if event.kind is _Kind.BLOCK:
                self._new_block()
            elif event.kind is _Kind.LEASE_END and event.subject is not None:
                self._lease_end(self._progress[event.subject])
            elif event.kind is _Kind.RESTED and event.subject is not None:
                self._rested(self._progress[event.subject])
            elif event.kind is _Kind.POSTING:
                self._post()
            else:
                self._round_planned = False
                self._round_due()
        return Outcome(
            self._policy.name,
            tuple(self._ends[request.key] for request in world.requests),
            tuple(self._posts),
            self._rounds,
            self._dispatches,
            self._negative_slack,
            self._fallbacks,
        )

    def _at(self, at_ms: int, kind: _Kind, subject: RequestKey | None = None) -> None:
        self._planned += 1
        heappush(self._events, _Event(at_ms, kind, self._planned, subject))

    def _new_block(self) -> None:
        self._block = self._now_ms // self._world.block_ms
        for results in self._in_flight:
            self._mine(results)
        self._in_flight = []
        for request in self._arriving.pop(self._block, ()):
            self._progress[request.key] = _Progress(request)
            self._recent_fees_wei = [*self._recent_fees_wei[1 - _RECENT_FEES :], request.fee_wei]
            self._wait(self._progress[request.key])
        self._decide()

    def _wait(self, progress: _Progress) -> None:
        """The request is pending (again)."""
        request = progress.request
        self._added.append(
            PendingRequest(
                key=request.key,
                tenant=request.tenant,
                model=request.model,
                fee_wei=request.fee_wei,
                submitted_at_s=START_S + request.seen_at_ms // 1000,
                deadline_s=request.deadline_s,
                max_tokens=request.max_tokens,
                input_bytes=4 * request.context_tokens,
                memory_mb=0,
                attempts=progress.failed,
                tried=frozenset(progress.tried),
                tokens_mean=request.tokens_mean,
                tokens_sigma=request.tokens_sigma,
            )
        )

    def _decide(self) -> None:
        """A round and the posting decision."""
        self._last_round_ms = self._now_ms
        if self._added or self._planner.pending:
            self._rounds += 1
            self._planner.apply(
                Changes(added=self._added, removed=self._removed, workers=self._changed_views())
            )
            self._added, self._removed = [], []
            self._follow(self._plan())
        self._post()

    def _plan(self) -> Plan:
        """The round's plan; by the fallback's order where the policy fails."""
        moment = self._moment()
        try:
            return self._planner.plan(moment, self._policy)
        except Exception:  # a policy is foreign code and may raise anything
            self._fallbacks += 1
            return self._planner.plan(moment, FALLBACK)

    @property
    def _now_s(self) -> float:
        return START_S + self._now_ms / 1000

    def _head(self) -> Block:
        """The newest block, with the base fee of the next: EIP-1559 tells it from this one."""
        world, number = self._world, self._block
        last = len(world.base_fees_wei) - 1
        return Block(
            number=number,
            hash=number.to_bytes(32, "big"),
            timestamp_s=world.block_timestamp_s(number),
            base_fee_wei=world.base_fees_wei[min(number + 1, last)],
            gas_limit=GAS_LIMIT,
        )

    def _recent_base_fees_wei(self) -> tuple[int, ...]:
        first, last = max(self._block + 1 - FORECAST_BLOCKS, 0), self._block + 1
        return tuple(self._world.base_fees_wei[first:last])

    def _moment(self) -> Moment:
        world = self._world
        return Moment(
            block=self._head(),
            now_s=self._now_s,
            gas=world.gas,
            rules=world.rules,
            recent_fees_wei=tuple(self._recent_fees_wei),
        )

    def _changed_views(self) -> list[WorkerView]:
        """The workers of which anything is different from the last round."""
        changed = []
        for worker in self._world.workers:
            if worker.joins_at_ms > self._now_ms:
                continue
            view = self._view(worker)
            if self._views.get(worker.id) != view:
                self._views[worker.id] = view
                changed.append(view)
        return changed

    def _view(self, worker: SimWorker) -> WorkerView:
        return WorkerView(
            id=worker.id,
            slots=worker.slots,
            in_flight=self._used[worker.id],
            memory_mb=worker.memory_mb,
            available=worker.speed(self._now_ms // SEGMENT_MS) > 0.0,
            service={model: self._beliefs.estimate(worker, model) for model in worker.service},
            owned=worker.owned,
            loaded=self._loaded_models(worker),
        )

    def _loaded_models(self, worker: SimWorker) -> frozenset[ModelId] | None:
        if worker.load_ms == 0.0:
            return None
        loaded = self._loaded.get(worker.id)
        return frozenset() if loaded is None else frozenset({loaded})

    def _follow(self, plan: Plan) -> None:
        rows = plan.assigned
        columns = (rows.column(name) for name in ("worker", "lease_ms", "p90_ms"))
        for pending, worker, lease_ms, p90_ms in zip(rows.requests, *columns, strict=True):
            self._dispatch(pending.key, worker, lease_ms, p90_ms)
        for pending, reason in zip(
            plan.refused.requests, plan.refused.column("reason"), strict=True
        ):
            self._removed.append(pending.key)
            end = End.EXPIRED if reason is Reason.EXPIRED else End.REFUSED
            self._end(pending.key, end, reason)

    def _dispatch(self, key: RequestKey, worker_id: WorkerId, lease_ms: int, p90_ms: float) -> None:
        self._dispatches += 1
        progress = self._progress[key]
        request, worker = progress.request, self._workers[worker_id]
        self._removed.append(key)
        if self._used[worker.id] >= worker.slots:
            raise ValueError(f"the plan takes more slots of worker {worker.id.hex()} than it has")
        self._used[worker.id] += 1
        left_s = request.deadline_s - self._world.rules.inclusion_s - self._now_s
        if p90_ms > left_s * 1000 + 1e-3:
            self._negative_slack += 1

        work_ms = worker.service[request.model].work_ms(request.generated_tokens, request.factor)
        if worker.load_ms and self._loaded.get(worker.id) != request.model:
            work_ms += worker.load_ms
        self._loaded[worker.id] = request.model
        fails = fails_on(request, worker)
        if fails and worker.conduct is Conduct.BOGUS:
            work_ms *= BOGUS_SHARE
        lease_end_ms = self._now_ms + lease_ms
        done_ms = worker.end_ms(self._now_ms, work_ms)
        if fails and worker.conduct is Conduct.SILENT:
            done_ms = lease_end_ms
        progress.worker = worker
        progress.leased_at_ms = self._now_ms
        if progress.first_leased_at_ms is None:
            progress.first_leased_at_ms = self._now_ms
        progress.valid = not fails and done_ms <= lease_end_ms
        self._at(min(done_ms, lease_end_ms), _Kind.LEASE_END, request.key)

    def _lease_end(self, progress: _Progress) -> None:
        request, worker = progress.request, progress.worker
        if worker is None or progress.leased_at_ms is None:
            raise ValueError(f"request {request.key.id} has no lease to end")
        self._used[worker.id] -= 1
        run_ms = self._now_ms - progress.leased_at_ms
        self._beliefs.ended(worker, request, run_ms, valid=progress.valid)
        if progress.valid:
            progress.computed_at_ms = self._now_ms
            self._ready[request.key] = self._result(request, worker)
        else:
            progress.failed += 1
            progress.tried.add(worker.id)
            left_ms = max(0, (request.deadline_s - START_S) * 1000 - self._now_ms)
            rest_ms = min(1000 * 2 ** (progress.failed - 1), left_ms // 4)
            self._at(self._now_ms + rest_ms, _Kind.RESTED, request.key)
        self._plan_round()

    def _rested(self, progress: _Progress) -> None:
        self._wait(progress)
        self._plan_round()

    def _round_due(self) -> None:
        """A block may have had a round since this one was planned: then it waits once more."""
        if self._now_ms < self._last_round_ms + ROUND_GAP_MS:
            self._plan_round()
        else:
            self._decide()

    def _plan_round(self) -> None:
        if not self._round_planned:
            self._round_planned = True
            self._at(max(self._now_ms, self._last_round_ms + ROUND_GAP_MS), _Kind.ROUND)

    def _result(self, request: SimRequest, worker: SimWorker) -> ReadyResult:
        return ReadyResult(
            key=request.key,
            worker=worker.id,
            fee_wei=request.fee_wei,
            revenue_wei=self._revenue_wei(request, worker),
            deadline_s=request.deadline_s,
            computed_at_s=self._now_s,
            batchable=True,
        )

    def _revenue_wei(self, request: SimRequest, worker: SimWorker) -> int:
        share_wei = request.fee_wei * self._world.rules.poster_bps // _BPS
        return request.fee_wei if worker.owned else share_wei

    def _post(self) -> None:
        while self._ready and len(self._in_flight) < MAX_POSTS_IN_FLIGHT:
            interval_s = self._world.block_ms / 1000
            gathering = gather(
                self._gathering,
                self._head(),
                now_s=self._now_s,
                interval_s=interval_s,
                lead_s=self._world.posting.lead_s,
            )
            decision = decide(
                PostingSnapshot(
                    block=self._head(),
                    now_s=self._now_s,
                    ready=tuple(self._ready.values()),
                    gas=self._world.gas,
                    rules=self._world.posting,
                    block_interval_s=interval_s,
                    recent_base_fees_wei=self._recent_base_fees_wei(),
                    due_at_s=gathering.due_at_s,
                )
            )
            if decision.reason is PostReason.GATHERING:
                self._gathering = gathering.held()
                self._plan_posting(decision.again_at_s)
            else:
                self._gathering = gathering.decided(self._now_s)
            for lost in decision.too_late:
                del self._ready[lost.key]
                self._end(lost.key, End.NOT_POSTED, None)
            if not decision.results:
                return
            for result in decision.results:
                del self._ready[result.key]
            self._in_flight.append(decision.results)

    def _plan_posting(self, at_s: float) -> None:
        at_ms = ceil((at_s - START_S) * 1000)
        if at_ms != self._posting_at_ms:
            self._posting_at_ms = at_ms
            self._at(at_ms, _Kind.POSTING)

    def _mine(self, results: tuple[ReadyResult, ...]) -> None:
        world = self._world
        in_time = [r for r in results if r.deadline_s >= world.block_timestamp_s(self._block)]
        self._posts.append(
            PostEnd(
                block=self._block,
                results=len(results),
                delivered=len(in_time),
                gas=world.gas.of(len({result.worker for result in results}), len(results)),
                price_wei=world.base_fees_wei[self._block] + world.posting.priority_fee_wei,
                fees_wei=sum(result.fee_wei for result in in_time),
                revenue_wei=sum(result.revenue_wei for result in in_time),
            )
        )
        for result in results:
            end = End.DELIVERED if result in in_time else End.LATE
            self._end(result.key, end, None, self._now_ms)

    def _end(
        self, key: RequestKey, end: End, reason: Reason | None, mined_at_ms: int | None = None
    ) -> None:
        progress = self._progress[key]
        if key in self._ends:
            raise ValueError(f"request {key.id} ended twice")
        self._ends[key] = RequestEnd(
            progress.request,
            end,
            reason,
            progress.worker.id if progress.worker and mined_at_ms is not None else None,
            progress.leased_at_ms,
            progress.computed_at_ms,
            mined_at_ms,
            progress.first_leased_at_ms,
            progress.failed,
        )


def fails_on(request: SimRequest, worker: SimWorker) -> bool:
    """Whether this worker's leases on this request fail: the same in every attempt and policy.

    The request's die is turned by the worker's last byte times the golden ratio, so that
    workers with the same share of failures fail on different requests.
    """
    turned = (request.die + worker.id[-1] * 0.6180339887498949) % 1.0
    return turned < worker.failure
