"""What every back end is, and what they share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from inferd.workers.job import BadInput, Completion, Job

_T = TypeVar("_T")

StopAsked = Callable[[], bool]
"""True once nobody waits for the computation any more."""


class Backend(Protocol):
    """A model that is ready to compute. One instance may serve several workers."""

    @property
    def name(self) -> str:
        """The model's name, whose keccak256 is its id on chain."""

    @property
    def prior_ms(self) -> float:
        """A guess at one request's duration, used until the first one is measured."""

    @property
    def max_output_bytes(self) -> int:
        """No output is longer."""

    @property
    def loaded(self) -> bool:
        """Whether its model is in memory now."""

    @property
    def load_ms(self) -> float:
        """How long loading the model took the last time; 0 before the first."""

    async def start(self) -> None:
        """Loads the model where it is not loaded. Raises OperatorError where that fails."""

    async def unload(self) -> None:
        """Frees the model; the next `start` loads it again. Not while it computes."""

    async def run(self, job: Job) -> Completion:
        """Raises BadInput, WorkerFailed or WorkerBusy. Cancelling it ends the work soon after."""

    async def close(self) -> None:
        """Ends what is still running and frees the model, for good."""


class ComputeThreads:
    """Runs blocking computations off the event loop; a cancelled one is asked to stop.

    Python cannot end a thread from outside, so every computation polls `StopAsked`.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._under_way: dict[Future[Any], threading.Event] = {}
        """Also those that nobody waits for any more, until they have stopped."""

    async def run(self, work: Callable[[StopAsked], _T]) -> _T:
        stop = threading.Event()
        future = self._executor.submit(work, stop.is_set)
        self._under_way[future] = stop
        future.add_done_callback(self._under_way.pop)
        try:
            return await asyncio.wrap_future(future)
        finally:
            stop.set()

    async def settle(self) -> None:
        """Waits until nothing is under way: a computation stops only a while after it is asked."""
        left = [asyncio.wrap_future(future) for future in list(self._under_way)]
        await asyncio.gather(*left, return_exceptions=True)

    async def close(self) -> None:
        """Asks everything to stop and waits until it has."""
        for stop in list(self._under_way.values()):
            stop.set()
        await asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)


def prompt_text(job: Job, max_bytes: int) -> str:
    """The input as text. Raises BadInput where it is none, empty, or longer than `max_bytes`."""
    if len(job.input) > max_bytes:
        raise BadInput(
            f"the input has {len(job.input)} bytes, {job.model} reads at most {max_bytes}"
        )
    try:
        text = job.input.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"the input is not UTF-8 at byte {error.start}") from None
    if not text:
        raise BadInput("the input is empty")
    return text
