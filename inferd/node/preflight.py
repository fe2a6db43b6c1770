"""Before any work: is this the chain, are these the contracts, what have they fixed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from indexer.rpc import Rpc
from indexer.schema import Migration, migrations_in
from inferd.chain.connect import check_chain, read_view
from inferd.protocol.deployment import Deployment


@dataclass(frozen=True, slots=True)
class ChainFacts:
    """What the deployed contracts have fixed for ever."""

    poster_bps: int


def node_migrations() -> tuple[Migration, ...]:
    """The daemon's own tables."""
    return migrations_in(files("inferd.node") / "migrations")


async def inspect_chain(rpc: Rpc, deployment: Deployment) -> ChainFacts:
    """Raises WrongChain, NoContractCode, RpcUnreachable."""
    await check_chain(rpc, deployment)
    await rpc.check_relays()
    (poster_bps,) = await read_view(
        rpc, deployment.contracts.requests, "InferenceRequests", "posterBps"
    )
    return ChainFacts(poster_bps)
