"""Leases in virtual time: what becomes of one is settled when it begins, and known when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.model import PendingRequest, WorkerId
from scheduler.simulation.workers import BOGUS_SHARE, Conduct, SimWorker
from scheduler.simulation.workload import START_S, SimRequest


class Verdict(StrEnum):
    """How a lease ended."""

    VALID = "valid"
    FAILED = "failed"
    """The worker said so, or what it signed is not valid."""
    TIMEOUT = "timeout"
    """Nothing had come when its time was over, and the worker was told to stop."""


@dataclass(frozen=True, slots=True)
class LeaseEnd:
    """One lease, as it will have ended. Times are ms since the start."""

    request: SimRequest
    worker: SimWorker
    began_ms: int
    at_ms: int
    verdict: Verdict

    @property
    def run_ms(self) -> int:
        return self.at_ms - self.began_ms


def lease_end(
    request: SimRequest, worker: SimWorker, now_ms: int, lease_ms: int, load_ms: float
) -> LeaseEnd:
    """How a lease ends that begins now, is that long, and has to load its model for `load_ms`."""
    work_ms = worker.service[request.model].work_ms(request.generated_tokens, request.factor)
    work_ms += load_ms
    fails = fails_on(request, worker)
    if fails and worker.conduct is Conduct.BOGUS:
        work_ms *= BOGUS_SHARE
    done_ms, expires_ms = worker.end_ms(now_ms, work_ms), now_ms + lease_ms
    if done_ms > expires_ms or (fails and worker.conduct is Conduct.SILENT):
        return LeaseEnd(request, worker, now_ms, expires_ms, Verdict.TIMEOUT)
    verdict = Verdict.FAILED if fails else Verdict.VALID
    return LeaseEnd(request, worker, now_ms, done_ms, verdict)


def fails_on(request: SimRequest, worker: SimWorker) -> bool:
    """Whether this worker's leases on this request fail: the same in every attempt and policy.

    The request's die is turned by the worker's last byte times the golden ratio, so that
    workers with the same share of failures fail on different requests.
    """
    turned = (request.die + worker.id[-1] * 0.6180339887498949) % 1.0
    return turned < worker.failure


@dataclass(slots=True)
class Progress:
    """A request on its way."""

    request: SimRequest
    tried: set[WorkerId] = field(default_factory=set)
    failed: int = 0
    lease: LeaseEnd | None = None
    """The latest one."""
    first_leased_at_ms: int | None = None

    def began(self, lease: LeaseEnd) -> None:
        self.lease = lease
        if self.first_leased_at_ms is None:
            self.first_leased_at_ms = lease.began_ms

    def failed_on(self, lease: LeaseEnd) -> int:
        """Counts the failure: how many ms the request rests after it.

        2^(n-1) s after the n-th, or a quarter of its time left if that is less.
        """
        self.failed += 1
        self.tried.add(lease.worker.id)
        left_ms = max(0, (self.request.deadline_s - START_S) * 1000 - lease.at_ms)
        return int(min(1000 * 2 ** (self.failed - 1), left_ms // 4))

    def pending(self, tokens_mean: float, tokens_sigma: float) -> PendingRequest:
        """As a round sees it, with what is predicted of its output."""
        request = self.request
        return PendingRequest(
            key=request.key,
            tenant=request.tenant,
            model=request.model,
            fee_wei=request.fee_wei,
            submitted_at_s=START_S + request.seen_at_ms // 1000,
            deadline_s=request.deadline_s,
            max_tokens=request.max_tokens,
            input_bytes=4 * request.context_tokens,
            memory_mb=0,
            attempts=self.failed,
            tried=frozenset(self.tried),
            tokens_mean=tokens_mean,
            tokens_sigma=tokens_sigma,
        )
