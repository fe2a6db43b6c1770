"""What commands share: the settings, read once, and the deployment's chain, checked first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from indexer.rpc import Rpc
from indexer.types import Contracts
from inferd.chain.connect import check_chain
from inferd.chain.keys import KeySource
from inferd.chain.signers import opened_signer
from inferd.chain.transact import Sender
from inferd.node.logs import configure_logs
from inferd.node.settings import Settings, load_settings
from inferd.protocol.deployment import Deployment, load_deployment

T = TypeVar("T")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
IdArgument = Annotated[int, typer.Argument(metavar="ID", help="The request's id.")]


@dataclass
class Session:
    """One run of one command."""

    config: Path | None = None

    @cached_property
    def settings(self) -> Settings:
        """Raises BadSettings."""
        settings = load_settings(self.config)
        configure_logs(settings.log_level, "console")
        return settings

    @cached_property
    def deployment(self) -> Deployment:
        """Raises BadDeploymentFile."""
        return load_deployment(self.settings.deployment_file)


@dataclass(frozen=True, slots=True)
class DeployedChain:
    """An endpoint that serves the chain of the deployment file."""

    rpc: Rpc
    contracts: Contracts
    _signers: AsyncExitStack

    async def sender(self, key: KeySource, *, use: str) -> Sender:
        """Until the chain is left. Raises BadKey."""
        opened = opened_signer(key, self.contracts.chain_id, use=use)
        signer = await self._signers.enter_async_context(opened)
        return Sender(self.rpc, signer, self.contracts.chain_id)


@asynccontextmanager
async def deployed_chain(session: Session) -> AsyncIterator[DeployedChain]:
    """Raises BadSettings, BadDeploymentFile, WrongChain, NoContractCode, RpcUnreachable."""
    deployment = session.deployment
    settings = session.settings
    async with Rpc(settings.rpc_urls, send_urls=settings.rpc_send_urls) as rpc:
        await check_chain(rpc, deployment)
        async with AsyncExitStack() as signers:
            yield DeployedChain(rpc, deployment.contracts, signers)


def session_of(context: typer.Context) -> Session:
    """The session that the main command made."""
    session: Session = context.ensure_object(Session)
    return session


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Runs one command's work; Ctrl-C cancels it and raises KeyboardInterrupt."""
    return asyncio.run(work)
