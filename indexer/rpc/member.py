"""One endpoint of a pool: asked within its limits, checked before it is believed, measured."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import structlog

from indexer.errors import RpcUnreachable, WrongChain
from indexer.rpc import wire
from indexer.rpc.bucket import TokenBucket
from indexer.rpc.endpoint import Endpoint
from indexer.rpc.exchange import Parse, call_object, parsed, parser
from indexer.rpc.health import Health
from indexer.rpc.types import RpcAnswerTooLarge, RpcError, RpcRateLimited
from indexer.types import Hash32

T = TypeVar("T")

_ASIDE_S = 60.0
_COMPARABLE = frozenset({"eth_blockNumber", "eth_chainId", "eth_getBlockByNumber"})

log = structlog.get_logger("indexer")


@dataclass(frozen=True, slots=True)
class ChainIdentity:
    """Which chain: another one may have the same chain id."""

    chain_id: int
    genesis_hash: Hash32


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One exchange with one endpoint, for whoever counts."""

    endpoint: str
    method: str
    """Of a batch, that of its calls."""
    outcome: str
    """ok, error (the node's own error object), or what came instead of an answer."""
    took_s: float
    calls: int = 1
    """How many were in it."""


Observer = Callable[[CallRecord], None]


class Member:
    """Errors of the exchange change its health and propagate."""

    def __init__(
        self, label: str, endpoint: Endpoint, patience_s: float, *, only_sends: bool = False
    ) -> None:
        self.label = label
        """Unlike any other in the pool: two URLs may differ only in what must not be shown."""
        self.endpoint = endpoint
        self.health = Health()
        self.bucket = TokenBucket()
        self.last_error: str | None = None
        self.wrong_chain: WrongChain | None = None
        """Why it is put aside."""
        self.observer: Observer | None = None
        self._patience_s = patience_s
        self._only_sends = only_sends
        """Whether it is only sent to: then it need not know any other method."""
        self._quiet_until_s = 0.0
        self._verified: ChainIdentity | None = None
        self._verified_connections = 0
        self._aside_until_s = 0.0
        self._passed_over_until_s = 0.0
        self._checking = asyncio.Lock()
        self._dice = random.Random()  # noqa: S311 - spreads load, keeps no secret

    @property
    def is_aside(self) -> bool:
        """Whether it showed less than a minute ago that it serves another chain."""
        return self.wrong_chain is not None and time.monotonic() < self._aside_until_s

    @property
    def is_passed_over(self) -> bool:
        """Whether it showed less than its rest ago that it cannot serve what is asked."""
        return time.monotonic() < self._passed_over_until_s

    def doubt(self) -> None:
        """It has to show again which chain it serves before it is believed."""
        self._verified = None

    def forget_chain(self) -> None:
        """Another chain is expected from now on."""
        self._verified = self.wrong_chain = None

    def wait_s(self) -> float:
        """How long it wants no call."""
        now_s = time.monotonic()
        return max(self.bucket.wait_s(now_s), self._quiet_until_s - now_s, 0.0)

    async def exchange(self, method: str, body: bytes, parse: Parse[T], *, calls: int = 1) -> T:
        """Raises RpcUnreachable or one of its kinds, and RpcError."""
        await self._turn(calls)
        started_s = time.monotonic()
        outcome = "cancelled"
        try:
            answer = await self.endpoint.post(body)
            value = parsed(answer, self.endpoint, parse)
        except RpcError:
            outcome = "error"
            self._answered(method, started_s, calls)
            raise
        except RpcUnreachable as error:
            outcome = error.code.removeprefix("rpc_")
            self._failed(error)
            raise
        else:
            outcome = "ok"
            self._answered(method, started_s, calls)
            return value
        finally:
            if self.observer is not None:
                took_s = time.monotonic() - started_s
                self.observer(CallRecord(self.label, method, outcome, took_s, calls))

    async def verify(self, identity: ChainIdentity) -> None:
        """Makes sure that it serves this chain, if that is not known since the last trouble and the
        last connection: a node that is started anew between two calls fails none of them.

        A node that has pruned its first block proves nothing by it and is believed, as is one that
        is only sent to and does not know the method. Raises WrongChain, and what `exchange` raises.
        """
        if self._is_verified(identity):
            return
        async with self._checking:
            if self._is_verified(identity):
                return
            if self.is_aside and self.wrong_chain is not None:
                raise self.wrong_chain  # Who asked at the same time has just found out.
            chain_id = await self._shown("eth_chainId", (), wire.parse_quantity)
            wrong = None
            if chain_id is not None and chain_id != identity.chain_id:
                wrong = (
                    f"{self.label} serves chain {chain_id}, and the deployment is on chain"
                    f" {identity.chain_id}"
                )
            else:
                genesis = await self._shown(
                    "eth_getBlockByNumber", ("0x0", False), wire.parse_header
                )
                if genesis is not None and genesis.hash != identity.genesis_hash:
                    wrong = (
                        f"{self.label} serves another chain with the same chain id {chain_id}:"
                        " its first block (genesis) differs"
                    )
            if wrong is not None:
                raise self._put_aside(wrong)
            if self.wrong_chain is not None:
                log.info("endpoint_back", endpoint=self.label)
            self.wrong_chain = None
            self._verified = identity
            self._verified_connections = self.endpoint.connections

    def _is_verified(self, identity: ChainIdentity) -> bool:
        same_connections = self._verified_connections == self.endpoint.connections
        return self._verified == identity and same_connections

    async def probe(self) -> int:
        """Its newest block: what a call costs, and how far it is. Raises as `exchange`."""
        self.health.head = await self._ask("eth_blockNumber", (), wire.parse_quantity)
        return self.health.head

    def pass_over(self, why: str, rest_s: float) -> None:
        """Asked only where no other answers, for that long."""
        self._passed_over_until_s = time.monotonic() + rest_s
        self.health.failed(time.monotonic(), jitter=0.0, at_least_s=rest_s)
        self.last_error = why

    async def _shown(
        self, method: str, params: Sequence[Any], parse: Callable[[msgspec.Raw], T]
    ) -> T | None:
        """None where one that is only sent to refuses the question."""
        if not self._only_sends:
            return await self._ask(method, params, parse)
        body = msgspec.json.encode(call_object(0, method, params))
        try:
            return await self.exchange(method, body, parser(0, parse))
        except RpcError:
            return None

    async def _ask(
        self, method: str, params: Sequence[Any], parse: Callable[[msgspec.Raw], T]
    ) -> T:
        body = msgspec.json.encode(call_object(0, method, params))
        try:
            return await self.exchange(method, body, parser(0, parse))
        except RpcError as error:
            # Nobody asked this question but the pool itself: to a caller it is no answer.
            raise self.endpoint.malformed(f"{method}: {error}") from None

    async def _turn(self, calls: int) -> None:
        while (wait_s := self.wait_s()) > 0:
            if wait_s > self._patience_s:
                raise self.endpoint.rate_limited(f"for {wait_s:.0f} s more", retry_after_s=wait_s)
            await asyncio.sleep(wait_s)
        self.bucket.take(time.monotonic(), calls)

    def _answered(self, method: str, started_s: float, calls: int) -> None:
        comparable = method in _COMPARABLE and calls == 1
        self.health.answered(time.monotonic() - started_s, comparable=comparable)
        self.last_error = None

    def _failed(self, error: RpcUnreachable) -> None:
        if isinstance(error, RpcAnswerTooLarge):
            return  # Not the endpoint's fault: the question has to become smaller.
        now_s = time.monotonic()
        at_least_s = 0.0
        if isinstance(error, RpcRateLimited):
            self.bucket.slow_down(now_s)
            at_least_s = error.retry_after_s
            self._quiet_until_s = now_s + at_least_s
        else:
            # Whoever answers next at this address may be another node.
            self._verified = None
        self.health.failed(now_s, jitter=self._dice.random(), at_least_s=at_least_s)
        self.last_error = error.message

    def _put_aside(self, why: str) -> WrongChain:
        if self.wrong_chain is None:
            log.warning("endpoint_put_aside", endpoint=self.label, because=why)
        self.wrong_chain = WrongChain(
            why,
            help_text=f"correct `{self.endpoint.setting}` or `deployment_file`; a development chain"
            " that was started anew needs a new deployment (`inferd deploy`)",
        )
        self._aside_until_s = time.monotonic() + _ASIDE_S
        return self.wrong_chain


def open_members(
    urls: Sequence[str],
    *,
    timeout_s: float,
    observer: Observer | None,
    setting: str,
    only_sends: bool = False,
) -> list[Member]:
    """One for each URL, in their order, each with a label of its own. Raises BadRpcUrl."""
    members: list[Member] = []
    for url in urls:
        endpoint = Endpoint(url, timeout_s=timeout_s, setting=setting)
        same = sum(member.endpoint.shown == endpoint.shown for member in members)
        label = (
            endpoint.shown + (" sends" if only_sends else "") + (f" ({same + 1})" if same else "")
        )
        member = Member(label, endpoint, timeout_s, only_sends=only_sends)
        member.observer = observer
        members.append(member)
    return members
