"""Keeps the pool at what registry, heartbeats and the operator say, while the daemon runs."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field

import structlog

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.net.guarded import ExchangeError, GuardedClient
from inferd.protocol.private import EncryptionKey
from inferd.protocol.worker_api import PULL
from inferd.workers import reputation
from inferd.workers.pool import WorkerPool
from inferd.workers.remote.client import Beat, Carrier, NoBeat, Operator, WorkerClient
from inferd.workers.remote.clocks import SkewFilter
from inferd.workers.remote.membership import (
    Bar,
    Heard,
    Membership,
    Registered,
    Terms,
    candidates,
    membership,
    names_told,
)
from inferd.workers.remote.worker import RemoteWorker
from inferd.workers.retries import RetryBudget

_LOOK_EVERY_S = 1.0
_JITTER = 0.2
"""Heartbeats are spread by this part of their interval, so that workers are not asked together."""

log = structlog.get_logger("workers")


@dataclass(frozen=True, slots=True)
class RosterTerms:
    """What the operator sets."""

    terms: Terms = field(default_factory=Terms)
    heartbeat_s: float = 5.0
    timeout_s: float = 10.0
    max_output_bytes: int = 4_000_000


@dataclass
class _Link:
    """One worker that is asked for heartbeats."""

    row: Registered
    worker: RemoteWorker
    skew: SkewFilter
    beat: Beat | None = None
    trouble: str | None = None
    task: asyncio.Task[None] | None = None

    def heard(self, now_s: float) -> Heard:
        if self.beat is None:
            return Heard(trouble=self.trouble, offset=self.skew.offset)
        return Heard(
            heartbeat=self.beat.heartbeat,
            age_s=max(0.0, now_s - self.beat.at_s),
            offset=self.skew.offset,
            trouble=self.trouble,
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered worker, for people."""

    row: Registered
    membership: Membership
    heard: Heard


