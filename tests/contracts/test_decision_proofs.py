"""Roots and proofs of the scheduler's decisions are what the Solidity library takes them for."""

from __future__ import annotations

from eth_utils.crypto import keccak
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.audit import Origin, encode, leaf, merkle_proof, merkle_root
from scheduler.decision import Decision
from scheduler.model import Numbers, Reason
from tests.contracts.abi import words
from tests.contracts.setting import Setting
from tests.scheduler.make import key, worker_id

ORIGIN = Origin(100, b"\x11" * 32, 10**9, "balanced", "1")
_HASHES = st.binary(min_size=32, max_size=32)
_CHAIN = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def verdicts(setting: Setting, questions: list[tuple[bytes, bytes, list[bytes]]]) -> list[bool]:
    """What the library says of each root, leaf and proof."""
    abi = setting.abis["checker"]
    calls = [(setting.checker, abi.call("verify", question)) for question in questions]
    return [answer == words(1) for answer in setting.view(calls)]


@_CHAIN
@given(st.lists(_HASHES, min_size=1, max_size=40, unique=True), _HASHES)
def test_every_leaf_is_proved_and_no_other(
    setting: Setting, leaves: list[bytes], stranger: bytes
) -> None:
    root = merkle_root(leaves)
    proofs = [(one, merkle_proof(leaves, one)) for one in leaves]

    assert all(verdicts(setting, [(root, one, proof) for one, proof in proofs]))
    wrong = [(root, keccak(one), proof) for one, proof in proofs]
    wrong += [(keccak(root), one, proof) for one, proof in proofs]
    wrong += [(root, one, proof[:-1]) for one, proof in proofs if proof]
    wrong += [(root, one, [*proof, stranger]) for one, proof in proofs]
    assert not any(verdicts(setting, wrong))


@_CHAIN
@given(st.integers(0, 2**63), st.floats(allow_nan=False, allow_infinity=False), st.text())
def test_the_leaf_of_a_decision(setting: Setting, id_: int, score: float, note: str) -> None:
    decision = Decision(key(id_), Reason.ASSIGNED, worker_id(3), score, 5_000, Numbers(detail=note))
    encoding = encode(decision, ORIGIN)
    call = (setting.checker, setting.abis["checker"].call("leafOf", (encoding,)))

    assert setting.view([call]) == [leaf(decision, ORIGIN)]
