"""What a decision commits to on chain: its canonical leaf, and the Merkle tree over leaves.

**Encoding, version 2.** The bytes of a decision are, one after another:

    bytes    "inferd.decision" and one byte, the version (2)
    uint     block number          bytes block hash         uint base fee of the block, wei
    text     policy                text  its version
    optional digest of the round's recorded snapshot (bytes), see `scheduler.recording`
    uint     key.id                bytes key.commitment     text reason
    optional worker (bytes), score (number), lease_ms (number)
    uint     number of inputs, then each as text (its name) and value, sorted by the name's UTF-8

    uint     32 bytes, big endian
    bytes    length as 4 bytes, big endian, then the bytes;  text = bytes of the UTF-8
    optional 0x00 if absent, else 0x01 and the value
    value    a number or 0x73 ("s") and text
    number   whole:  0x69 ("i"), sign 0x00 or 0x01 (negative), magnitude as `bytes`, shortest form
             other:  0x66 ("f") and the 8 bytes of the IEEE 754 double, big endian

The inputs are the numbers that decided, among them how many workers were considered (`registered`,
`available`, `tried`) and the price of gas; the snapshot has each of those workers with what was
predicted of it.

A number is encoded by its value, never by how it is written: 2, 2.0 and "2e0" in JSON are the
same leaf (so is -0.0 and 0, and true and 1), and a double that is not whole has one form. NaN and
infinities have none and are refused. Every part has a fixed or a stated length, so two decisions
have the same bytes only if all the fields above are equal. The sentence is left out: it words the
reason and inputs, and may be worded better later without breaking old proofs.

**Leaves and tree.** leaf = keccak256(keccak256(encoding)); node = keccak256(smaller child ++
larger child). Leaves are sorted, so the root depends on the set of decisions only; a node without
a sibling moves up as it is. A leaf's preimage has 32 bytes and a node's 64, so no inner node can
be passed off as a leaf (second preimage). This is the layout of OpenZeppelin's
`MerkleProof.verify`. The root of no leaves is 32 zero bytes.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from eth_utils.crypto import keccak

from scheduler.decision import Decision, Plan

VERSION = 2
EMPTY_ROOT = bytes(32)
_DOMAIN = b"inferd.decision"


@dataclass(frozen=True, slots=True)
class Origin:
    """What is the same for all decisions of a round."""

    block_number: int
    block_hash: bytes
    base_fee_wei: int
    policy: str
    policy_version: str
    snapshot_digest: bytes | None = None
    """Of the round's recorded snapshot; None where none was recorded."""


def origin_of(plan: Plan, snapshot_digest: bytes | None = None) -> Origin:
    """Where a plan's decisions come from."""
    block = plan.block
    return Origin(
        block.number,
        block.hash,
        block.base_fee_wei,
        plan.policy,
        plan.policy_version,
        snapshot_digest,
    )


def encode(decision: Decision, origin: Origin) -> bytes:
    """The canonical bytes of a decision."""
    parts = [
        _DOMAIN,
        bytes([VERSION]),
        _uint(origin.block_number),
        _bytes(origin.block_hash),
        _uint(origin.base_fee_wei),
        _text(origin.policy),
        _text(origin.policy_version),
        b"\0" if origin.snapshot_digest is None else b"\1" + _bytes(origin.snapshot_digest),
        _uint(decision.key.id),
        _bytes(decision.key.commitment),
        _text(str(decision.reason)),
        b"\0" if decision.worker is None else b"\1" + _bytes(decision.worker),
        b"\0" if decision.score is None else b"\1" + _number(decision.score),
        b"\0" if decision.lease_ms is None else b"\1" + _number(decision.lease_ms),
        _inputs(decision.inputs),
    ]
    return b"".join(parts)


def leaf(decision: Decision, origin: Origin) -> bytes:
    """The decision's leaf, 32 bytes."""
    return keccak(keccak(encode(decision, origin)))


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """The root over the leaves, in whatever order they come."""
    level = sorted(leaves)
    if not level:
        return EMPTY_ROOT
    while len(level) > 1:
        level = _above(level)
    return level[0]


def merkle_proof(leaves: Sequence[bytes], member: bytes) -> list[bytes]:
    """The siblings from the leaf up to the root; ValueError if it is not among the leaves."""
    level = sorted(leaves)
    at = bisect_left(level, member)
    if at == len(level) or level[at] != member:
        raise ValueError(f"0x{member.hex()} is not among the {len(level)} leaves")
    proof = []
    while len(level) > 1:
        sibling = at ^ 1
        if sibling < len(level):
            proof.append(level[sibling])
        level = _above(level)
        at //= 2
    return proof


def merkle_verify(root: bytes, member: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the proof leads from the leaf to the root."""
    node = member
    for sibling in proof:
        node = _node(node, sibling)
    return node == root


def _above(level: Sequence[bytes]) -> list[bytes]:
    above = [_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
    if len(level) % 2:
        above.append(level[-1])
    return above


def _node(one: bytes, other: bytes) -> bytes:
    return keccak(one + other if one <= other else other + one)


def _inputs(inputs: Mapping[str, int | float | str]) -> bytes:
    encoded = sorted((name.encode(), value) for name, value in inputs.items())
    parts = [_uint(len(encoded))]
    for name, value in encoded:
        parts.append(_bytes(name))
        parts.append(b"s" + _text(value) if isinstance(value, str) else _number(value))
    return b"".join(parts)


def _number(value: int | float) -> bytes:
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} has no canonical encoding")
        if not value.is_integer():
            return b"f" + struct.pack(">d", value)
        value = int(value)
    magnitude = abs(value)
    shortest = magnitude.to_bytes((magnitude.bit_length() + 7) // 8, "big")
    return b"i" + bytes([value < 0]) + _bytes(shortest)


def _uint(value: int) -> bytes:
    return value.to_bytes(32, "big")


def _bytes(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())
