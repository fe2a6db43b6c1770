"""Rounds on real tables and real dispatch, with workers that do as they are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.node.rounds import Rounds, _State
from inferd.node.snapshot import RoundInputs
from inferd.node.wakeup import Wakeup
from inferd.policies.journal import adopt_settings
from inferd.policies.steering import Steering
from inferd.protocol.private import DecryptionKey
from inferd.protocol.request import model_id
from inferd.workers.dispatch import Dispatcher
from inferd.workers.job import Job, WorkerFailed
from inferd.workers.local import LocalWorker
from inferd.workers.pool import WorkerPool
from inferd.workers.sealing import Sealing
from scheduler.allowance import Limits
from scheduler.choice import chosen
from scheduler.model import GasModel, Rules
from tests.workers.support import MODEL, Scripted, a_worker, until

_FEE_WEI = 10**16
NODE_KEY = DecryptionKey(b"\x01" * 32)
CHAIN_ID, REQUESTS = 31337, Address(b"\x11" * 20)
SEALING = Sealing([NODE_KEY], CHAIN_ID, REQUESTS)
"""The first of the workers has it."""


async def no_fence(connection: Connection) -> None:
    """One daemon only."""


@dataclass
class House:
    """One chain state, two workers, rounds over both."""

    db: Pool
    backends: tuple[Scripted, Scripted]
    workers: tuple[LocalWorker, LocalWorker]
    rounds: Rounds
    dispatcher: Dispatcher
    settings: dict[str, int]

    def start_anew(self) -> Rounds:
        """As a restarted node on the same tables."""
        self.rounds = replace(self.rounds, _state=_State(), _grounds=None)
        return self.rounds

    async def request(self, number: int, *, branch: int = 0, **changes: Any) -> bytes:
        """A request on the indexed chain; `branch` makes another commitment for the same id."""
        commitment = number.to_bytes(19, "big") + bytes([branch])
        now_s = int(time.time())
        values = {
            "id": number,
            "commitment": commitment,
            "requester": b"\x33" * 20,
            "model_id": model_id(MODEL),
            "input_kind": 0,
            "input": b"prompt",
            "max_tokens": 8,
            "memory_mb": 0,
            "callback_gas_limit": 0,
            "quorum": 1,
            "batchable": True,
            "delivery": 0,
            "fee_wei": _FEE_WEI,
            "deadline_s": now_s + 600,
            "submitted_deadline_s": now_s + 600,
            "created_block": 1,
            "created_block_hash": bytes(32),
            "created_log_index": number,
            "created_tx_hash": bytes(32),
            "created_at_s": now_s,
        } | changes
        places = ", ".join(f"${index + 1}" for index in range(len(values)))
        await self.db.execute(
            f"INSERT INTO chain.request ({', '.join(values)}) VALUES ({places})",
            *values.values(),
        )
        return commitment

    async def decisions(self, request_id: int) -> list[tuple[str, str]]:
        rows = await self.db.fetch(
            "SELECT kind, reason FROM node.decision WHERE request_id = $1 ORDER BY id", request_id
        )
        return [(row["kind"], row["reason"]) for row in rows]

    async def settle_down(self) -> None:
        await until(lambda: not self.dispatcher.running)

    async def answered_by(self, request_id: int) -> list[bytes]:
        rows = await self.db.fetch(
            "SELECT worker FROM node.result WHERE request_id = $1", request_id
        )
        return [row["worker"] for row in rows]


@pytest.fixture
async def house(pool: Pool) -> AsyncIterator[House]:
    backends = (Scripted(), Scripted())
    workers = (
        a_worker(pool, backends[0], seed=1, sealing=SEALING),
        a_worker(pool, backends[1], seed=2),
    )
    crowd = WorkerPool(workers)
    dispatcher = Dispatcher(crowd, pool, fence=no_fence, on_change=lambda outcome: None)
    await pool.execute(
        "INSERT INTO chain.cursor (block_number, block_hash, timestamp_s, base_fee_wei, gas_limit,"
        " finalized_number) VALUES (1, $1, $2, 1000000000, 30000000, 1)",
        bytes(32),
        int(time.time()),
    )
    for worker in workers:
        await pool.execute(
            "INSERT INTO chain.worker VALUES ($1, $2, $3, '', 4, 1000, true, true, 1, 0, 1)",
            worker.address,
            b"\x22" * 20,
            [model_id(MODEL)],
        )

    settings = {"max_gas": 15_000_000, "max_attempts": 3, "unposted": 0}
    steering = Steering()
    async with pool.acquire() as connection:
        await adopt_settings(connection, chosen("balanced", "", ""))

    async def inputs(connection: Connection) -> RoundInputs:
        return RoundInputs(
            workers=await crowd.views(connection, [Address(b"\x22" * 20)]),
            gas=GasModel(45_000, 14_000, 5_500),
            rules=Rules(
                poster_bps=2_000,
                expected_batch=1,
                max_attempts=settings["max_attempts"],
                limits=Limits(unposted=10),
            ),
            now_s=time.time(),
            max_gas=settings["max_gas"],
            unposted=settings["unposted"],
        )

    yield House(
        pool,
        backends,
        workers,
        Rounds(
            db=pool,
            inputs=inputs,
            steering=steering,
            policy_budget_s=lambda: 1.0,
            dispatcher=dispatcher,
            names={model_id(MODEL): MODEL},
            fence=no_fence,
            bell=Wakeup(),
            may_decide=lambda: True,
        ),
        dispatcher,
        settings,
    )
    await dispatcher.close()
    steering.close()


async def fails(job: Job) -> bytes:
    raise WorkerFailed("out of order")


async def hangs(job: Job) -> bytes:
    await asyncio.sleep(3600)
    return b""


async def rest(house: House) -> None:
    """As if the time after a failure had passed."""
    await house.db.execute("UPDATE node.lease SET ended_at = ended_at - interval '1 hour'")
