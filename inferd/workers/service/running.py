"""Runs an agent from its first check on."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from eth_utils.address import to_checksum_address

from indexer.rpc import Rpc
from inferd.chain.connect import check_chain, read_view
from inferd.chain.register import info_hash
from inferd.protocol.deployment import Deployment
from inferd.protocol.request import model_id
from inferd.workers.backends.check import check_in
from inferd.workers.backends.choice import BackendChoice
from inferd.workers.backends.opening import Stock, stocked
from inferd.workers.key_files import load_keys
from inferd.workers.sealing import Sealing
from inferd.workers.service.agent import Post, opened_log, serving
from inferd.workers.service.settings import AgentSettings

if TYPE_CHECKING:
    from inferd.workers.pull.broker import Broker

_ZERO_ADDRESS = "0x" + "00" * 20

log = structlog.get_logger("agent")


async def run_agent(
    post: Post,
    choices: Sequence[BackendChoice],
    settings: AgentSettings,
    deployment: Deployment,
    rpc_urls: tuple[str, ...],
    *,
    endpoint: str,
    data_dir: Path,
    cache_dir: Path,
    broker: Broker | None = None,
) -> None:
    """Until SIGTERM or Ctrl-C. Log, keys, chain, back ends, in this order; then it listens, or
    takes from the broker.

    Raises the OperatorErrors of each.
    """
    folder = post.folder(data_dir)
    async with contextlib.AsyncExitStack() as stack:
        signatures = opened_log(post, data_dir)
        stack.push_async_callback(signatures.close)
        keys = load_keys(settings.encryption_key_files, folder / "encryption.key")
        sealing = Sealing(keys, post.contracts.chain_id, post.contracts.requests)
        async with Rpc(rpc_urls) as rpc:
            await check_chain(rpc, deployment)
            await _look_up(rpc, post, [choice.model for choice in choices], endpoint)
        stock = await stack.enter_async_context(
            stocked(choices, memory_mb=post.memory_mb, cache_dir=cache_dir)
        )
        speeds = await _checked(stock, post.slots)
        agent = await stack.enter_async_context(
            serving(
                post,
                stock,
                settings,
                signatures,
                folder=folder,
                tokens_per_s=speeds,
                sealing=sealing,
                broker=broker,
            )
        )
        await agent.upkeep


async def _checked(stock: Stock, slots: int) -> dict[str, float]:
    """Tokens a second of each model, all of which have answered."""
    speeds = {}
    # The first is the one that is surely in memory afterwards.
    for backend in reversed(stock.backends):
        report = await check_in(stock.memory, backend)
        speeds[backend.name] = report.tokens_per_s or 0.0
        log.info("backend_checked", **report.as_json())
        if not report.deterministic:
            log.warning(
                "answers_differ",
                model=report.model,
                help="an answer that is lost after its acknowledgement cannot be made again",
            )
        if report.server_slots is not None and report.server_slots < slots:
            log.warning(
                "server_has_fewer_slots",
                model=report.model,
                slots=slots,
                server_slots=report.server_slots,
                help="requests wait at the server: lower `slots`, or start it with more",
            )
    return speeds


async def _look_up(rpc: Rpc, post: Post, models: Sequence[str], endpoint: str) -> None:
    """Says what on chain keeps operators from asking, or paying, this worker."""
    shown = to_checksum_address(post.address)
    (record,) = await read_view(rpc, post.contracts.registry, "WorkerRegistry", "workerOf", [shown])
    owner, enabled, staked, slots, memory_mb, info = record
    if owner == _ZERO_ADDRESS:
        log.warning("worker_not_registered", worker=shown, help="inferd worker register")
        return
    if not enabled:
        log.warning("worker_disabled", worker=shown, help="its owner has taken it out of service")
    if not staked:
        log.warning("worker_not_staked", worker=shown, help="inferd worker register")
    if (slots, memory_mb, info) != (
        post.slots,
        post.memory_mb,
        info_hash([model_id(model) for model in models], endpoint),
    ):
        log.warning(
            "offer_differs_on_chain",
            worker=shown,
            help="inferd worker register brings it to what the settings say",
        )
