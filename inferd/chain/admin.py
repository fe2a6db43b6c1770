"""What the owner of a deployment may do, and what everybody can see of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.errors import OperatorError
from indexer.rpc import Rpc
from indexer.types import WEI_PER_GWEI, Address, Contracts, Hash32, Wei
from inferd.chain.connect import read_view
from inferd.chain.deploy import NOBODY
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.request import ModelId
from inferd.protocol.terms import MAX_BOND_WEI, MAX_QUORUM, MAX_WINDOW_S, ModelTerms


class NotPermitted(OperatorError):
    """Another account may do this, or nobody."""

    code: ClassVar[str] = "not_permitted"


class BadModelTerms(OperatorError):
    """The contract would refuse these terms of a model."""

    code: ClassVar[str] = "bad_model_terms"


@dataclass(frozen=True, slots=True)
class Administration:
    """Who may change what in a deployment, and what it was deployed with."""

    owner: Address
    pending_owner: Address
    """Was offered ownership and has not accepted; the zero address = nobody."""
    arbiter: Address
    treasury: Address
    paused: bool
    poster_bps: int
    reporter_bps: int
    cancel_delay_s: int
    unbonding_delay_s: int
    ruling_period_s: int
    max_window_s: int
    """The longest dispute window that a model can have."""
    min_stake_wei: Wei


async def read_administration(rpc: Rpc, contracts: Contracts) -> Administration:
    """Raises NoContractCode, RpcUnreachable."""

    async def of(at: Address, contract: str, function: str) -> Any:
        (value,) = await read_view(rpc, at, contract, function)
        return value

    async def requests(function: str) -> Any:
        return await of(contracts.requests, "InferenceRequests", function)

    async def stakes(function: str) -> Any:
        return await of(contracts.stakes, "StakeManager", function)

    async def disputes(function: str) -> Any:
        return await of(contracts.disputes, "Disputes", function)

    return Administration(
        owner=_address(await requests("owner")),
        pending_owner=_address(await requests("pendingOwner")),
        arbiter=_address(await disputes("arbiter")),
        treasury=_address(await stakes("treasury")),
        paused=await requests("paused"),
        poster_bps=await requests("posterBps"),
        reporter_bps=await stakes("reporterBps"),
        cancel_delay_s=await requests("cancelDelay"),
        unbonding_delay_s=await stakes("unbondingDelay"),
        ruling_period_s=await disputes("rulingPeriod"),
        max_window_s=await disputes("maxWindow"),
        min_stake_wei=Wei(await stakes("minStakeWei")),
    )


async def read_model_terms(rpc: Rpc, contracts: Contracts, model_id: ModelId) -> ModelTerms:
    """What a request of this model would get now."""
    (values,) = await read_view(
        rpc, contracts.requests, "InferenceRequests", "termsOfModel", [model_id]
    )
    return ModelTerms.from_abi(model_id, values)


async def set_paused(sender: Sender, contracts: Contracts, *, paused: bool) -> Hash32:
    """Stops or allows new requests. Raises NotPermitted and what `Sender.send` raises."""
    await _require_owner(sender, contracts)
    receipt = await sender.send(contracts.requests, calls.set_paused(paused))
    return receipt.tx_hash


async def set_model_terms(sender: Sender, contracts: Contracts, terms: ModelTerms) -> Hash32:
    """Sets or takes away what requests to come of a model ask for.

    Raises BadModelTerms, NotPermitted and what `Sender.send` raises.
    """
    (max_window_s,) = await read_view(sender.rpc, contracts.disputes, "Disputes", "maxWindow")
    check_model_terms(terms, max_window_s)
    if terms.verifier != NOBODY and not await sender.rpc.code(terms.verifier):
        raise BadModelTerms(
            f"there is no contract at {to_checksum_address(terms.verifier)}",
            help_text="deploy the verifier first, or correct its address",
        )
    await _require_owner(sender, contracts)
    receipt = await sender.send(contracts.requests, calls.set_model_terms(terms))
    return receipt.tx_hash


def check_model_terms(terms: ModelTerms, max_window_s: int) -> None:
    """Raises BadModelTerms."""
    if not 0 <= terms.min_quorum <= MAX_QUORUM:
        raise BadModelTerms(
            f"a quorum of {terms.min_quorum} is not within 0 and {MAX_QUORUM}",
            help_text="0 and 1 leave it to the requester",
        )
    if terms.bond_wei % WEI_PER_GWEI or terms.bond_wei > MAX_BOND_WEI:
        raise BadModelTerms(
            "the bond is no whole number of gwei, or more than the contract can hold",
            help_text="round it, for example to 0.1ether",
        )
    longest_s = min(max_window_s, MAX_WINDOW_S)
    if terms.dispute_window_s > longest_s:
        raise BadModelTerms(
            f"a dispute window of {terms.dispute_window_s} s is longer than {longest_s} s",
            help_text="a ruling must come before the stake is gone: choose a shorter one",
        )
    if bool(terms.dispute_window_s) != bool(terms.bond_wei):
        raise BadModelTerms(
            "a dispute window and a bond go together",
            help_text="name both: without a bond, anybody could hold back payments for nothing",
        )


async def set_arbiter(sender: Sender, contracts: Contracts, arbiter: Address) -> Hash32:
    """Appoints who rules, also on open disputes.

    Raises NotPermitted and what `Sender.send` raises.
    """
    await _require_owner(sender, contracts)
    receipt = await sender.send(contracts.disputes, calls.set_arbiter(arbiter))
    return receipt.tx_hash


async def offer_ownership(sender: Sender, contracts: Contracts, to: Address) -> Hash32:
    """Offers ownership; the zero address takes an offer back.

    Raises NotPermitted and what `Sender.send` raises.
    """
    await _require_owner(sender, contracts)
    receipt = await sender.send(contracts.requests, calls.offer_ownership(to))
    return receipt.tx_hash


async def accept_ownership(sender: Sender, contracts: Contracts) -> Hash32:
    """Takes what was offered. Raises NotPermitted and what `Sender.send` raises."""
    (offered,) = await read_view(
        sender.rpc, contracts.requests, "InferenceRequests", "pendingOwner"
    )
    if _address(offered) != sender.address:
        raise NotPermitted(
            f"ownership was not offered to {to_checksum_address(sender.address)}",
            help_text="the owner offers it first, with `inferd admin offer-ownership`",
        )
    receipt = await sender.send(contracts.requests, calls.accept_ownership())
    return receipt.tx_hash


async def _require_owner(sender: Sender, contracts: Contracts) -> None:
    (named,) = await read_view(sender.rpc, contracts.requests, "InferenceRequests", "owner")
    owner = _address(named)
    if owner == NOBODY:
        raise NotPermitted(
            "the deployment has no owner, for ever",
            help_text="nobody can change anything in it; deploy another one",
        )
    if owner != sender.address:
        raise NotPermitted(
            f"the deployment is owned by {to_checksum_address(owner)},"
            f" not by {to_checksum_address(sender.address)}",
            help_text="name the account that has the owner's key with `--account`",
        )


def _address(text: str) -> Address:
    return Address(to_canonical_address(text))
