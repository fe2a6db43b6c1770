"""Puts a worker on chain and stakes it; doing it twice changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from eth_abi.abi import encode
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_canonical_address, to_checksum_address
from eth_utils.crypto import keccak

from indexer.decode import topic_of
from indexer.errors import OperatorError
from indexer.events import WorkerRegistered, WorkerUpdated
from indexer.rpc import RawLog, Rpc
from indexer.types import Address, Contracts, Hash32, Wei
from inferd.chain.connect import read_view
from inferd.chain.events import newest_event
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.request import ModelId, model_id
from inferd.protocol.typed_data import consent_digest, domain_separator, sign_digest

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_ZERO = Address(bytes(20))
_REGISTERED = topic_of("WorkerRegistered(address,address,bytes32[],string,uint32,uint32)")
_UPDATED = topic_of("WorkerUpdated(address,address,bytes32[],string,uint32,uint32)")


class WorkerOwnedByOther(OperatorError):
    """The worker's key is registered by another owner; that never changes."""

    code: ClassVar[str] = "worker_owned_by_other"


class WorkerNotRegistered(OperatorError):
    """The worker is not on chain."""

    code: ClassVar[str] = "worker_not_registered"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker offers."""

    models: tuple[ModelId, ...]
    endpoint: str
    """Empty = in the operator's process."""
    slots: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Registration:
    """What `register_worker` found and did."""

    signer: Address
    owner: Address
    registered: bool
    """By this call."""
    updated: bool
    """The offer on chain was another one, and is now this one."""
    added_stake_wei: Wei
    stake_wei: Wei
    """In force now."""
    enabled: bool
    """False where the owner took the worker out of service; its results are skipped."""


async def register_worker(
    sender: Sender,
    worker_account: LocalAccount,
    models: Sequence[str],
    slots: int,
    memory_mb: int,
    stake_wei: Wei | None,
    contracts: Contracts,
    *,
    endpoint: str = "",
) -> Registration:
    """Registers the worker, updates its offer, adds missing stake: each only where needed.

    `sender` owns it and pays. The stake is brought to `stake_wei`, at least to the contract's
    minimum; None = the minimum. Raises WorkerOwnedByOther and what `Sender.send` raises.
    """
    signer = Address(to_canonical_address(worker_account.address))
    identities = [model_id(name) for name in models]
    shown = to_checksum_address(signer)
    (record,) = await read_view(
        sender.rpc, contracts.registry, "WorkerRegistry", "workerOf", [shown]
    )
    owner_on_chain = Address(to_canonical_address(record[0]))
    enabled, staked = record[1:3]
    registered = updated = False
    if owner_on_chain == _ZERO:
        domain = domain_separator(contracts.chain_id, contracts.registry)
        consent = sign_digest(
            PrivateKey(bytes(worker_account.key)), consent_digest(domain, sender.address, signer)
        )
        data = calls.register_worker(signer, identities, endpoint, slots, memory_mb, consent)
        await sender.send(contracts.registry, data)
        registered = enabled = True
    else:
        _refuse_other_owner(sender, signer, owner_on_chain)
        if record[3:] != (slots, memory_mb, info_hash(identities, endpoint)):
            data = calls.update_worker(signer, identities, endpoint, slots, memory_mb)
            await sender.send(contracts.registry, data)
            updated = True
    added_wei, total_wei = await _bring_stake_to(sender, signer, stake_wei, staked, contracts)
    return Registration(
        signer, sender.address, registered, updated, added_wei, total_wei, bool(enabled)
    )


async def read_offer(rpc: Rpc, contracts: Contracts, signer: Address) -> Offer:
    """What the worker offers now, from its newest event. Raises WorkerNotRegistered."""
    at = contracts.registry
    about = bytes(12) + signer
    newest: tuple[WorkerUpdated | WorkerRegistered, RawLog] | None
    newest = await newest_event(rpc, contracts, at, (_UPDATED, about), WorkerUpdated)
    if newest is None:
        newest = await newest_event(rpc, contracts, at, (_REGISTERED, about), WorkerRegistered)
    if newest is None:
        raise WorkerNotRegistered(
            f"worker {to_checksum_address(signer)} is not registered",
            help_text="register it first, with `inferd worker register`",
        )
    event, _ = newest
    models = tuple(ModelId(model) for model in event.models)
    return Offer(models, event.endpoint.decode(errors="replace"), event.slots, event.memory_mb)


async def update_worker(
    sender: Sender, contracts: Contracts, signer: Address, offer: Offer
) -> Hash32 | None:
    """Replaces what the worker offers; None where it offers just that already.

    Raises WorkerNotRegistered, WorkerOwnedByOther and what `Sender.send` raises.
    """
    if await read_offer(sender.rpc, contracts, signer) == offer:
        return None
    shown = to_checksum_address(signer)
    (record,) = await read_view(
        sender.rpc, contracts.registry, "WorkerRegistry", "workerOf", [shown]
    )
    _refuse_other_owner(sender, signer, Address(to_canonical_address(record[0])))
    data = calls.update_worker(signer, offer.models, offer.endpoint, offer.slots, offer.memory_mb)
    receipt = await sender.send(contracts.registry, data)
    return receipt.tx_hash


def _refuse_other_owner(sender: Sender, signer: Address, owner: Address) -> None:
    if owner != sender.address:
        raise WorkerOwnedByOther(
            f"worker {to_checksum_address(signer)} is registered by {to_checksum_address(owner)}",
            help_text="use that owner's key, or give the worker another key",
        )


def info_hash(models: Sequence[ModelId], endpoint: str) -> bytes:
    """What the registry stores of the models and the endpoint."""
    return keccak(encode(("bytes32[]", "string"), (list(models), endpoint)))


async def _bring_stake_to(
    sender: Sender, signer: Address, wanted_wei: Wei | None, staked: bool, contracts: Contracts
) -> tuple[Wei, Wei]:
    (minimum_wei,) = await read_view(sender.rpc, contracts.stakes, "StakeManager", "minStakeWei")
    (record,) = await read_view(
        sender.rpc, contracts.stakes, "StakeManager", "stakeOf", [to_checksum_address(signer)]
    )
    present_wei = record[0]
    missing_wei = max(0, max(wanted_wei or 0, minimum_wei) - present_wei)
    if not staked and not missing_wei:
        # With a minimum of nothing, the first stake of any amount is what counts.
        missing_wei = 1
    if missing_wei:
        await sender.send(contracts.stakes, calls.stake(signer), value_wei=missing_wei)
    return Wei(missing_wei), Wei(present_wei + missing_wei)
