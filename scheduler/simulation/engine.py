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
- A refusal is final. Leases of a worker in an outage go on when it is over.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from heapq import heappop, heappush
from math import ceil
from typing import NamedTuple

from scheduler.decision import Plan
from scheduler.model import Moment, PendingRequest, Reason, RequestKey, WorkerId
from scheduler.planner import Changes, Planner
from scheduler.policies import POLICIES, Policy
from scheduler.simulation.beliefs import Beliefs
from scheduler.simulation.fleet import Fleet
from scheduler.simulation.leases import LeaseEnd, Progress, Verdict
from scheduler.simulation.outcome import End, Outcome, RequestEnd
from scheduler.simulation.posts import Posts, head_of
from scheduler.simulation.scenario import World
from scheduler.simulation.workload import START_S, SimRequest

ROUND_GAP_MS = 100
FALLBACK = POLICIES["least-requests"]
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


class Simulation:
    """One policy in one world; call `run` once."""

    def __init__(self, world: World, policy: Policy, beliefs: Beliefs) -> None:
        self._world = world
        self._policy, self._beliefs = policy, beliefs
        self._planner = Planner()
        self._fleet = Fleet(world.workers, beliefs)
        self._posts = Posts(world)
        self._events: list[_Event] = []
        self._planned = 0
        self._now_ms = 0
        self._block = 0
        self._last_round_ms = -ROUND_GAP_MS
        self._round_planned = False
        self._arriving: dict[int, list[SimRequest]] = defaultdict(list)
        for request in world.requests:
            self._arriving[request.seen_at_ms // world.block_ms].append(request)
        self._progress: dict[RequestKey, Progress] = {}
        self._added: list[PendingRequest] = []
        self._removed: list[RequestKey] = []
        """What has changed since the last round."""
        self._posting_at_ms = -1
        """For when the newest posting decision was planned."""
        self._recent_fees_wei: list[int] = []
        self._ends: dict[RequestKey, RequestEnd] = {}
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
                self._wait(self._progress[event.subject])
                self._plan_round()
            elif event.kind is _Kind.POSTING:
                self._decide_posts()
            else:
                self._round_planned = False
                self._round_due()
        return Outcome(
            self._policy.name,
            tuple(self._ends[request.key] for request in world.requests),
            tuple(self._posts.mined),
            self._rounds,
            self._dispatches,
            self._negative_slack,
            self._fallbacks,
        )

    def _at(self, at_ms: int, kind: _Kind, subject: RequestKey | None = None) -> None:
        self._planned += 1
        heappush(self._events, _Event(at_ms, kind, self._planned, subject))

    @property
    def _now_s(self) -> float:
        return START_S + self._now_ms / 1000

    def _new_block(self) -> None:
        self._block = self._now_ms // self._world.block_ms
        for key, in_time in self._posts.mine(self._block):
            self._end(key, End.DELIVERED if in_time else End.LATE, None, self._now_ms)
        for request in self._arriving.pop(self._block, ()):
            self._progress[request.key] = Progress(request)
            self._recent_fees_wei = [*self._recent_fees_wei[1 - _RECENT_FEES :], request.fee_wei]
            self._wait(self._progress[request.key])
        self._decide()

    def _wait(self, progress: Progress) -> None:
        """The request is pending (again)."""
        self._added.append(progress.pending(*self._beliefs.tokens(progress.request)))

    def _decide(self) -> None:
        """A round and the posting decision."""
        self._last_round_ms = self._now_ms
        if self._added or self._planner.pending:
            self._rounds += 1
            workers = self._fleet.changed(self._now_ms)
            self._planner.apply(Changes(self._added, self._removed, workers))
            self._added, self._removed = [], []
            self._follow(self._plan())
        self._decide_posts()

    def _plan(self) -> Plan:
        """The round's plan; by the fallback's order where the policy fails."""
        moment = self._moment()
        try:
            return self._planner.plan(moment, self._policy)
        except Exception:  # a policy is foreign code and may raise anything
            self._fallbacks += 1
            return self._planner.plan(moment, FALLBACK)

    def _moment(self) -> Moment:
        return Moment(
            block=head_of(self._world, self._block),
            now_s=self._now_s,
            gas=self._world.gas,
            rules=self._world.rules,
            recent_fees_wei=tuple(self._recent_fees_wei),
        )

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

    def _dispatch(self, key: RequestKey, worker: WorkerId, lease_ms: int, p90_ms: float) -> None:
        self._dispatches += 1
        self._removed.append(key)
        progress = self._progress[key]
        left_s = progress.request.deadline_s - self._world.rules.inclusion_s - self._now_s
        if p90_ms > left_s * 1000 + 1e-3:
            self._negative_slack += 1
        lease = self._fleet.begin(progress.request, worker, self._now_ms, lease_ms)
        progress.began(lease)
        self._at(lease.at_ms, _Kind.LEASE_END, key)

    def _lease_end(self, progress: Progress) -> None:
        lease = _lease_of(progress)
        self._fleet.end(lease)
        if lease.verdict is Verdict.VALID:
            self._posts.add(lease)
        else:
            rest_ms = progress.failed_on(lease)
            self._at(self._now_ms + rest_ms, _Kind.RESTED, progress.request.key)
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

    def _decide_posts(self) -> None:
        for key in self._posts.decide(head_of(self._world, self._block), self._now_s):
            self._end(key, End.NOT_POSTED, None)
        again_at_s = self._posts.again_at_s
        if again_at_s is None:
            return
        at_ms = ceil((again_at_s - START_S) * 1000)
        if at_ms != self._posting_at_ms:
            self._posting_at_ms = at_ms
            self._at(at_ms, _Kind.POSTING)

    def _end(
        self, key: RequestKey, end: End, reason: Reason | None, mined_at_ms: int | None = None
    ) -> None:
        if key in self._ends:
            raise ValueError(f"request {key.id} ended twice")
        progress = self._progress[key]
        lease = progress.lease
        valid = lease is not None and lease.verdict is Verdict.VALID
        self._ends[key] = RequestEnd(
            progress.request,
            end,
            reason,
            lease.worker.id if lease is not None and mined_at_ms is not None else None,
            lease.began_ms if lease is not None else None,
            lease.at_ms if lease is not None and valid else None,
            mined_at_ms,
            progress.first_leased_at_ms,
            progress.failed,
        )


def _lease_of(progress: Progress) -> LeaseEnd:
    if progress.lease is None:
        raise ValueError(f"request {progress.request.key.id} has no lease to end")
    return progress.lease
