"""What models ask for, and payments that are held back: logs in chain order -> rows, as in
`indexer.derive`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

import msgspec
from msgspec.structs import replace

from indexer import events as ev
from indexer.derive import LocatedEvent
from indexer.types import WEI_PER_GWEI, Address, Hash32, Wei

HOLD_KINDS: Final = tuple(kind.__name__ for kind in get_args(ev.DisputeEvent))
"""Kinds of logs that `fold_hold` reads."""


class HoldRow(msgspec.Struct, frozen=True, gc=False):
    """A row of chain.hold; the fields are its columns."""

    request_id: int
    commitment: bytes
    digest: Hash32
    workers: tuple[Address, ...]
    owners: tuple[Address, ...]
    payment_wei: Wei
    poster: Address
    poster_wei: Wei
    bond_wei: Wei
    disputable_until_s: int
    held_block: int
    held_at_s: int
    held_tx_hash: Hash32
    state: Literal["held", "disputed", "released", "upheld", "rejected", "lapsed"] = "held"
    disputer: Address | None = None
    opened_tx_hash: Hash32 | None = None
    ruling_until_s: int | None = None
    slashed_wei: Wei | None = None
    closed_block: int | None = None
    closed_at_s: int | None = None
    closed_tx_hash: Hash32 | None = None


class TermsRow(msgspec.Struct, frozen=True, gc=False):
    """A row of chain.terms; the fields are its columns."""

    block_hash: Hash32
    log_index: int
    block_number: int
    model_id: Hash32
    verifier: Address
    dispute_window_s: int
    bond_wei: Wei
    min_quorum: int


def fold_hold(located: Iterable[LocatedEvent]) -> HoldRow | None:
    """One request's logs in chain order; None where no payment of it was held back."""
    row: HoldRow | None = None
    for item in located:
        if isinstance(item.event, ev.PaymentHeld):
            row = _held(item.event, item)
        elif row is not None:
            row = _hold_after(row, item)
    return row


def terms(located: Iterable[LocatedEvent]) -> list[TermsRow]:
    """What models ask for from these logs on, in chain order."""
    return [
        TermsRow(
            block_hash=item.log.block_hash,
            log_index=item.log.log_index,
            block_number=item.log.block_number,
            model_id=item.event.model_id,
            verifier=item.event.verifier,
            dispute_window_s=item.event.dispute_window_s,
            bond_wei=Wei(item.event.bond_gwei * WEI_PER_GWEI),
            min_quorum=item.event.min_quorum,
        )
        for item in located
        if isinstance(item.event, ev.ModelTermsSet)
    ]


def _held(event: ev.PaymentHeld, item: LocatedEvent) -> HoldRow:
    return HoldRow(
        request_id=event.request_id,
        commitment=event.commitment,
        digest=event.digest,
        workers=event.workers,
        owners=event.owners,
        payment_wei=event.payment_wei,
        poster=event.poster,
        poster_wei=event.poster_wei,
        bond_wei=event.bond_wei,
        disputable_until_s=event.disputable_until_s,
        held_block=item.log.block_number,
        held_at_s=item.timestamp_s,
        held_tx_hash=item.log.tx_hash,
    )


def _hold_after(row: HoldRow, item: LocatedEvent) -> HoldRow:
    match item.event:
        case ev.DisputeOpened(disputer=disputer, ruling_until_s=ruling_until_s):
            return replace(
                row,
                state="disputed",
                disputer=disputer,
                opened_tx_hash=item.log.tx_hash,
                ruling_until_s=ruling_until_s,
            )
        case ev.PaymentReleased():
            return _closed(row, item, "released")
        case ev.DisputeRuled(upheld=upheld, slashed_wei=slashed_wei):
            ruled = _closed(row, item, "upheld" if upheld else "rejected")
            return replace(ruled, slashed_wei=slashed_wei)
        case ev.DisputeLapsed():
            return _closed(row, item, "lapsed")
        case _:
            return row


def _closed(
    row: HoldRow,
    item: LocatedEvent,
    state: Literal["released", "upheld", "rejected", "lapsed"],
) -> HoldRow:
    return replace(
        row,
        state=state,
        closed_block=item.log.block_number,
        closed_at_s=item.timestamp_s,
        closed_tx_hash=item.log.tx_hash,
    )
