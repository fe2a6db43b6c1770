"""A model that leaves memory while nobody asks for it."""

from __future__ import annotations

import asyncio

import structlog

from indexer.errors import OperatorError
from inferd.workers.backends.base import Backend
from inferd.workers.job import Completion, Job, WorkerFailed

log = structlog.get_logger("workers")


class Resting:
    """A back end that unloads its model after a time without a computation, and loads it again for
    the next."""

    def __init__(self, backend: Backend, *, after_s: float) -> None:
        self._backend = backend
        self._after_s = after_s
        self._changing = asyncio.Lock()
        """Held while the model is loaded or unloaded."""
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unloading: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._backend.name

    @property
    def prior_ms(self) -> float:
        return self._backend.prior_ms

    @property
    def max_output_bytes(self) -> int:
        return self._backend.max_output_bytes

    @property
    def loaded(self) -> bool:
        return self._backend.loaded

    @property
    def load_ms(self) -> float:
        return self._backend.load_ms

    async def start(self) -> None:
        """Loads the model, for at least the time after which it rests."""
        async with self._changing:
            await self._backend.start()
        if not self._running:
            self._rest_later()

    async def run(self, job: Job) -> Completion:
        self._running += 1
        if self._timer is not None:
            self._timer.cancel()
        try:
            async with self._changing:
                # It may have left since its user last looked, as while a private input was opened.
                if not self.loaded:
                    await self._backend.start()
            return await self._backend.run(job)
        except OperatorError as error:
            raise WorkerFailed(f"its model cannot be loaded: {error.message}") from error
        finally:
            self._running -= 1
            if not self._running:
                self._rest_later()

    async def unload(self) -> None:
        """Frees the model, unless it computes."""
        async with self._changing:
            if not self._running and self.loaded:
                await self._backend.unload()
                log.info("model_unloaded", model=self.name)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._unloading is not None:
            await self._unloading
        await self._backend.close()

    def _rest_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._after_s, self._rest)

    def _rest(self) -> None:
        self._unloading = asyncio.create_task(self.unload())
