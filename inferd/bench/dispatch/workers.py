"""Workers that answer after a while and compute nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.protocol.result import digest_of
from inferd.protocol.typed_data import CompactSignature
from inferd.workers.job import Job, SignedResult, WorkerBusy
from inferd.workers.pool import Elsewhere
from inferd.workers.remote.worker import RemoteOffer

SERVICE_MS = 20.0
"""Mean of an exponential law."""
_OUTPUT = b"an answer of some forty bytes, like a line of text"
_DIGEST = digest_of(_OUTPUT)
_SIGNATURE = CompactSignature(bytes(64))
_MANIFEST = {"model": "bench", "completion_tokens": 12, "prompt_tokens": 5}


@dataclass
class SimulatedWorker(Elsewhere):
    """As a worker on another machine is to the pool: with late answers, and one that is told."""

    address: Address
    models: Mapping[ModelId, RemoteOffer]
    dice: random.Random
    slots: int
    busy_share: float
    """Of jobs that it turns down."""
    name: str = "bench"
    memory_mb: int = 1_000
    told: int = field(default=0)

    async def compute(self, job: Job) -> SignedResult:
        if self.dice.random() < self.busy_share:
            raise WorkerBusy("as drawn")
        took_ms = self.dice.expovariate(1.0 / SERVICE_MS)
        await asyncio.sleep(took_ms / 1000.0)
        return SignedResult(
            key=job.key,
            worker=self.address,
            digest=_DIGEST,
            output=_OUTPUT,
            media_type="text/plain",
            manifest=_MANIFEST,
            signature=_SIGNATURE,
            compute_ms=max(1, round(took_ms)),
        )

    async def late(self, job: Job) -> SignedResult:
        return await self.compute(job)

    async def drop(self, job: Job) -> None:
        self.told += 1

    async def sign_group(self, items: bytes) -> CompactSignature:
        raise WorkerBusy("nobody asks for it")
