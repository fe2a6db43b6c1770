"""Requests under a model's terms: which of them are served, and what they take beyond others. Pure
but for its SQL.

A request keeps the terms that were in force when it was made. They are read from the indexed logs:
the newest change of its model's terms before the request's own log. So they follow every
reorganisation, as the request does, and nobody has to ask a contract for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eth_utils.address import to_checksum_address

from indexer.types import Address, Hash32
from inferd.protocol import calls
from inferd.protocol.result import ResultItem, pack_items
from inferd.protocol.typed_data import CompactSignature
from scheduler.model import GasModel

TERMS_OF_REQUEST = """
    SELECT t.verifier, t.dispute_window_s, t.bond_wei, t.min_quorum FROM chain.terms t
    WHERE t.model_id = r.model_id
      AND (t.block_number, t.log_index) < (r.created_block, r.created_log_index)
    ORDER BY t.block_number DESC, t.log_index DESC LIMIT 1
"""
"""SQL: the terms of a row `r` of chain.request; only of use where it is `under_terms`."""

_NOBODY = Address(bytes(20))

HELD_GAS = 40_000
"""What a result whose payment is held back takes more in a post: its terms are read, the hash of
what is held is kept, and an event tells it whole. Measured: 39,500 in a batch of 40."""
RELEASE_GAS = 40_000
"""What the release of one such payment takes in a batch, with the credits that it writes."""
RELEASE_BYTES = 480
"""Calldata of one, with one worker."""
_OWNER_GAS = 12_000
"""What each further worker of a quorum adds to a release."""
_OWNER_BYTES = 64


def unserved(verifier: Address | None) -> str | None:
    """Why a request under terms is not served, in words; `verifier` is None where its terms are not
    known."""
    if verifier is None:
        return "its model's terms are not in the index: `inferd index repair` finds them"
    if verifier != _NOBODY:
        return (
            f"its model's results need a proof that {to_checksum_address(verifier)} accepts,"
            " and this node makes none"
        )
    return None


def release_gas(workers: int) -> int:
    """What the release of a payment that so many workers share takes in a batch."""
    return RELEASE_GAS + _OWNER_GAS * (workers - 1)


def release_bytes(workers: int) -> int:
    """Its calldata."""
    return RELEASE_BYTES + _OWNER_BYTES * (workers - 1)


def held_gas(workers: int) -> int:
    """What a request under a dispute window takes beyond its share of a post: what is held back,
    and its release."""
    return HELD_GAS + release_gas(workers)


def held_model(gas: GasModel) -> GasModel:
    """Of posts whose results are held back."""
    return replace(gas, per_result_gas=gas.per_result_gas + HELD_GAS)


def proven_calldata(
    groups: Sequence[tuple[Sequence[ResultItem], Sequence[CompactSignature]]],
    decisions_root: Hash32,
) -> bytes:
    """Calldata of `postProven` for groups of items whose requests have no verifier."""
    packed = [(pack_items(items), signed, [b""] * len(items)) for items, signed in groups]
    return calls.post_proven(packed, decisions_root)
