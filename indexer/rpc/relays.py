"""Endpoints that signed transactions go to: the first that takes one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

import structlog

from indexer.errors import RpcUnreachable, WrongChain
from indexer.rpc.exchange import Parse
from indexer.rpc.member import ChainIdentity, Member, Observer, open_members
from indexer.rpc.refusals import SendError, classify
from indexer.rpc.status import EndpointStatus, status_of
from indexer.rpc.trouble import none_answered
from indexer.rpc.types import RpcError

T = TypeVar("T")

_METHOD = "eth_sendRawTransaction"

log = structlog.get_logger("indexer")


class RelayPool:
    """Asked in the order of the settings, which is the operator's preference: how fast one answers
    says nothing about how soon a block has what it took. One that failed is asked last while it
    rests.

    A relay need not know any method but `eth_sendRawTransaction`: what it cannot show of its chain
    is not asked of it, since signed bytes name their chain themselves.
    """

    def __init__(
        self, urls: Sequence[str], *, timeout_s: float, observer: Observer | None = None
    ) -> None:
        """Raises BadRpcUrl."""
        self._members = open_members(
            urls, timeout_s=timeout_s, observer=observer, setting="rpc_send_urls", only_sends=True
        )
        self._current = 0
        self._identity: ChainIdentity | None = None

    def expect(self, identity: ChainIdentity) -> None:
        """From now on one is used only after it has shown what it can of this chain."""
        if identity != self._identity:
            for member in self._members:
                member.forget_chain()
        self._identity = identity

    async def check(self) -> None:
        """Asks each for its chain. One that is away may come back: only its log line tells.

        Raises WrongChain where all of them serve another chain.
        """
        wrong = []
        for member in self._members:
            try:
                await self._verify(member)
            except WrongChain as error:
                wrong.append(error)
            except RpcUnreachable as error:
                log.warning("endpoint_away", endpoint=member.label, because=error.message)
        if len(wrong) == len(self._members):
            raise wrong[0]

    async def send(self, body: bytes, parse: Parse[T]) -> T:
        """One call of eth_sendRawTransaction, to one after the other until one takes it.

        Raises RpcError where one refused it and none took it (one that did not answer may have, so
        it may still be mined), RpcUnreachable where none answered, WrongChain where all serve
        another chain.
        """
        refusals: list[RpcError] = []
        failures: list[RpcUnreachable] = []
        wrong: list[WrongChain] = []
        for index in self._order():
            member = self._members[index]
            try:
                await self._verify(member)
                value = await member.exchange(_METHOD, body, parse)
            except WrongChain as error:
                wrong.append(error)
            except RpcUnreachable as error:
                failures.append(error)
            except RpcError as error:
                if classify(error.message) is SendError.ALREADY_KNOWN:
                    self._took(index)
                    raise
                refusals.append(error)
            else:
                self._took(index)
                return value
        if refusals:
            raise _most_telling(refusals)
        if failures:
            raise none_answered(wrong, failures)
        raise wrong[0]

    def snapshot(self) -> tuple[EndpointStatus, ...]:
        """All of them, in the order of the settings."""
        return tuple(
            status_of(member, in_use=index == self._current)
            for index, member in enumerate(self._members)
        )

    async def close(self) -> None:
        for member in self._members:
            await member.endpoint.close()

    async def _verify(self, member: Member) -> None:
        if member.is_aside and member.wrong_chain is not None:
            raise member.wrong_chain
        if self._identity is not None:
            await member.verify(self._identity)

    def _took(self, index: int) -> None:
        if index != self._current:
            log.warning("rpc_send_failover", to=self._members[index].label)
        self._current = index

    def _order(self) -> list[int]:
        now_s = time.monotonic()
        rests = [max(0.0, member.health.resting_until_s - now_s) for member in self._members]
        return sorted(range(len(rests)), key=lambda index: (rests[index], index))


def _most_telling(refusals: Sequence[RpcError]) -> RpcError:
    """The first whose meaning is known: what another said in words of its own adds nothing."""
    known = (error for error in refusals if classify(error.message) is not SendError.UNKNOWN)
    return next(known, refusals[0])
