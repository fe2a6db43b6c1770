"""What one transaction adds to the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from indexer.abi import UndecodableLog
from indexer.decode import Decoder
from indexer.derive import LocatedEvent
from indexer.rpc.types import Header, RawLog


@dataclass(frozen=True, slots=True)
class QuarantinedLog:
    """A log of ours that could not be read, and why."""

    log: RawLog
    reason: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Blocks that were read and checked, ready to be written."""

    headers: tuple[Header, ...]
    """Those to remember, in order; the last is the new cursor."""
    events: tuple[LocatedEvent, ...]
    """In chain order."""
    quarantined: tuple[QuarantinedLog, ...]

    @property
    def tip(self) -> Header:
        return self.headers[-1]


def read_batch(
    decoder: Decoder,
    headers: Sequence[Header],
    logs: Iterable[RawLog],
    timestamps_s: Mapping[int, int],
) -> Batch:
    """Decodes checked logs in chain order; `timestamps_s` has every block that has logs."""
    events: list[LocatedEvent] = []
    quarantined: list[QuarantinedLog] = []
    for log in logs:
        try:
            event = decoder.decode(log)
        except UndecodableLog as error:
            quarantined.append(QuarantinedLog(log, str(error)))
        else:
            events.append(LocatedEvent(log, event, timestamps_s[log.block_number]))
    return Batch(tuple(headers), tuple(events), tuple(quarantined))
