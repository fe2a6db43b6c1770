"""What a worker says of itself when an operator asks how it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from indexer.types import Contracts, Hash32
from inferd import __version__
from inferd.protocol.typed_data import DigestSigner, domain_separator, encryption_key_digest
from inferd.protocol.worker_api import (
    Heartbeat,
    ModelHealth,
    SignedHeartbeat,
    SignedKey,
    as_hex,
)
from inferd.protocol.worker_api_signing import answer_signature, sign_heartbeat
from inferd.workers.backends.base import Backend
from inferd.workers.sealing import Sealing
from inferd.workers.service.jobs import Jobs

_MEMORY = Path("/proc/meminfo")


class Pulse:
    """Answers with the numbers of now, and signs answers."""

    def __init__(
        self,
        jobs: Jobs,
        backends: Sequence[Backend],
        *,
        slots: int,
        tokens_per_s: Mapping[str, float],
        keys: Sequence[SignedKey] = (),
        signer: DigestSigner,
        domain: Hash32,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`keys` are those for private inputs; `domain` is that of the worker API; `clock`
        gives seconds since the epoch."""
        self._jobs = jobs
        self._backends = backends
        self._slots = slots
        self._tokens_per_s = tokens_per_s
        self._keys = list(keys)
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
            encryption_keys=self._keys,
        )
        return sign_heartbeat(self._signer, self._domain, heartbeat)

    def vouch(self, nonce: Hash32, body: bytes) -> str:
        """The worker's word that this is its answer to the request with this nonce."""
        return answer_signature(self._signer, self._domain, nonce, body)


def signed_keys(
    sealing: Sealing, signer: DigestSigner, contracts: Contracts
) -> tuple[SignedKey, ...]:
    """The worker's word for each of its encryption keys."""
    domain = domain_separator(contracts.chain_id, contracts.requests)
    return tuple(
        SignedKey(as_hex(key), as_hex(signer.sign(encryption_key_digest(domain, key))))
        for key in sealing.keys
    )


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
