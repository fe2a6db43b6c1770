"""Who may ask: no signature, window, nonce or rate but the right one."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.types import Address, Hash32
from inferd.protocol.typed_data import DigestSigner
from inferd.protocol.worker_api_signing import OperatorRequest, authorization, body_hash
from inferd.workers.service.auth import Doubt, Gate, TooOften, Trust, Unauthorised, judge
from tests.workers.service.support import API_DOMAIN, WORKER

KEY = PrivateKey(b"\x41" * 32)
OPERATOR = Address(KEY.public_key.to_canonical_address())
NOW_S = 1_800_000_000.0
TRUST = Trust(WORKER, API_DOMAIN, frozenset({OPERATOR}), window_s=120, skew_s=15)


def header(nonce: int = 0, *, expires_in_s: int = 60, key: PrivateKey = KEY, **but: Any) -> str:
    values: dict[str, Any] = {
        "method": "GET",
        "target": "/v1/health",
        "body_hash": body_hash(b""),
        "worker": WORKER,
        "nonce": Hash32(nonce.to_bytes(32, "big")),
        "expires_at_s": int(NOW_S) + expires_in_s,
    }
    asked = OperatorRequest(**values | but)
    signer = Address(key.public_key.to_canonical_address())
    return authorization(asked, signer, DigestSigner(key).sign(asked.digest(API_DOMAIN)))


def doubt_of(given: str | None, *, method: str = "GET", target: str = "/v1/health") -> Doubt | None:
    try:
        judge(TRUST, given, method, target, now_s=NOW_S)
    except Unauthorised as error:
        return error.doubt
    return None


@given(st.integers(-1000, 1000))
def test_the_window_is_what_the_settings_say(expires_in_s: int) -> None:
    expected = None
    if expires_in_s < -15:
        expected = Doubt.EXPIRED
    elif expires_in_s > 135:
        expected = Doubt.TOO_FAR_AHEAD
    assert doubt_of(header(expires_in_s=expires_in_s)) == expected


@pytest.mark.parametrize(
    ("given", "doubt"),
    [
        (None, Doubt.NO_HEADER),
        ("", Doubt.BAD_HEADER),
        ("Inferd " + "x" * 10_000, Doubt.BAD_HEADER),
        (header(key=PrivateKey(b"\x42" * 32)), Doubt.UNKNOWN_OPERATOR),
        (header(method="POST"), Doubt.BAD_SIGNATURE),
        (header(target="/v1/jobs"), Doubt.BAD_SIGNATURE),
        (header(worker=OPERATOR), Doubt.BAD_SIGNATURE),
        (header().replace("nonce=0x0", "nonce=0x1"), Doubt.BAD_SIGNATURE),
        (header(), None),
    ],
)
def test_each_doubt_has_a_name(given: str | None, doubt: Doubt | None) -> None:
    assert doubt_of(given) == doubt


def test_a_target_that_is_no_text_is_refused() -> None:
    assert doubt_of(header(), target="/v1/\udcff") == Doubt.BAD_SIGNATURE


def test_a_stranger_costs_no_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise AssertionError("a signature was looked at")

    monkeypatch.setattr("inferd.workers.service.auth.check_signature", fail)
    assert doubt_of(header(key=PrivateKey(b"\x42" * 32))) == Doubt.UNKNOWN_OPERATOR
    assert doubt_of(header(expires_in_s=-100)) == Doubt.EXPIRED


def test_no_nonce_twice_as_long_as_its_request_is_good() -> None:
    gate = Gate(TRUST, rate_per_s=1000, burst=1000)

    def enter(given: str, now_s: float) -> Doubt | None:
        try:
            gate.enter(given, "GET", "/v1/health", now_s=now_s)
        except Unauthorised as error:
            return error.doubt
        return None

    first = header(1, expires_in_s=100)
    assert enter(first, NOW_S) is None
    for later_s in (0, 50, 114.9, 115):
        assert enter(first, NOW_S + later_s) == Doubt.REPLAYED
    assert enter(first, NOW_S + 115.1) == Doubt.EXPIRED
    assert enter(header(2), NOW_S) is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-20, 140)), max_size=100))
def test_what_is_remembered_is_bounded(steps: list[tuple[int, int]]) -> None:
    """By the rate: what is refused is not remembered, and what has expired is forgotten."""
    gate, now_s, rate, burst = Gate(TRUST, rate_per_s=0.5, burst=3), NOW_S, 0.5, 3
    for number, (pause_s, expires_in_s) in enumerate(steps):
        now_s += pause_s
        at = int(now_s) + expires_in_s
        with contextlib.suppress(TooOften, Unauthorised):
            gate.enter(header(number, expires_at_s=at), "GET", "/v1/health", now_s=now_s)
        assert len(gate) <= rate * (120 + 2 * 15) + burst


def test_what_has_expired_is_forgotten() -> None:
    gate = Gate(TRUST, rate_per_s=1, burst=1)
    for number in range(100):
        now_s = NOW_S + 20 * number
        given = header(number, expires_at_s=int(now_s) + 60)
        gate.enter(given, "GET", "/v1/health", now_s=now_s)
        assert len(gate) <= 4


def test_a_rate_is_of_one_operator_and_comes_back() -> None:
    other_key = PrivateKey(b"\x42" * 32)
    other = Address(other_key.public_key.to_canonical_address())
    trust = Trust(WORKER, API_DOMAIN, frozenset({OPERATOR, other}), window_s=120, skew_s=15)
    gate = Gate(trust, rate_per_s=2, burst=3)

    def enter(nonce: int, now_s: float, key: PrivateKey = KEY) -> None:
        gate.enter(header(nonce, key=key), "GET", "/v1/health", now_s=now_s)

    for nonce in range(3):
        enter(nonce, NOW_S)
    with pytest.raises(TooOften) as refused:
        enter(3, NOW_S)
    assert refused.value.retry_after_s == 0.5
    enter(0, NOW_S, other_key)
    enter(3, NOW_S + 0.5)
    with pytest.raises(TooOften):
        enter(4, NOW_S + 0.4)
    enter(4, NOW_S + 1.0)
