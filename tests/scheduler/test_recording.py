"""Snapshots that are written down, and rounds that are computed once more from them."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import recording
from scheduler.model import Rules, WorkerId, WorkerView
from scheduler.plan import plan
from scheduler.recording import (
    NotReadable,
    Recording,
    compress,
    decode,
    decompress,
    digest,
    encode,
)
from tests.scheduler.make import request, snapshot, snapshots, worker


def _recorded(seen) -> Recording:
    return Recording("value", "1", seen)


def _id(worker: WorkerView) -> WorkerId:
    return worker.id


SMALL = _recorded(snapshot((request(1), request(2)), (worker(1), worker(2))))


@given(snapshots())
def test_a_round_computed_from_its_recording_decides_the_same(seen) -> None:
    read = decode(decompress(compress(encode(_recorded(seen)))))
    assert (read.policy, read.policy_version) == ("value", "1")
    assert set(read.snapshot.requests) == set(seen.requests)
    assert sorted(read.snapshot.workers, key=_id) == sorted(seen.workers, key=_id)
    assert read.snapshot.moment == seen.moment
    assert plan(read.snapshot) == plan(seen)


@given(snapshots(), st.randoms(use_true_random=False))
def test_one_snapshot_has_one_encoding(seen, rng: random.Random) -> None:
    workers = [
        replace(one, service=dict(rng.sample(list(one.service.items()), len(one.service))))
        for one in seen.workers
    ]
    shuffled = replace(
        seen,
        requests=tuple(rng.sample(seen.requests, len(seen.requests))),
        workers=tuple(rng.sample(workers, len(workers))),
    )
    assert encode(_recorded(shuffled)) == encode(_recorded(seen))
    assert encode(decode(encode(_recorded(seen)))) == encode(_recorded(seen))


@given(snapshots(), snapshots())
def test_different_snapshots_have_different_digests(one, other) -> None:
    def ordered(seen):
        return replace(
            seen,
            requests=tuple(sorted(seen.requests, key=lambda r: r.key)),
            workers=tuple(sorted(seen.workers, key=lambda w: w.id)),
        )

    same = ordered(one) == ordered(other)
    assert (digest(encode(_recorded(one))) == digest(encode(_recorded(other)))) is same


@given(st.integers(-(2**256), 2**256))
def test_amounts_of_any_size_are_exact(wei: int) -> None:
    seen = snapshot((request(1, fee_wei=wei), request(2)), ())
    read = decode(encode(_recorded(seen))).snapshot
    assert [one.fee_wei for one in read.requests] == [wei, request().fee_wei]
    assert type(read.requests[0].fee_wei) is int


def test_a_set_has_one_encoding_however_it_was_filled() -> None:
    one, other = frozenset([0, 8]), frozenset([8, 0])
    assert list(one) != list(other), "they collide, so that they are iterated in different orders"
    codec = recording._codec(frozenset[int])
    assert codec.pack(one) == codec.pack(other) == [0, 8]


def test_a_whole_number_in_a_real_field_is_the_real_one() -> None:
    whole = _recorded(snapshot((), (), now_s=5))
    real = _recorded(snapshot((), (), now_s=5.0))
    assert encode(whole) == encode(real)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda b: b"x" + b[1:], "no recorded snapshot"),
        (lambda b: b[:15] + b"\x09" + b[16:], "another release"),
        (lambda b: b[:16] + bytes(8) + b[24:], "another release"),
        (lambda b: b[:-3], "damaged"),
        (lambda b: b[:24] + b"\x93\x01\x02\x03", "damaged"),
        (lambda b: b"", "no recorded snapshot"),
    ],
)
def test_what_is_no_recording_is_refused(damage, says: str) -> None:
    with pytest.raises(NotReadable, match=says):
        decode(damage(encode(SMALL)))


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    for read in (decode, decompress):
        try:
            read(noise)
        except NotReadable:
            continue


@given(st.integers(24, 400), st.binary(min_size=1, max_size=4))
def test_any_damage_is_seen_or_changes_the_digest(at: int, noise: bytes) -> None:
    encoded = encode(SMALL)
    broken = encoded[:at] + noise + encoded[at + len(noise) :]
    try:
        read = decode(broken)
    except NotReadable:
        return
    assert broken == encoded or digest(broken) != digest(encoded)
    assert isinstance(read, Recording)


def test_what_would_be_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_MAX_BYTES", 1_000)
    with pytest.raises(NotReadable, match="too large"):
        decompress(zlib.compress(bytes(100_000)))


def test_other_fields_have_another_fingerprint() -> None:
    @dataclass(frozen=True)
    class Other:
        poster_bps: int
        more: int = 0

    assert recording._codec(Other).name != recording._codec(Rules).name
    assert recording._codec(Rules).name.startswith("Rules(poster_bps:int,max_wait_s:int")
