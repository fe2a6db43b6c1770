"""How long the daemon's event loop is held up while rounds run over a real database.

Workers take 0.3 s for a job and then say that they were busy, so that leases end and begin all
the time; at each block some requests come. A task that wants to wake up every millisecond
notes how late it was, first without rounds (what else the machine does), then with them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

import asyncpg

from indexer.database import Connection, Pool, prepare_connection
from indexer.types import Address
from inferd.bench.index.servers import fresh_database, temporary_server
from inferd.node.rounds import Rounds
from inferd.node.snapshot import RoundInputs
from inferd.node.threads import give_way
from inferd.node.wakeup import Wakeup
from inferd.policies.journal import adopt_settings
from inferd.policies.steering import Steering
from inferd.protocol.request import ModelId, model_id
from inferd.protocol.typed_data import CompactSignature
from inferd.workers.backends.base import Backend
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job, SignedResult, WorkerBusy
from inferd.workers.pool import WorkerPool
from scheduler.choice import chosen
from scheduler.model import GasModel, Rules
from scheduler.policies import DEFAULT

_MODELS = 10
_WORKERS = 20
_SLOTS = 4
_BLOCK_S = 0.25
_JOB_S = 0.3
_NEW_PER_BLOCK = 100
_OWNER = b"\x22" * 20

_REQUESTS = """
    INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input, max_tokens,
        memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei, deadline_s,
        submitted_deadline_s, created_block, created_block_hash, created_log_index,
        created_tx_hash, created_at_s)
    SELECT n, decode(lpad(to_hex(n), 40, '0'), 'hex'),
           decode(lpad(to_hex(n % 100), 40, '0'), 'hex'),
           ($3::bytea[])[1 + n % cardinality($3)], 0, 'a prompt', 64, 0, 0, 1, true, 0,
           1e16::numeric + n, $4::bigint + 3600 + n % 600, $4::bigint + 3600 + n % 600, 1, '',
           n, '', $4::bigint
    FROM generate_series($1::bigint, $2::bigint) n
"""


@dataclass
class _BusyWorker:
    """Holds a slot for a while."""

    address: Address
    models: Mapping[ModelId, Backend]
    name: str = "bench"
    slots: int = _SLOTS
    memory_mb: int = 8_000

    async def compute(self, job: Job) -> SignedResult:
        await asyncio.sleep(_JOB_S)
        raise WorkerBusy("it only holds a slot")

    async def sign_group(self, items: bytes) -> CompactSignature:
        raise WorkerBusy("it only holds a slot")


async def measure_daemon(
    pending: int, *, seconds: float, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Late wake-ups in ms, and what the rounds took. Raises what starting the server raises."""
    give_way()
    with tempfile.TemporaryDirectory(prefix="inferd-bench-", ignore_cleanup_errors=True) as at:
        async with (
            temporary_server(Path(at)) as server,
            fresh_database(server) as url,
            asyncpg.create_pool(url, min_size=4, max_size=8, init=prepare_connection) as pool,
        ):
            names: dict[bytes, str] = {model_id(f"bench-{n}"): f"bench-{n}" for n in range(_MODELS)}
            await _fill(pool, pending, [ModelId(name) for name in names])
            progress("the event loop without rounds")
            alone = await _late_ms(asyncio.sleep(min(seconds, 5.0)))
            progress("the event loop with rounds")
            took_ms: list[float] = []
            late = await _late_ms(_rounds(pool, names, pending, seconds, took_ms))
    return {
        "pending": pending,
        "rounds": len(took_ms),
        "first_round_ms": round(took_ms[0], 1),
        "round_ms": round(median(took_ms[1:]), 1),
        "without_rounds": _figures(alone),
        "with_rounds": _figures(late),
    }


async def _fill(pool: Pool, pending: int, models: Sequence[ModelId]) -> None:
    now_s = int(time.time())
    await pool.execute(
        "INSERT INTO chain.cursor (block_number, block_hash, timestamp_s, base_fee_wei, gas_limit,"
        " finalized_number) VALUES (1, '', $1, 1000000000, 30000000, 1)",
        now_s,
    )
    await pool.execute(_REQUESTS, 1, pending, models, now_s)
    for number in range(_WORKERS):
        await pool.execute(
            "INSERT INTO chain.worker VALUES ($1, $2, $3, '', $4, 8000, true, true, 1, 0, 1)",
            _address(number),
            _OWNER,
            models,
            _SLOTS,
        )
    await pool.execute("VACUUM ANALYZE")


async def _rounds(
    pool: Pool, names: dict[bytes, str], pending: int, seconds: float, took_ms: list[float]
) -> None:
    backend: Any = SimpleNamespace(
        prior_ms=_JOB_S * 1000, loaded=True, load_ms=0.0
    )  # nobody computes
    models = {ModelId(name): backend for name in names}
    crowd = WorkerPool([_BusyWorker(_address(n), models) for n in range(_WORKERS)])

    async def no_fence(connection: Connection) -> None:
        """One daemon only."""

    async def inputs(connection: Connection) -> RoundInputs:
        return RoundInputs(
            workers=await crowd.views(connection, [Address(_OWNER)]),
            gas=GasModel(45_000, 14_000, 5_500),
            rules=Rules(poster_bps=2_000),
            now_s=time.time(),
            max_gas=15_000_000,
        )

    async with pool.acquire() as connection:
        await adopt_settings(connection, chosen(DEFAULT.name, "", ""))
    dispatcher = Dispatcher(crowd, pool, fence=no_fence, on_change=lambda _: None)
    rounds = Rounds(
        db=pool,
        inputs=inputs,
        steering=Steering(),
        policy_budget_s=lambda: 1.0,
        dispatcher=dispatcher,
        names=names,
        fence=no_fence,
        bell=Wakeup(),
        may_decide=lambda: True,
    )
    ends_s = time.monotonic() + seconds
    last = pending
    try:
        while time.monotonic() < ends_s:
            started_s = time.perf_counter()
            await rounds.round()
            took_s = time.perf_counter() - started_s
            took_ms.append(took_s * 1000)
            await asyncio.sleep(max(0.0, _BLOCK_S - took_s))
            await pool.execute(
                "UPDATE chain.cursor SET block_number = block_number + 1, timestamp_s = $1",
                int(time.time()),
            )
            await pool.execute(
                _REQUESTS, last + 1, last + _NEW_PER_BLOCK, list(names), int(time.time())
            )
            last += _NEW_PER_BLOCK
    finally:
        await dispatcher.close()


async def _late_ms(work: Any) -> list[float]:
    """How late a task wakes up that sleeps for a millisecond, over and over, beside the work."""
    late: list[float] = []

    async def watch() -> None:
        while True:
            before_s = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append((time.perf_counter() - before_s - 0.001) * 1000)

    watching = asyncio.create_task(watch())
    try:
        await work
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return late


def _figures(late_ms: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(late_ms, n=1000)
    return {
        "late_p50_ms": round(cuts[499], 2),
        "late_p99_ms": round(cuts[989], 2),
        "late_max_ms": round(max(late_ms), 1),
    }


def _address(number: int) -> Address:
    return Address(number.to_bytes(20, "big"))
