"""Whether a decision that a node tells of is the one that was anchored on chain.

The node is not believed: the leaf is built anew of what it says, and the root comes from the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from indexer.events import DecisionsAnchored
from indexer.rpc import Rpc
from indexer.types import Address, Contracts, Hash32
from inferd.chain.events import events_in
from scheduler.audit import VERSION, Origin, leaf, merkle_verify
from scheduler.decision import Decision


class Verdict(StrEnum):
    """What is known of a decision. Stable: programs read it."""

    PROVED = "proved"
    NOT_ANCHORED = "not_anchored"
    """No mined transaction has it yet."""
    MISMATCH = "mismatch"
    """What the node says is not what was anchored."""
    OTHER_RELEASE = "other_release"
    """It was anchored by a release with another encoding: this one cannot build its leaf."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A decision as a node tells of it."""

    decision: Decision
    origin: Origin
    leaf: Hash32 | None
    """Under which it was anchored; None before."""
    leaf_version: int | None
    proof: Sequence[bytes] | None
    tx_hash: Hash32 | None
    """The mined transaction that anchored it."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a root is on chain."""

    root: Hash32
    tx_hash: Hash32
    block_number: int
    poster: Address


@dataclass(frozen=True, slots=True)
class Audited:
    """A claim, judged."""

    verdict: Verdict
    sentence: str
    leaf: Hash32
    """Built anew."""
    anchor: Anchor | None


async def find_anchor(rpc: Rpc, contracts: Contracts, tx_hash: Hash32) -> Anchor | None:
    """The root that a transaction anchored; None if it is not mined or anchored nothing.

    Raises RpcUnreachable.
    """
    receipt = await rpc.receipt(tx_hash)
    if receipt is None:
        return None
    anchored = events_in(receipt, contracts, contracts.results, DecisionsAnchored)
    if len(anchored) != 1:
        return None
    (event,) = anchored
    return Anchor(event.root, tx_hash, receipt.block_number, event.poster)


def judge(claim: Claim, anchor: Anchor | None) -> Audited:
    """Compares what the node says with the root that its transaction anchored."""
    built = Hash32(leaf(claim.decision, claim.origin))

    def found(verdict: Verdict, sentence: str) -> Audited:
        return Audited(verdict, sentence, built, anchor)

    if claim.leaf is not None and claim.leaf_version != VERSION:
        return found(
            Verdict.OTHER_RELEASE,
            "it was anchored by another release, whose encoding this one does not write",
        )
    if claim.leaf is not None and claim.leaf != built:
        return found(
            Verdict.MISMATCH,
            "the row says something else than when it was anchored: it was changed",
        )
    if claim.tx_hash is None:
        return found(Verdict.NOT_ANCHORED, "no mined transaction anchors it yet")
    if anchor is None:
        return found(
            Verdict.NOT_ANCHORED,
            f"transaction 0x{claim.tx_hash.hex()} anchors nothing on this chain now",
        )
    if claim.proof is None or not merkle_verify(anchor.root, built, claim.proof):
        return found(
            Verdict.MISMATCH,
            f"its leaf is not under the root 0x{anchor.root.hex()} that is on chain",
        )
    return found(
        Verdict.PROVED,
        f"anchored in block {anchor.block_number} by transaction 0x{anchor.tx_hash.hex()}",
    )
