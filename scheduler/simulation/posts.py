"""Posts in virtual time: results that wait, the daemon's decision on them, and what is mined."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.batching import decide
from scheduler.gas import FORECAST_BLOCKS
from scheduler.gathering import Gathering, gather
from scheduler.model import Block, RequestKey
from scheduler.posting_model import PostingSnapshot, PostReason, ReadyResult
from scheduler.simulation.leases import LeaseEnd
from scheduler.simulation.outcome import PostEnd
from scheduler.simulation.scenario import GAS_LIMIT, World
from scheduler.simulation.workers import SimWorker
from scheduler.simulation.workload import START_S, SimRequest

MAX_POSTS_IN_FLIGHT = 4
_BPS = 10_000


class Posts:
    """The results and posts of one simulation."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ready: dict[RequestKey, ReadyResult] = {}
        self._in_flight: list[tuple[ReadyResult, ...]] = []
        self._gathering: Gathering | None = None
        self.again_at_s: float | None = None
        """When to decide again, though no block and no result has come."""
        self.mined: list[PostEnd] = []

    def add(self, lease: LeaseEnd) -> None:
        """A valid result is ready."""
        request, worker = lease.request, lease.worker
        self._ready[request.key] = ReadyResult(
            key=request.key,
            worker=worker.id,
            fee_wei=request.fee_wei,
            revenue_wei=self._revenue_wei(request, worker),
            deadline_s=request.deadline_s,
            computed_at_s=START_S + lease.at_ms / 1000,
            batchable=True,
        )

    def decide(self, head: Block, now_s: float) -> Iterator[RequestKey]:
        """Sends what is worth it; gives the requests whose results are too late for every block."""
        world = self._world
        last = head.number + 1
        recent = world.base_fees_wei[max(last - FORECAST_BLOCKS, 0) : last]
        interval_s = world.block_ms / 1000
        self.again_at_s = None
        gathering = gather(
            self._gathering,
            head,
            now_s=now_s,
            interval_s=interval_s,
            lead_s=world.posting.lead_s,
        )
        due_at_s = gathering.due_at_s  # For all posts of this moment, as in the daemon.
        while self._ready and len(self._in_flight) < MAX_POSTS_IN_FLIGHT:
            decision = decide(
                PostingSnapshot(
                    block=head,
                    now_s=now_s,
                    ready=tuple(self._ready.values()),
                    gas=world.gas,
                    rules=world.posting,
                    block_interval_s=interval_s,
                    recent_base_fees_wei=tuple(recent),
                    due_at_s=due_at_s,
                )
            )
            if decision.reason is PostReason.GATHERING:
                gathering, self.again_at_s = gathering.held(), decision.again_at_s
            else:
                gathering = gathering.decided(now_s)
            self._gathering = gathering
            for lost in decision.too_late:
                del self._ready[lost.key]
                yield lost.key
            if not decision.results:
                return
            for result in decision.results:
                del self._ready[result.key]
            self._in_flight.append(decision.results)

    def mine(self, block: int) -> Iterator[tuple[RequestKey, bool]]:
        """All posts that were sent are in this block: each request, and whether in time."""
        for results in self._in_flight:
            yield from self._mine(results, block)
        self._in_flight = []

    def _mine(
        self, results: tuple[ReadyResult, ...], block: int
    ) -> Iterator[tuple[RequestKey, bool]]:
        world = self._world
        in_time = [r for r in results if r.deadline_s >= world.block_timestamp_s(block)]
        self.mined.append(
            PostEnd(
                block=block,
                results=len(results),
                delivered=len(in_time),
                gas=world.gas.of(len({result.worker for result in results}), len(results)),
                price_wei=world.base_fees_wei[block] + world.posting.priority_fee_wei,
                fees_wei=sum(result.fee_wei for result in in_time),
                revenue_wei=sum(result.revenue_wei for result in in_time),
            )
        )
        for result in results:
            yield result.key, result in in_time

    def _revenue_wei(self, request: SimRequest, worker: SimWorker) -> int:
        share_wei = request.fee_wei * self._world.rules.poster_bps // _BPS
        return request.fee_wei if worker.owned else share_wei


def head_of(world: World, number: int) -> Block:
    """That block, with the base fee of the next: EIP-1559 tells it from this one."""
    last = len(world.base_fees_wei) - 1
    return Block(
        number=number,
        hash=number.to_bytes(32, "big"),
        timestamp_s=world.block_timestamp_s(number),
        base_fee_wei=world.base_fees_wei[min(number + 1, last)],
        gas_limit=GAS_LIMIT,
    )
