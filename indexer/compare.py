"""What the tables have of blocks against what the chain has of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from indexer.rpc.types import RawLog


class Kind(StrEnum):
    """In which way the tables differ from the chain."""

    MISSING_LOG = "missing_log"
    """The chain has a log that is not stored."""
    EXTRA_LOG = "extra_log"
    """A log is stored that the chain does not have."""
    DIFFERING_LOG = "differing_log"
    """A log is stored with other contents than the chain's."""
    WRONG_REQUEST = "wrong_request"
    """A row of chain.request does not follow from the stored logs, or lacks."""
    WRONG_WORKER = "wrong_worker"
    """A row of chain.worker does not follow from the stored logs, or lacks."""
    WRONG_PAYMENT = "wrong_payment"
    """A row of chain.payment does not follow from the stored logs, or lacks."""
    WRONG_HOLD = "wrong_hold"
    """A row of chain.hold does not follow from the stored logs, or lacks."""
    WRONG_TERMS = "wrong_terms"
    """A row of chain.terms does not follow from the stored logs, or lacks."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that is not as it should be."""

    kind: Kind
    block_number: int | None
    """None for a row that derives from several blocks."""
    subject: str
    """Which log, request, worker, payment, or model's terms."""


def compare_logs(stored: Iterable[RawLog], read: Iterable[RawLog]) -> list[Difference]:
    """In chain order. A log is known by its block's hash and its place in the block."""
    ours = {(log.block_hash, log.log_index): log for log in stored}
    theirs = {(log.block_hash, log.log_index): log for log in read}
    found = []
    for key, log in theirs.items():
        if key not in ours:
            found.append(_difference(Kind.MISSING_LOG, log))
        elif ours[key] != log:
            found.append(_difference(Kind.DIFFERING_LOG, log))
    found += [_difference(Kind.EXTRA_LOG, log) for key, log in ours.items() if key not in theirs]
    return sorted(found, key=lambda one: (one.block_number, one.subject, one.kind))


def wrong_time(block_number: int) -> Difference:
    """Its logs are stored with another timestamp than the block's."""
    return Difference(Kind.DIFFERING_LOG, block_number, "timestamp of its logs")


def _difference(kind: Kind, log: RawLog) -> Difference:
    subject = f"log {log.log_index} of 0x{log.tx_hash.hex()}"
    return Difference(kind, log.block_number, subject)
