"""Several endpoints as one: the best is asked, the next where it fails."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from copy import copy
from typing import TypeVar

import structlog

from indexer.errors import BadRpcUrl, OperatorError, RpcUnreachable, WrongChain
from indexer.rpc.exchange import Parse
from indexer.rpc.health import Standing, order
from indexer.rpc.member import ChainIdentity, Member, Observer, open_members
from indexer.rpc.status import EndpointStatus, status_of
from indexer.rpc.trouble import none_answered
from indexer.rpc.types import RpcAnswerTooLarge, RpcError
from indexer.together import end

T = TypeVar("T")

_PROBE_EVERY_S = 10.0
_PASSED_OVER_S = 60.0

log = structlog.get_logger("indexer")


class EndpointPool:
    """Chooses by latency, head and errors; asks all of them before it gives up.

    Where there are several, each is asked for its newest block every 10 s, so that the choice rests
    on the same question to all, one that failed comes back, and one of another chain is told of
    before it is needed: the first time as soon as it is known which chain is expected.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        timeout_s: float,
        observer: Observer | None = None,
        probe_every_s: float = _PROBE_EVERY_S,
    ) -> None:
        """Raises BadRpcUrl."""
        if not urls:
            raise BadRpcUrl("there is no RPC endpoint", help_text="name at least one in `rpc_urls`")
        self._members = open_members(
            urls, timeout_s=timeout_s, observer=observer, setting="rpc_urls"
        )
        self._current = 0
        self._chosen_at_s = time.monotonic()
        self._identity: ChainIdentity | None = None
        self._is_second = False
        """Whether it gives second opinions: nobody is led by which of them it asked."""
        self._other_chain = asyncio.Event()
        self._probe_every_s = probe_every_s
        self._prober: asyncio.Task[None] | None = None

    @property
    def current(self) -> str:
        return self._members[self._current].label

    def expect(self, identity: ChainIdentity) -> None:
        """From now on an endpoint is used only after it has shown that it serves this chain."""
        if identity != self._identity:
            for member in self._members:
                member.forget_chain()
            self._other_chain.set()
        self._identity = identity

    def doubt(self) -> None:
        """What the current endpoint said does not fit: it has to show its chain again."""
        self._members[self._current].doubt()

    def pass_over(self, why: str) -> bool:
        """Leaves the current endpoint alone for a minute; False where there is no other left, not
        even one that is away now."""
        left = any(
            index != self._current and not member.is_aside and not member.is_passed_over
            for index, member in enumerate(self._members)
        )
        if left:
            self._members[self._current].pass_over(why, _PASSED_OVER_S)
        return left

    def others(self) -> EndpointPool | None:
        """Those beside the current one, not put aside; None where there are none. This one probes
        and closes them."""
        self._start_probing()
        at = self._current
        beside = self._members[at + 1 :] + self._members[:at]
        usable = [member for member in beside if not member.is_aside]
        if not usable:
            return None
        second = copy(self)
        second._members, second._current, second._is_second = usable, 0, True
        return second

    def saw_head(self, number: int) -> None:
        """The current endpoint named its newest block."""
        self._members[self._current].health.head = number

    async def close(self) -> None:
        if self._prober is not None:
            await end(self._prober)
            self._prober = None
        for member in self._members:
            await member.endpoint.close()

    async def exchange(self, method: str, body: bytes, parse: Parse[T], *, calls: int = 1) -> T:
        """Asks one endpoint after the other, beginning with the best.

        Raises WrongChain where all serve another chain, RpcUnreachable or one of its kinds where
        none gave a usable answer, RpcError.
        """
        self._start_probing()
        failures: list[RpcUnreachable] = []
        wrong: list[WrongChain] = []
        for index in self._order():
            member = self._members[index]
            if member.is_aside and member.wrong_chain is not None:
                wrong.append(member.wrong_chain)
                continue
            try:
                value = await self._ask(member, method, body, parse, calls)
            except WrongChain as error:
                wrong.append(error)
            except (RpcAnswerTooLarge, RpcError):
                # An answer, to be dealt with where the question was asked.
                self._use(index, [*failures, *wrong])
                raise
            except RpcUnreachable as error:
                failures.append(error)
            else:
                self._use(index, [*failures, *wrong])
                return value
        if not failures:
            raise wrong[0]
        raise none_answered(wrong, failures)

    async def _ask(
        self, member: Member, method: str, body: bytes, parse: Parse[T], calls: int
    ) -> T:
        """Raises WrongChain, and what `Member.exchange` raises."""
        identity = self._identity
        if identity is None:
            return await member.exchange(method, body, parse, calls=calls)
        await member.verify(identity)
        value = await member.exchange(method, body, parse, calls=calls)
        # It may have come over a new connection.
        await member.verify(identity)
        return value

    def snapshot(self) -> tuple[EndpointStatus, ...]:
        """All endpoints, in the order of the settings."""
        return tuple(
            status_of(member, in_use=index == self._current)
            for index, member in enumerate(self._members)
        )

    def _order(self) -> list[int]:
        if len(self._members) == 1:
            return [0]
        now_s = time.monotonic()
        standings = [
            Standing(
                resting_s=max(0.0, member.health.resting_until_s - now_s),
                cost_s=member.health.cost_s,
                lag_blocks=member.health.lag_blocks,
            )
            for member in self._members
        ]
        return order(standings, self._current, since_s=now_s - self._chosen_at_s)

    def _use(self, index: int, failures: Sequence[OperatorError]) -> None:
        if index == self._current:
            return
        if not self._is_second:
            log.warning(
                "rpc_failover",
                to=self._members[index].label,
                because=[failure.message for failure in failures] or ["it serves better"],
            )
        self._current = index
        self._chosen_at_s = time.monotonic()

    def _start_probing(self) -> None:
        if self._prober is None and len(self._members) > 1:
            self._prober = asyncio.create_task(self._probe_for_ever(), name="rpc-probes")

    async def _probe_for_ever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._probe_every_s):
                    await self._other_chain.wait()
            self._other_chain.clear()
            heads = await asyncio.gather(*(self._probe(member) for member in self._members))
            newest = max((head for head in heads if head is not None), default=0)
            for member, head in zip(self._members, heads, strict=True):
                if head is not None:
                    member.health.lag_blocks = newest - head

    async def _probe(self, member: Member) -> int | None:
        now_s = time.monotonic()
        if member.is_aside or member.health.rests(now_s) or member.wait_s() > 0:
            return None
        before = member.last_error
        try:
            if self._identity is not None:
                await member.verify(self._identity)
            head = await member.probe()
        except (RpcUnreachable, RpcError, WrongChain):
            if before is None and member.last_error is not None:
                log.warning("endpoint_away", endpoint=member.label, because=member.last_error)
            return None
        if before is not None:
            log.info("endpoint_back", endpoint=member.label)
        return head
