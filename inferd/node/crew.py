"""The workers of this process: their keys and models, loaded once and kept across sessions."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from eth_keys.datatypes import PrivateKey

from indexer.database import Pool
from indexer.types import Address, Contracts
from inferd.chain.keys import BadKey, open_account
from inferd.node.settings import Settings
from inferd.node.worker_settings import WorkerSettings
from inferd.outputs.files import OutputFiles
from inferd.protocol.private import DecryptionKey
from inferd.protocol.request import ModelId, model_id
from inferd.protocol.typed_data import domain_separator
from inferd.workers.backends.base import Backend
from inferd.workers.backends.opening import Stock, stocked
from inferd.workers.local import LocalWorker
from inferd.workers.pool import WorkerPool
from inferd.workers.results import ResultLog
from inferd.workers.sealing import Sealing


@dataclass(frozen=True, slots=True)
class Member:
    """One worker: what the settings say of it, its key, its models."""

    settings: WorkerSettings
    key: PrivateKey
    stock: Stock

    @property
    def address(self) -> Address:
        return Address(self.key.public_key.to_canonical_address())

    @property
    def models(self) -> dict[ModelId, Backend]:
        return {model_id(backend.name): backend for backend in self.stock.backends}


class Crew:
    """All of them. A session makes its pool from them, on its own database."""

    def __init__(
        self, members: tuple[Member, ...], contracts: Contracts, keys: Sequence[DecryptionKey]
    ) -> None:
        """Inputs may be encrypted to any of the keys."""
        self.members = members
        self.sealing = Sealing(keys, contracts.chain_id, contracts.requests)
        self.names: dict[bytes, str] = {
            number: backend.name for member in members for number, backend in member.models.items()
        }
        self._domain = domain_separator(contracts.chain_id, contracts.results)

    @property
    def addresses(self) -> frozenset[Address]:
        return frozenset(member.address for member in self.members)

    def pool_on(self, db: Pool, files: OutputFiles) -> WorkerPool:
        """A pool that consults the results stored in `db` before anything is signed; large outputs
        are in `files`."""
        log = ResultLog(db, files)
        return WorkerPool(
            LocalWorker(
                member.settings.name,
                member.key,
                self._domain,
                member.models,
                slots=member.settings.slots,
                memory_mb=member.settings.memory_mb,
                signatures=log,
                memory=member.stock.memory,
                sealing=self.sealing,
            )
            for member in self.members
        )


@contextlib.asynccontextmanager
async def hired(
    settings: Settings, contracts: Contracts, encryption: Sequence[DecryptionKey]
) -> AsyncIterator[Crew]:
    """Opens keys and loads models of the workers that have no agent of their own; private inputs
    are opened by the keys `encryption`.

    Raises BadKey, and the back ends' OperatorErrors.
    """
    embedded = [worker for worker in settings.workers if not worker.endpoint]
    keys = [
        open_account(worker.key, contracts.chain_id, use=f"worker {worker.name}")
        for worker in embedded
    ]
    for address, uses in Counter(account.address for account in keys).items():
        if uses > 1:
            raise BadKey(
                f"{uses} workers have the key of {address}",
                help_text="give each its own: a worker is known by its key",
            )
    async with contextlib.AsyncExitStack() as stack:
        members = []
        for worker, account in zip(embedded, keys, strict=True):
            stock = await stack.enter_async_context(
                stocked(worker.choices, memory_mb=worker.memory_mb, cache_dir=settings.cache_dir)
            )
            members.append(Member(worker, PrivateKey(bytes(account.key)), stock))
        yield Crew(tuple(members), contracts, encryption)