class Roster:
    """One session's view of the workers on other machines."""

    def __init__(
        self,
        pool: WorkerPool,
        db: Pool,
        http: GuardedClient,
        operator: Operator | None,
        budget: RetryBudget,
        names: MutableMapping[bytes, str],
        *,
        terms: RosterTerms,
        on_change: Callable[[], None],
        pulls: Callable[[Address], Carrier] | None = None,
    ) -> None:
        """`names` are model names by id, which heartbeats add to. `on_change` is called when who is
        given work has changed. Without an operator's key nobody can be asked anything, and without
        `pulls`, which says how they are reached, none of those that pull."""
        self._pool = pool
        self._embedded = frozenset(worker.address for worker in pool.workers)
        self._db = db
        self._http = http
        self._operator = operator
        self._budget = budget
        self._names = names
        self._terms = terms
        self._on_change = on_change
        self._pulls = pulls
        self._links: dict[Address, _Link] = {}
        self._entries: dict[Address, Entry] = {}
        self._suspended: Mapping[Address, str] = {}
        self._barred: dict[Address, Bar | None] = {}
        self._told_of_key = False
        self._adopted = asyncio.Event()

    @property
    def entries(self) -> Mapping[Address, Entry]:
        """Every registered worker that is not embedded, as of the last look."""
        return self._entries

    def adopt(self, terms: RosterTerms) -> None:
        """Other terms from now on: the next look, within a second, finds who is in by them, and
        heartbeats come at the new pace. Limits of a call hold for workers that are linked anew."""
        self._terms = terms
        self._adopted.set()
        self._adopted = asyncio.Event()

    @property
    def unsigned(self) -> int:
        """Workers that would be asked if this node had a key that signs requests to them."""
        if self._operator is not None or not self._terms.terms.max_workers:
            return 0
        bars = (entry.membership.bar for entry in self._entries.values())
        return sum(bar is Bar.BAD_ENDPOINT for bar in bars)

    @property
    def encryption_keys(self) -> dict[Address, tuple[EncryptionKey, ...]]:
        """To which private inputs may be encrypted, as far as the heartbeats said."""
        return {
            address: keys
            for address, entry in self._entries.items()
            if (keys := entry.membership.announced.encryption_keys)
        }

    async def run(self) -> None:
        """For ever. Errors of the database propagate."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(_LOOK_EVERY_S)
        finally:
            await self._end(list(self._links.values()))
            self._links.clear()

    async def look(self) -> None:
        """Once: reads registry and suspensions, and brings the pool up to date."""
        async with self._db.acquire() as connection:
            rows = await registered(connection)
            self._suspended = {
                address: one.reason
                for address, one in (await reputation.suspensions(connection)).items()
            }
        await self._take_in(rows)

    async def _take_in(self, rows: Mapping[Address, Registered]) -> None:
        trouble: dict[Address, str] = {}
        for row in rows.values():
            if row.endpoint and row.address not in self._embedded:
                try:
                    self._client(row, SkewFilter())
                except ExchangeError as error:
                    trouble[row.address] = error.reason
        found = candidates(rows.values(), self._terms.terms, self._embedded, trouble)
        gone = [
            link
            for address, link in self._links.items()
            if address not in found
            or not found[address].listed
            or rows[address].endpoint != link.row.endpoint
        ]
        await self._end(gone)
        for link in gone:
            del self._links[link.row.address]
            self._pool.leave(link.row.address)
        for address in self._embedded:
            self._pool.hold(address, _suspended_words(self._suspended.get(address)))
        now_s, entries = time.monotonic(), {}
        for address, candidate in found.items():
            row = rows[address]
            if not candidate.listed:
                entries[address] = Entry(row, candidate, Heard())
                continue
            link = self._link(row)
            heard = link.heard(now_s)
            entries[address] = Entry(row, self._settle(link, heard), heard)
        self._entries = entries
        self._tell({address: entry.membership for address, entry in entries.items()})
        if self.unsigned and not self._told_of_key:
            self._told_of_key = True
            log.warning(
                "no_operator_key",
                workers=self.unsigned,
                reason="the poster's key is at a remote signer: name `pool.operator`",
            )

    def _link(self, row: Registered) -> _Link:
        link = self._links.get(row.address)
        if link is None:
            skew = SkewFilter()
            worker = RemoteWorker(
                self._client(row, skew),
                self._budget,
                max_output_bytes=self._terms.max_output_bytes,
            )
            link = self._links[row.address] = _Link(row, worker, skew)
            link.task = asyncio.create_task(self._beat_again_and_again(link))
        link.row = row
        return link

    def _client(self, row: Registered, skew: SkewFilter) -> WorkerClient:
        if self._operator is None:
            raise ExchangeError("this node has no operator's key that signs requests to workers")
        return WorkerClient(
            self._carrier(row),
            row.endpoint,
            row.address,
            self._operator,
            skew_s=lambda: self._skew_s(skew),
            timeout_s=self._terms.timeout_s,
        )

    def _carrier(self, row: Registered) -> Carrier:
        if row.endpoint != PULL:
            return self._http
        if self._pulls is None:
            raise ExchangeError("it pulls its jobs, and this node has no broker: name it in [pull]")
        return self._pulls(row.address)

    def _skew_s(self, skew: SkewFilter) -> float:
        """As far as it is tolerated: a clock that is further off must not make requests that are
        valid for long."""
        most_s = self._terms.terms.max_skew_s
        offset = skew.offset
        return 0.0 if offset is None else min(most_s, max(-most_s, offset.skew_ms / 1000.0))

    def _settle(self, link: _Link, heard: Heard) -> Membership:
        """What the worker is now, and the pool told of it."""
        address = link.row.address
        found = membership(link.row, heard, self._terms.terms, self._suspended.get(address))
        link.worker.announced = found.announced
        if heard.heartbeat is not None:
            for number, name in names_told(link.row, heard.heartbeat).items():
                self._names[number] = name
        self._pool.join(link.worker, held=found.why_not)
        return found

    def _tell(self, found: Mapping[Address, Membership]) -> None:
        bars = {address: member.bar for address, member in found.items()}
        changed = {
            address
            for address in {*bars, *self._barred}
            if bars.get(address, Bar.NO_ENDPOINT) != self._barred.get(address, Bar.NO_ENDPOINT)
        }
        self._barred = bars
        for address in sorted(changed):
            member = found.get(address)
            why_not = "it is not registered any more" if member is None else member.why_not
            log.info(
                "worker_out" if why_not is not None else "worker_in",
                worker="0x" + address.hex(),
                reason=why_not or "",
            )
        if changed:
            self._on_change()

    async def _beat_again_and_again(self, link: _Link) -> None:
        while True:
            await self._beat(link)
            now_s = time.monotonic()
            before = self._barred.get(link.row.address)
            entry = Entry(link.row, self._settle(link, link.heard(now_s)), link.heard(now_s))
            self._entries = {**self._entries, link.row.address: entry}
            if entry.membership.bar != before:
                self._tell({a: one.membership for a, one in self._entries.items()})
            pause_s = self._terms.heartbeat_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._adopted.wait()

    async def _beat(self, link: _Link) -> None:
        try:
            beat = await link.worker.client.beat()
        except ExchangeError as error:
            link.trouble = error.reason
        except NoBeat as error:
            link.trouble = error.reason
            if link.skew.offset is None and error.clock_s is not None:
                # Its clock may be why it refuses us. Whole seconds, and nobody's word for it.
                now_ms = time.time() * 1000.0
                link.skew.add(
                    sent_ms=now_ms - 1000.0, received_ms=now_ms, theirs_ms=error.clock_s * 1000.0
                )
        else:
            link.beat, link.trouble = beat, None
            link.skew.add(
                sent_ms=beat.sent_ms,
                received_ms=beat.received_ms,
                theirs_ms=float(beat.heartbeat.at_ms),
            )

    @staticmethod
    async def _end(links: list[_Link]) -> None:
        tasks = [link.task for link in links if link.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _suspended_words(reason: str | None) -> str | None:
    return None if reason is None else f"it is suspended: {reason}"


async def registered(connection: Connection) -> dict[Address, Registered]:
    """The whole registry."""
    rows = await connection.fetch(
        "SELECT signer, owner, models, endpoint, slots, memory_mb, enabled, staked, stake_wei"
        " FROM chain.worker"
    )
    return {
        Address(row["signer"]): Registered(
            address=Address(row["signer"]),
            owner=Address(row["owner"]),
            models=frozenset(row["models"]),
            endpoint=row["endpoint"].decode("utf-8", "replace"),
            slots=row["slots"],
            memory_mb=row["memory_mb"],
            enabled=row["enabled"],
            staked=row["staked"],
            stake_wei=int(row["stake_wei"]),
        )
        for row in rows
    }
