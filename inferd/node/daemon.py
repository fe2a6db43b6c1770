"""The daemon: comes up in a fixed order, then works whenever it leads.

Once per process: API, database, chain, keys, models. Once per leadership ("session"): indexer,
rounds, dispatch, settlement, upkeep, or those of the process's roles. Losing the database or the
leadership ends the session, not the process; what only a person can mend ends the process with its
exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import structlog
from eth_utils.address import to_checksum_address

from indexer.database import AWAY, CONNECTION_LOST, Pool, open_pool
from indexer.errors import (
    DatabaseUnreachable,
    OperatorError,
    RpcUnreachable,
    TemporaryError,
)
from indexer.rpc import Rpc, RpcError
from indexer.types import Address
from inferd.chain.keys import BadKey
from inferd.chain.signers import TransactionSigner, opened_signer
from inferd.node.api import ApiState, build_api
from inferd.node.backfill_bar import BackfillBar
from inferd.node.crew import Crew, hired
from inferd.node.health import Health
from inferd.node.leader import Leadership, LostLeadership, become_leader, become_part, poster_role
from inferd.node.logs import configure_logs
from inferd.node.memory import give_back
from inferd.node.metrics import LEADER, READY, SESSION_ENDS, count_call
from inferd.node.operator_key import opened_operator
from inferd.node.others import Others
from inferd.node.preflight import ChainFacts, inspect_chain
from inferd.node.private_keys import statement_of
from inferd.node.roles import Role, Roles, computes, exclusive, is_whole
from inferd.node.server import announced, bind, serve, url_of
from inferd.node.session import Session
from inferd.node.session_settings import own_accounts
from inferd.node.settings import Settings, taken_over
from inferd.node.status import StatusReader
from inferd.node.store import Database
from inferd.node.supervise import PASSING, CrashLoop, SessionEnded, first_cause, run_all
from inferd.node.threads import give_way
from inferd.outputs.files import OutputFiles
from inferd.protocol.deployment import Deployment, load_deployment
from inferd.signals import until_signalled
from inferd.workers.key_files import load_keys
from inferd.workers.remote.client import Operator

_FIRST_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 5.0
_LONG_ENOUGH_S = 30.0  # a session that held so long was no failed start
_MAX_BROKEN_SESSIONS = 10
_BROKEN_WITHIN_S = 300.0
_ALL_IN_THE_DATABASE = 2**63
_OF_THE_CHAIN = frozenset({Role.INDEX, Role.SCHEDULE, Role.SETTLE})
"""Roles that need to know what the contracts have fixed."""

log = structlog.get_logger("node")


def run(settings: Settings, roles: Roles, read: Callable[[], Settings]) -> None:
    """Does the work of these roles until SIGTERM or SIGINT; at SIGHUP it takes over what `read`
    gives of the settings that can change. Raises OperatorError for what only a person can mend."""
    configure_logs(settings.log_level, settings.log_format)
    give_way()
    give_back()
    try:
        asyncio.run(_until_signalled(settings, roles, read))
    except BaseExceptionGroup as group:
        raise first_cause(group) from None


async def _until_signalled(settings: Settings, roles: Roles, read: Callable[[], Settings]) -> None:
    rereading = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, rereading.set)
    work = asyncio.create_task(_work(settings, roles, read, rereading))
    await until_signalled(work, on_stop=lambda: log.info("stopping"))


async def _work(
    settings: Settings,
    roles: Roles,
    read: Callable[[], Settings],
    rereading: asyncio.Event,
) -> None:
    deployment = load_deployment(settings.deployment_file)
    listener = bind(settings.api)
    api = ApiState(Health(), roles=roles)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        stack.enter_context(announced(listener, settings.data_dir))
        log.info("serving_api", url=url_of(listener))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(serve(build_api(api), listener))
            async with _started(settings, roles, deployment, api) as node:
                tasks.create_task(_reread(node, read, rereading))
                await node.lead_again_and_again()


async def _reread(node: Node, read: Callable[[], Settings], rereading: asyncio.Event) -> None:
    while True:
        await rereading.wait()
        rereading.clear()
        try:
            fresh = await asyncio.to_thread(read)
        except OperatorError as error:
            log.error("settings_refused", code=error.code, error=error.message)
        else:
            await node.take_over(fresh)


@contextlib.asynccontextmanager
async def _started(
    settings: Settings, roles: Roles, deployment: Deployment, api: ApiState
) -> AsyncIterator[Node]:
    """Database, chain, keys, models, in this order; the API tells meanwhile that it starts.

    Only what the roles need is asked and opened.
    """
    async with contextlib.AsyncExitStack() as stack:
        rpc = await stack.enter_async_context(
            Rpc(settings.rpc_urls, send_urls=settings.rpc_send_urls, observer=count_call)
        )
        database = Database(settings)
        stack.push_async_callback(database.leave)
        await database.prepare()
        contracts = deployment.contracts
        facts = await inspect_chain(rpc, deployment) if roles & _OF_THE_CHAIN else None
        posters: Sequence[TransactionSigner] = ()
        if Role.SETTLE in roles:
            posters = await opened_posters(settings, contracts.chain_id, stack)
        asks = roles & {Role.DISPATCH, Role.SETTLE}
        operator = opened_operator(settings, contracts) if asks else None
        if computes(roles):
            keys = load_keys(settings.private.key_files, settings.data_dir / "encryption.key")
            poster = settings.named_posters["poster"]
            api.key = statement_of(keys, poster, posters[0].address, contracts)
            crew = await stack.enter_async_context(hired(settings, contracts, keys))
        else:
            crew = Crew((), contracts, ())
        yield Node(settings, roles, deployment, rpc, database, facts, posters, operator, crew, api)


async def opened_posters(
    settings: Settings, chain_id: int, stack: contextlib.AsyncExitStack
) -> tuple[TransactionSigner, ...]:
    """In the order of the settings, until the stack is left. Raises BadKey."""
    opened = [
        await stack.enter_async_context(opened_signer(source, chain_id, use=name))
        for name, source in settings.named_posters.items()
    ]
    for address, uses in Counter(signer.address for signer in opened).items():
        if uses > 1:
            raise BadKey(
                f"{uses} posters have the key of {to_checksum_address(address)}",
                help_text="name each once in `posters`",
            )
    return tuple(opened)


@dataclass
class Node:
    """The parts that live as long as the process."""

    settings: Settings
    roles: Roles
    deployment: Deployment
    rpc: Rpc
    database: Database
    facts: ChainFacts | None
    """None where no role of this process needs them."""
    posters: Sequence[TransactionSigner]
    operator: Operator | None
    """Asks workers of other machines; None where no key can sign for it."""
    crew: Crew
    api: ApiState

    def __post_init__(self) -> None:
        self.health = self.api.health
        self.status = StatusReader(
            self.settings,
            self.deployment.contracts.chain_id,
            self.health,
            self.crew,
            self.roles,
        )
        self.bar = BackfillBar(sys.stderr, self.deployment.contracts.start_block)
        self.api.names = self.crew.names
        self.outputs = OutputFiles(
            self.settings.data_dir / "outputs",
            # The other processes of a split node have other disks.
            above_bytes=self.settings.outputs.database_kb * 1_000
            if is_whole(self.roles)
            else _ALL_IN_THE_DATABASE,
        )
        self.api.outputs = self.outputs
        self.own_accounts: frozenset[Address] | None = None
        """None where who has the posters' keys has to tell it."""
        if Role.SETTLE in self.roles or self.settings.posting.own_accounts is not None:
            self.own_accounts = own_accounts(
                self.settings,
                self.deployment.contracts.chain_id,
                [poster.address for poster in self.posters],
            )
            self.api.own_accounts = self.own_accounts
        self.api.status = self.status
        self._broken_sessions: deque[float] = deque(maxlen=_MAX_BROKEN_SESSIONS)

    async def take_over(self, fresh: Settings) -> None:
        """What of the settings can change while the daemon runs: from the next round on."""
        self.settings, others = taken_over(self.settings, fresh)
        if others:
            log.warning("settings_need_restart", settings=others)
        log.info("settings_read", policy=str(fresh.scheduling.choice))
        # A session that begins does it by itself.
        while (session := self.status.session) is not None:
            try:
                await session.adopt_settings()
            except (LostLeadership, *CONNECTION_LOST, *PASSING) as error:
                log.warning("settings_wait", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(_FIRST_BACKOFF_S)
            else:
                return

    async def lead_again_and_again(self) -> None:
        """Raises what only a person can mend."""
        backoff_s = _FIRST_BACKOFF_S
        while True:
            began_s = time.monotonic()
            try:
                await self.database.ensure_running()
                async with _pool(self.database.url) as db:
                    self.api.db = self.status.db = db
                    self.health.clear("database_unreachable")
                    await self._lead(db)
            except (
                SessionEnded,
                LostLeadership,
                TemporaryError,
                RpcError,
                *CONNECTION_LOST,
                *PASSING,
            ) as error:
                self._session_ended(error)
                if self.health.role == "leader":
                    self._count_broken_session(error)
                self._become("starting")
                self._tell_why(error)
            finally:
                self.api.db = self.status.db = None
            if time.monotonic() - began_s > _LONG_ENOUGH_S:
                backoff_s = _FIRST_BACKOFF_S
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    async def _lead(self, db: Pool) -> None:
        if self.roles == {Role.API}:
            await self._answer(db)
        self._become("standby")
        leadership = await self._roles_had()
        self._become("leader")
        session = Session(self, db, leadership)
        self.status.session = session
        self.api.others = self.status.others = session.others
        try:
            await session.run()
        finally:
            self.status.session = self.api.others = self.status.others = None
            await leadership.release()

    async def _roles_had(self) -> Leadership:
        holder = f"{socket.gethostname()}:{os.getpid()}"
        if is_whole(self.roles):
            return await become_leader(self.database.url, holder)
        chain_id = self.deployment.contracts.chain_id
        # Two processes with one worker's key would sign two answers to one request.
        keys = [f"worker 0x{address.hex()}" for address in self.crew.addresses]
        keys += [poster_role(chain_id, poster.address) for poster in self.posters]
        roles = [str(role) for role in exclusive(self.roles)]
        return await become_part(self.database.url, holder, roles, sorted(keys))

    async def _answer(self, db: Pool) -> NoReturn:
        """Without a lock: it writes nothing."""
        others = Others(db, self.crew.names)
        self.api.others = self.status.others = others
        try:
            await others.look()
            self.health.start_anew("reader")
            self.health.clear("starting")
            READY.set(self.health.ready)
            await run_all({"others": others.run})
        finally:
            self.api.others = self.status.others = None

    def _become(self, role: str) -> None:
        self.health.start_anew(role)
        LEADER.set(role == "leader")
        READY.set(self.health.ready)

    def _session_ended(self, error: BaseException) -> None:
        SESSION_ENDS.inc()
        log.warning("session_ended", error=f"{type(error).__name__}: {error}")

    def _count_broken_session(self, error: BaseException) -> None:
        """A database that is away is one thing; sessions that all break on a healthy one another.

        Raises CrashLoop.
        """
        cause = error.__cause__ or error
        if isinstance(cause, (*PASSING, *AWAY, LostLeadership, TemporaryError, RpcError)):
            return
        now_s = time.monotonic()
        self._broken_sessions.append(now_s)
        if (
            len(self._broken_sessions) == _MAX_BROKEN_SESSIONS
            and now_s - self._broken_sessions[0] < _BROKEN_WITHIN_S
        ):
            raise CrashLoop(
                f"{_MAX_BROKEN_SESSIONS} sessions broke within {_BROKEN_WITHIN_S:.0f} s",
                help_text="the log above says on what; look at the database server and the disk",
            )

    def _tell_why(self, error: BaseException) -> None:
        if isinstance(error, RpcUnreachable | RpcError):
            self.health.raise_problem("rpc_unreachable", str(error))
        elif isinstance(error, TemporaryError) and not isinstance(error, DatabaseUnreachable):
            self.health.raise_problem("starting", f": {error.message}")
        elif not isinstance(error, LostLeadership) and not isinstance(
            error.__cause__, LostLeadership
        ):
            self.health.raise_problem("database_unreachable", type(error).__name__)


@contextlib.asynccontextmanager
async def _pool(url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(url)
    try:
        yield pool
    finally:
        # Connections that hang in a dead server's socket must not hold up the end.
        with contextlib.suppress(TimeoutError, *CONNECTION_LOST):
            async with asyncio.timeout(3):
                await pool.close()
        pool.terminate()
