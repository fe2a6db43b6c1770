"""Shows that a worker signed two answers to one request: it loses its stake for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.errors import OperatorError
from indexer.events import Slashed
from indexer.types import Address, Contracts, Hash32, Wei
from inferd.chain.connect import read_view
from inferd.chain.deploy import MAX_BPS, NOBODY
from inferd.chain.events import expect_events
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.result import SignedItem, unpack_items
from inferd.protocol.typed_data import (
    BadSignature,
    CompactSignature,
    domain_separator,
    group_digest,
    recover,
)


class BadEvidence(OperatorError):
    """Two signed items do not show what they are to show."""

    code: ClassVar[str] = "bad_evidence"


class NothingToSlash(OperatorError):
    """The worker of the evidence has no place in this deployment, or was reported already."""

    code: ClassVar[str] = "nothing_to_slash"


@dataclass(frozen=True, slots=True)
class Reported:
    """A stake that was taken."""

    signer: Address
    slashed_wei: Wei
    reward_wei: Wei
    """Credited to the reporter."""
    tx_hash: Hash32


def load_signed_item(path: Path) -> SignedItem:
    """Reads `{"items": "0x…", "signature": "0x…", "index": 0}`. Raises BadEvidence."""
    try:
        body = json.loads(path.read_text())
    except OSError as error:
        raise _bad_file(path, str(error.strerror)) from None
    except ValueError:
        raise _bad_file(path, "it is no JSON") from None
    try:
        items, signature = _octets(body["items"]), _octets(body["signature"])
        index = body["index"]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _bad_file(path, "it needs items and signature in hex, and index") from None
    if not isinstance(index, int) or isinstance(index, bool):
        raise _bad_file(path, "index is no whole number")
    return SignedItem(items, CompactSignature(signature), index)


def signer_of_both(one: SignedItem, other: SignedItem, contracts: Contracts) -> Address:
    """Who signed two digests for one id and commitment. Raises BadEvidence where nobody did."""
    signers = []
    said = []
    for number, item in enumerate((one, other), start=1):
        try:
            whole = unpack_items(item.items)
        except ValueError as error:
            raise _bad(f"group {number} cannot be read: {error}") from None
        if not 0 <= item.index < len(whole):
            raise _bad(f"group {number} has no item {item.index}: it has {len(whole)}, from 0")
        domain = domain_separator(contracts.chain_id, contracts.results)
        try:
            signers.append(recover(group_digest(domain, item.items), item.signature))
        except BadSignature as error:
            raise _bad(f"the signature of group {number} is none: {error}") from None
        said.append(whole[item.index])
    if signers[0] != signers[1]:
        first, second = (to_checksum_address(signer) for signer in signers)
        raise _bad(f"two workers signed them, {first} and {second}, or for another deployment")
    if (said[0].request_id, said[0].commitment) != (said[1].request_id, said[1].commitment):
        raise _bad("they are about different requests")
    if said[0].digest == said[1].digest:
        raise _bad("both name the same digest")
    return signers[0]


async def report_equivocation(
    sender: Sender, contracts: Contracts, one: SignedItem, other: SignedItem
) -> Reported:
    """Has the worker's whole stake taken, unbonding or not; the sender is credited its share.

    Raises BadEvidence, NothingToSlash and what `Sender.send` raises.
    """
    signer = signer_of_both(one, other, contracts)
    shown = to_checksum_address(signer)
    (worker,) = await read_view(
        sender.rpc, contracts.registry, "WorkerRegistry", "workerOf", [shown]
    )
    if Address(to_canonical_address(worker[0])) == NOBODY:
        raise NothingToSlash(
            f"{shown} is no worker of this deployment",
            help_text="look at `deployment_file`: the signatures may be for another deployment",
        )
    (stake,) = await read_view(sender.rpc, contracts.stakes, "StakeManager", "stakeOf", [shown])
    if stake[3]:
        raise NothingToSlash(
            f"worker {shown} was reported already", help_text="it can never stake again"
        )
    (reporter_bps,) = await read_view(sender.rpc, contracts.stakes, "StakeManager", "reporterBps")
    receipt = await sender.send(contracts.stakes, calls.slash_equivocation(one, other))
    (event,) = expect_events(receipt, contracts, contracts.stakes, Slashed)
    reward_wei = Wei(event.amount_wei * reporter_bps // MAX_BPS)
    return Reported(signer, event.amount_wei, reward_wei, receipt.tx_hash)


def _octets(text: Any) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def _bad_file(path: Path, what: str) -> BadEvidence:
    return BadEvidence(
        f"{path} cannot be read: {what}",
        help_text='write {"items": "0x…", "signature": "0x…", "index": 0} into it',
    )


def _bad(what: str) -> BadEvidence:
    return BadEvidence(
        f"the two groups show nothing: {what}",
        help_text="one worker must have signed two digests for the same id and commitment",
    )
