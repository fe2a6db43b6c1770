"""Taking money out: credits of fees and refunds, and stakes after their delay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eth_utils.address import to_checksum_address

from indexer.errors import OperatorError, TemporaryError
from indexer.types import Address, Contracts, Hash32, Wei
from inferd.chain.connect import read_view
from inferd.chain.transact import Sender
from inferd.protocol import calls


class NothingToTake(OperatorError):
    """There is no money to take out."""

    code: ClassVar[str] = "nothing_to_take"


class StillBonded(TemporaryError):
    """A stake's delay has not passed."""

    code: ClassVar[str] = "still_bonded"


@dataclass(frozen=True, slots=True)
class Taken:
    """What a transaction moved."""

    amount_wei: Wei
    tx_hash: Hash32


@dataclass(frozen=True, slots=True)
class Unstaking:
    """A stake on its way out."""

    unbonding_wei: Wei
    withdrawable_at_s: int
    tx_hash: Hash32


async def read_credit(sender: Sender, contracts: Contracts) -> Wei:
    """What the contract owes the sender."""
    (amount_wei,) = await read_view(
        sender.rpc,
        contracts.requests,
        "InferenceRequests",
        "credits",
        [to_checksum_address(sender.address)],
    )
    return Wei(amount_wei)


async def withdraw(sender: Sender, contracts: Contracts, to: Address | None = None) -> Taken:
    """Sends the sender's whole credit to `to`, by default to itself.

    Raises NothingToTake and what `Sender.send` raises.
    """
    amount_wei = await read_credit(sender, contracts)
    if not amount_wei:
        raise NothingToTake(
            f"nothing is credited to {to_checksum_address(sender.address)}",
            help_text="fees are credited when a result is settled, refunds after a deadline",
        )
    data = calls.withdraw() if to is None else calls.withdraw_to(to)
    receipt = await sender.send(contracts.requests, data)
    return Taken(amount_wei, receipt.tx_hash)


async def unstake(
    sender: Sender, contracts: Contracts, signer: Address, amount_wei: Wei | None = None
) -> Unstaking:
    """Starts to take a worker's stake out, by default all of it; its results stop counting at once
    where too little is left. `sender` owns the worker.

    Raises NothingToTake and what `Sender.send` raises.
    """
    staked_wei, _, _ = await _stake(sender, contracts, signer)
    wanted_wei = staked_wei if amount_wei is None else amount_wei
    if not staked_wei:
        raise NothingToTake(
            f"worker {to_checksum_address(signer)} has no stake",
            help_text="look at `inferd worker register`, and at the deployment file",
        )
    receipt = await sender.send(contracts.stakes, calls.unstake(signer, wanted_wei))
    _, unbonding_wei, withdrawable_at_s = await _stake(sender, contracts, signer)
    return Unstaking(unbonding_wei, withdrawable_at_s, receipt.tx_hash)


async def withdraw_stake(
    sender: Sender, contracts: Contracts, signer: Address, to: Address | None = None
) -> Taken:
    """Sends what has finished unbonding to `to`, by default to the owner.

    Raises NothingToTake, StillBonded and what `Sender.send` raises.
    """
    _, unbonding_wei, withdrawable_at_s = await _stake(sender, contracts, signer)
    if not unbonding_wei:
        raise NothingToTake(
            f"no stake of worker {to_checksum_address(signer)} is on its way out",
            help_text="start with `inferd worker unstake`",
        )
    head = await sender.rpc.header("latest")
    if head is not None and head.timestamp_s < withdrawable_at_s:
        raise StillBonded(
            f"the stake can be taken {withdrawable_at_s - head.timestamp_s} s from now",
            help_text="try again then: until that time it stands for the worker's results",
        )
    receipt = await sender.send(
        contracts.stakes, calls.withdraw_stake(signer, to or sender.address)
    )
    return Taken(unbonding_wei, receipt.tx_hash)


async def _stake(sender: Sender, contracts: Contracts, signer: Address) -> tuple[Wei, Wei, int]:
    (record,) = await read_view(
        sender.rpc, contracts.stakes, "StakeManager", "stakeOf", [to_checksum_address(signer)]
    )
    return Wei(record[0]), Wei(record[1]), int(record[2])
