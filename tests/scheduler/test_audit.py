"""The leaf of a decision and the proof that a root holds it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_utils.crypto import keccak
from hypothesis import given
from hypothesis import strategies as st

from scheduler.audit import (
    EMPTY_ROOT,
    VERSION,
    Origin,
    encode,
    leaf,
    merkle_proof,
    merkle_root,
    merkle_verify,
    origin_of,
)
from scheduler.decision import Decision
from scheduler.model import Numbers, Reason, RequestKey
from scheduler.plan import plan
from tests.scheduler.make import block, key, request, snapshot, worker, worker_id

DECISION = Decision(
    key(7),
    Reason.ASSIGNED,
    worker_id(3),
    0.75,
    5_000,
    Numbers(fee_wei=10**18, wait_s=1.5, detail="é"),
)
ORIGIN = Origin(100, b"\x11" * 32, 10**9, "balanced", "3", b"\x22" * 32)
hashes = st.binary(min_size=32, max_size=32)


def test_the_encoding_is_what_the_module_says():
    def number(length: int) -> bytes:
        return length.to_bytes(4, "big")

    expected = (
        b"inferd.decision\x02"
        + (100).to_bytes(32, "big")
        + number(32) + b"\x11" * 32
        + (10**9).to_bytes(32, "big")
        + number(8) + b"balanced"
        + number(1) + b"3"
        + b"\x01" + number(32) + b"\x22" * 32
        + (7).to_bytes(32, "big")
        + number(20) + key(7).commitment
        + number(8) + b"assigned"
        + b"\x01" + number(20) + worker_id(3)
        + b"\x01f" + bytes.fromhex("3fe8000000000000")
        + b"\x01i\x00" + number(2) + (5_000).to_bytes(2, "big")
        + (3).to_bytes(32, "big")
        + number(6) + b"detail" + b"s" + number(2) + "é".encode()
        + number(7) + b"fee_wei" + b"i\x00" + number(8) + (10**18).to_bytes(8, "big")
        + number(6) + b"wait_s" + b"f" + bytes.fromhex("3ff8000000000000")
    )  # fmt: skip
    assert encode(DECISION, ORIGIN) == expected
    assert leaf(DECISION, ORIGIN) == keccak(keccak(expected))


@pytest.mark.parametrize(("one", "other"), [(2, 2.0), (0, -0.0), (10**22, 1e22)])
def test_equal_numbers_are_equal_leaves(one, other):
    leaves = {leaf(replace(DECISION, numbers=Numbers(wait_s=x)), ORIGIN) for x in (one, other)}
    assert len(leaves) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"key": key(8)},
        {"key": replace(DECISION.key, commitment=b"\x01" * 20)},
        {"reason": Reason.NO_FREE_SLOT},
        {"worker": None},
        {"worker": worker_id(4)},
        {"score": None},
        {"score": 0.7500000000000001},
        {"lease_ms": 5_001},
        {"lease_ms": None},
        {"numbers": Numbers()},
        {"numbers": replace(DECISION.numbers, detail="1.5", wait_s=None)},
        {"numbers": replace(DECISION.numbers, fee_wei=-(10**18))},
        {"numbers": replace(DECISION.numbers, fee_wei=10**18 + 1)},
    ],
)
def test_any_change_is_another_leaf(changes):
    assert leaf(replace(DECISION, **changes), ORIGIN) != leaf(DECISION, ORIGIN)


@pytest.mark.parametrize(
    "changes",
    [
        {"block_number": 101},
        {"block_hash": b"\x12" * 32},
        {"base_fee_wei": 10**9 + 1},
        {"policy": "fifo"},
        {"policy_version": "4"},
        {"snapshot_digest": None},
        {"snapshot_digest": b"\x23" * 32},
    ],
    ids=str,
)
def test_another_origin_is_another_leaf(changes):
    assert leaf(DECISION, replace(ORIGIN, **changes)) != leaf(DECISION, ORIGIN)


_numbers = st.builds(
    Numbers,
    fee_wei=st.none() | st.integers(0, 2**256 - 1),
    wait_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    available=st.none() | st.integers(0, 2**31),
    owned_only=st.none() | st.booleans(),
    detail=st.none() | st.text(max_size=8),
)
_decisions = st.builds(
    Decision,
    st.integers(0, 50).map(key),
    st.sampled_from(Reason),
    st.none() | st.integers(0, 3).map(worker_id),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.integers(0, 10**6),
    _numbers,
)
_origins = st.builds(
    Origin,
    st.integers(0, 2**63),
    hashes,
    st.integers(0, 2**256 - 1),
    st.text(max_size=8),
    st.text(max_size=8),
    st.none() | hashes,
)


@given(_decisions, _origins, _decisions, _origins)
def test_two_encodings_are_equal_only_if_all_fields_are(one, from_one, other, from_other):
    same = (one, from_one) == (other, from_other)
    assert (encode(one, from_one) == encode(other, from_other)) is same


@given(_decisions, _origins, _origins)
def test_each_field_is_in_the_bytes(one, from_one, from_other):
    assert (leaf(one, from_one) == leaf(one, from_other)) is (from_one == from_other)


def _read(vector: dict[str, Any]) -> tuple[Decision, Origin]:
    def to_bytes(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text.removeprefix("0x"))

    numbers = {
        name: int(value) if name.endswith("_wei") else value
        for name, value in vector["inputs"].items()
    }
    decision = Decision(
        RequestKey(vector["request_id"], to_bytes(vector["commitment"]) or b""),
        Reason(vector["reason"]),
        to_bytes(vector["worker"]),
        vector["score"],
        vector["lease_ms"],
        Numbers(**numbers),
    )
    origin = Origin(
        vector["block_number"],
        to_bytes(vector["block_hash"]) or b"",
        int(vector["base_fee_wei"]),
        vector["policy"],
        vector["policy_version"],
        to_bytes(vector["snapshot_digest"]),
    )
    return decision, origin


def test_the_golden_vectors():
    """Leaves that are on chains already must come out the same for ever."""
    golden = json.loads((Path(__file__).parent / "decision_vectors.json").read_text())
    assert golden["version"] == VERSION
    leaves = []
    for vector in golden["decisions"]:
        decision, origin = _read(vector)
        assert encode(decision, origin).hex() == vector["encoding"]
        leaves.append(leaf(decision, origin))
        assert leaves[-1].hex() == vector["leaf"]
    assert merkle_root(leaves).hex() == golden["root"]
    for vector, one in zip(golden["decisions"], leaves, strict=True):
        assert [step.hex() for step in merkle_proof(leaves, one)] == vector["proof"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="no canonical encoding"):
        leaf(replace(DECISION, score=value), ORIGIN)


@given(st.lists(hashes, min_size=1, max_size=40), st.data())
def test_every_leaf_is_proved_and_nothing_else(leaves, data):
    root = merkle_root(leaves)
    member = data.draw(st.sampled_from(leaves))
    proof = merkle_proof(leaves, member)
    assert merkle_verify(root, member, proof)
    assert len(proof) <= max(1, len(leaves) - 1).bit_length()
    stranger = data.draw(hashes)
    if stranger not in leaves:
        assert not merkle_verify(root, stranger, proof)
        with pytest.raises(ValueError, match="not among"):
            merkle_proof(leaves, stranger)
    if proof:
        at = data.draw(st.integers(0, len(proof) - 1))
        bit = data.draw(st.integers(0, 255))
        flipped = (int.from_bytes(proof[at], "big") ^ 1 << bit).to_bytes(32, "big")
        assert not merkle_verify(root, member, [*proof[:at], flipped, *proof[at + 1 :]])
        assert not merkle_verify(root, member, proof[:-1])


@given(st.lists(hashes, max_size=20), st.randoms(use_true_random=False))
def test_the_root_does_not_depend_on_the_order(leaves, rng):
    assert merkle_root(rng.sample(leaves, len(leaves))) == merkle_root(leaves)


def test_small_trees_by_hand():
    a, b, c = (bytes([n]) * 32 for n in (1, 2, 3))
    assert merkle_root([]) == EMPTY_ROOT == bytes(32)
    assert merkle_root([a]) == a
    assert merkle_proof([a], a) == []
    assert merkle_root([b, a]) == keccak(a + b)
    pair = keccak(a + b)
    assert merkle_root([c, b, a]) == keccak(min(pair, c) + max(pair, c))


def test_all_decisions_of_a_plan_are_under_its_root():
    requests = (request(1), request(2), request(3, unsupported="quorum"))
    result = plan(snapshot(requests, (worker(),)))
    origin = origin_of(result, b"\x22" * 32)
    assert (origin.base_fee_wei, origin.block_hash) == (block().base_fee_wei, block().hash)
    leaves = [leaf(one, origin) for one in (*result.assigned, *result.kept, *result.refused)]
    assert len(set(leaves)) == 3
    for member in leaves:
        assert merkle_verify(merkle_root(leaves), member, merkle_proof(leaves, member))
