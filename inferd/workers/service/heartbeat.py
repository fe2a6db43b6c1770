"""What a worker says of itself when an operator asks how it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from indexer.types import Hash32
from inferd import __version__
from inferd.protocol.typed_data import DigestSigner
from inferd.protocol.worker_api import Heartbeat, ModelHealth, SignedHeartbeat, as_hex
from inferd.protocol.worker_api_signing import sign_heartbeat
from inferd.workers.backends.base import Backend
from inferd.workers.service.jobs import Jobs

_MEMORY = Path("/proc/meminfo")


class Pulse:
    """Answers with the numbers of now."""

    def __init__(
        self,
        jobs: Jobs,
        backends: Sequence[Backend],
        *,
        slots: int,
        tokens_per_s: Mapping[str, float],
        signer: DigestSigner,
        domain: Hash32,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`domain` is that of the worker API; `clock` gives seconds since the epoch."""
        self._jobs = jobs
        self._backends = backends
        self._slots = slots
        self._tokens_per_s = tokens_per_s
        self._signer = signer
        self._domain = domain
        self._clock = clock

    def beat(self, nonce: Hash32) -> SignedHeartbeat:
        """The answer to the request with this nonce."""
        heartbeat = Heartbeat(
            at_ms=round(1000 * self._clock()),
            nonce=as_hex(nonce),
            slots=self._slots,
            running=self._jobs.running,
            queued=self._jobs.queued,
            free_memory_mb=free_memory_mb(),
            models=[
                ModelHealth(
                    name=backend.name,
                    loaded=backend.loaded,
                    load_ms=backend.load_ms,
                    prior_ms=backend.prior_ms,
                    tokens_per_s=self._tokens_per_s.get(backend.name, 0.0),
                )
                for backend in self._backends
            ],
            version=__version__,
            stopping=self._jobs.stopping,
        )
        return sign_heartbeat(self._signer, self._domain, heartbeat)


def free_memory_mb() -> int:
    """What programs of this machine can still take, without swapping; Linux's estimate."""
    try:
        for line in _MEMORY.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) // 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1_048_576
    except (ValueError, OSError):
        return 0
