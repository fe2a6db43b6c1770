"""What is made of a node's claim and of what the chain has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address, Hash32
from inferd.chain.decision_audit import Anchor, Claim, Verdict, judge
from inferd.cli.audit_replay import compare
from inferd.policies.hosted import HostedPolicy
from scheduler import flow, recording
from scheduler.audit import VERSION, leaf, merkle_proof, merkle_root, origin_of
from scheduler.decision import Decision
from scheduler.experiment import Split
from scheduler.model import Snapshot
from scheduler.plan import plan
from scheduler.policies import Policy, policy_named
from scheduler.policies.balanced import Balanced
from scheduler.recording import Recording
from tests.policies.support import install
from tests.scheduler.make import NOW_S, key, model, request, service, snapshot, worker

SEEN = snapshot((request(1), request(2), request(3)), (worker(1), worker(2)))
POLICY = policy_named("value")
PLAN = plan(SEEN, POLICY)
ENCODED = recording.encode(Recording(POLICY.name, POLICY.version, SEEN))
STORED = recording.compress(ENCODED)
ORIGIN = origin_of(PLAN, recording.digest(ENCODED))
DECISIONS: tuple[Decision, ...] = (*PLAN.assigned, *PLAN.kept, *PLAN.refused)
LEAVES = [leaf(one, ORIGIN) for one in DECISIONS]
TX = Hash32(b"\x77" * 32)
ANCHOR = Anchor(Hash32(merkle_root(LEAVES)), TX, 12, Address(b"\x01" * 20))


def claim(at: int = 0) -> Claim:
    one = LEAVES[at]
    return Claim(DECISIONS[at], ORIGIN, Hash32(one), VERSION, merkle_proof(LEAVES, one), TX)


@pytest.mark.parametrize("at", range(len(DECISIONS)))
def test_what_was_anchored_is_proved(at: int) -> None:
    assert judge(claim(at), ANCHOR).verdict is Verdict.PROVED


@pytest.mark.parametrize(
    ("changes", "anchor", "verdict"),
    [
        ({"tx_hash": None, "leaf": None, "leaf_version": None}, None, Verdict.NOT_ANCHORED),
        ({}, None, Verdict.NOT_ANCHORED),
        ({"tx_hash": None}, None, Verdict.NOT_ANCHORED),
        ({"decision": DECISIONS[1]}, ANCHOR, Verdict.MISMATCH),
        ({"decision": DECISIONS[1], "tx_hash": None}, None, Verdict.MISMATCH),
        ({"origin": replace(ORIGIN, base_fee_wei=1)}, ANCHOR, Verdict.MISMATCH),
        ({"leaf": Hash32(bytes(32))}, ANCHOR, Verdict.MISMATCH),
        ({"proof": []}, ANCHOR, Verdict.MISMATCH),
        ({"proof": None}, ANCHOR, Verdict.MISMATCH),
        ({}, replace(ANCHOR, root=Hash32(bytes(32))), Verdict.MISMATCH),
        ({"leaf_version": 1}, ANCHOR, Verdict.OTHER_RELEASE),
        ({"leaf_version": None}, ANCHOR, Verdict.OTHER_RELEASE),
    ],
)
def test_each_verdict(changes, anchor: Anchor | None, verdict: Verdict) -> None:
    found = judge(replace(claim(), **changes), anchor)
    assert found.verdict is verdict
    assert found.sentence


@given(st.integers(0, len(LEAVES) - 1), st.integers(0, 255), st.data())
def test_no_other_proof_passes(at: int, bit: int, data: st.DataObject) -> None:
    steps = merkle_proof(LEAVES, LEAVES[at])
    step = data.draw(st.integers(0, len(steps) - 1))
    steps[step] = (int.from_bytes(steps[step], "big") ^ 1 << bit).to_bytes(32, "big")
    assert judge(replace(claim(at), proof=steps), ANCHOR).verdict is Verdict.MISMATCH


@pytest.mark.parametrize("at", range(len(DECISIONS)))
def test_a_stored_snapshot_gives_the_same_decision(at: int) -> None:
    found = compare(claim(at), STORED)
    assert found.same is True
    assert len(found.candidates) == 2


def test_another_decision_or_another_snapshot_is_told() -> None:
    otherwise = replace(DECISIONS[0], score=0.125)
    assert compare(replace(claim(), decision=otherwise), STORED).same is False
    unheard = replace(DECISIONS[0], key=key(9))
    assert compare(replace(claim(), decision=unheard), STORED).same is False
    richer = snapshot((request(1, fee_wei=1),), (worker(1),))
    other = recording.compress(recording.encode(Recording(POLICY.name, POLICY.version, richer)))
    changed = compare(claim(), other)
    assert (changed.same, "changed" in changed.sentence) == (False, True)


def _by(policy: str, version: str) -> tuple[Claim, bytes]:
    encoded = recording.encode(Recording(policy, version, SEEN))
    origin = replace(ORIGIN, snapshot_digest=recording.digest(encoded))
    return replace(claim(), origin=origin), recording.compress(encoded)


def test_a_policy_that_is_not_here_cannot_be_run_again() -> None:
    for policy, version, says in (
        ("my-own", "1", "not installed"),
        (POLICY.name, "0.9", "version"),
    ):
        found = compare(*_by(policy, version))
        assert found.same is None
        assert says in found.sentence
        assert len(found.candidates) == 2, "whom it could choose from is known all the same"


def _decided(
    seen: Snapshot, policy: Policy | Split, version: str | None = None
) -> list[tuple[Claim, bytes]]:
    """A claim of each decision of a round, and what is stored of the round."""
    again = plan(seen, policy)
    recorded = Recording(again.policy, version or again.policy_version, seen)
    encoded = recording.encode(recorded)
    origin = origin_of(again, recording.digest(encoded))
    return [
        (replace(claim(), decision=one, origin=origin), recording.compress(encoded))
        for one in (*again.assigned, *again.kept, *again.refused)
    ]


_MANY = snapshot(
    tuple(
        request(n, fee_wei=10**16 * (1 + n * 7 % 11), deadline_s=NOW_S + 60 + n * 5 % 17)
        for n in range(1, 30)
    ),
    tuple(worker(n, service={model(): service(1_000 * n)}) for n in range(1, 6)),
)


@pytest.mark.parametrize(
    "policy",
    [
        Balanced(1, 0.123456789, 1 / 3),
        Balanced(60, 30, 10),
        Split((policy_named("value"), Balanced(0, 0, 1)), (1, 2), 7),
        Split((policy_named("p2c"), policy_named("fee-first"), Balanced()), (5, 3, 2), 2**40),
    ],
    ids=lambda one: one.version,
)
def test_a_round_with_weights_or_of_an_experiment_is_computed_once_more(policy) -> None:
    for one, stored in _decided(_MANY, policy):
        found = compare(one, stored)
        assert (found.same, found.sentence.split(":")[0]) == (
            True,
            "computed once more from what the round saw",
        )


def test_a_round_is_computed_once_more_in_the_way_it_was_decided(monkeypatch) -> None:
    """Exactly or greedily, and that is not what is installed where it is audited."""
    seen = replace(_MANY, rules=replace(_MANY.rules, flow_arcs=10_000))
    exact = _decided(seen, POLICY)
    assert exact[0][0].origin.policy_version.endswith("+flow")
    assert all(compare(*one).same for one in exact)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(flow, "available", lambda: False)
        found = compare(*exact[0])
        assert found.same is None
        assert "OR-tools" in found.sentence
        greedy = _decided(seen, POLICY)
    assert not greedy[0][0].origin.policy_version.endswith("+flow")
    assert all(compare(*one).same for one in greedy)


def test_an_experiment_or_weights_that_cannot_be_read_are_told() -> None:
    split = Split((policy_named("value"), Balanced()), (1, 2), 7)
    for policy, version in (
        (Balanced(), "2:0.6/0.3/0.1"),
        (Balanced(), "1:0/0/0"),
        (Balanced(), "1"),
        (split, "1"),
        (split, split.version + "7x"),
        (split, split.version.replace("0.6", "-1")),
    ):
        found = compare(*_decided(_MANY, policy, version)[0])
        assert found.same is None
        assert "version" in found.sentence


def test_a_recording_of_another_release_cannot_be_read() -> None:
    encoded = ENCODED[:16] + bytes(8) + ENCODED[24:]
    origin = replace(ORIGIN, snapshot_digest=recording.digest(encoded))
    found = compare(replace(claim(), origin=origin), recording.compress(encoded))
    assert found.same is None
    assert "another release" in found.sentence
    assert compare(claim(), b"no zlib").same is None


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, HostedPolicy]]:
    install(tmp_path / "site", monkeypatch)
    up: dict[str, HostedPolicy] = {}
    for name in ("good", "raises"):
        up[name] = HostedPolicy(name)
        assert up[name].is_up(60.0)
        up[name].begin_round(60.0)
    yield up
    for hosted in up.values():
        hosted.close()


def test_a_round_by_a_policy_of_another_package_is_computed_once_more(
    packages: dict[str, HostedPolicy],
) -> None:
    good = packages["good"]
    for policy in (good, Split((policy_named("value"), good), (1, 2), 7)):
        one, stored = _decided(_MANY, policy)[0]
        assert (one.origin.policy, compare(one, stored).same) == (policy.name, True)


def test_where_that_package_is_another_or_fails_it_is_told(
    packages: dict[str, HostedPolicy],
) -> None:
    older = compare(*_decided(_MANY, packages["good"], "6")[0])
    assert (older.same, older.sentence) == (None, "policy good is version 7 here, and 6 decided")
    failing = compare(*_decided(_MANY, Renamed(packages["good"], "raises"))[0])
    assert failing.same is None
    assert failing.sentence.startswith("the policy fails now: raises failed at scores")
    unloadable = compare(*_decided(_MANY, Renamed(packages["good"], "not-loadable"))[0])
    assert unloadable.sentence.startswith("policy not-loadable cannot be loaded: OSError")
    away = compare(*_decided(_MANY, Renamed(packages["good"], "elsewhere"))[0])
    assert away.sentence == (
        "policy elsewhere is not installed here: install the package that offers version 7"
    )
    assert away.candidates


class Renamed:
    """A policy that decided under another name."""

    def __init__(self, policy: HostedPolicy, name: str) -> None:
        self._policy, self.name = policy, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)
