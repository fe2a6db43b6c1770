"""Who asked, and who answers: no byte can be changed, and no signature serves twice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_checksum_address
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address, Hash32
from inferd.protocol.typed_data import BadSignature, DigestSigner, compact, domain_separator
from inferd.protocol.worker_api import (
    MAX_ENCRYPTION_KEYS,
    MAX_HEARTBEAT_MODELS,
    BadMessage,
    Heartbeat,
    ModelHealth,
    SignedHeartbeat,
    SignedKey,
    as_hex,
    decode,
    encode,
    of_hex,
)
from inferd.protocol.worker_api_signing import (
    BadCredentials,
    BadHeartbeat,
    OperatorRequest,
    authorization,
    body_hash,
    check_signature,
    checked_heartbeat,
    heartbeat_digest,
    parse_authorization,
    sign_heartbeat,
    worker_domain,
)

KEY = PrivateKey(b"\x05" * 32)
OPERATOR = Address(KEY.public_key.to_canonical_address())
WORKER = Address(b"\x22" * 20)
RESULTS = Address(b"\x11" * 20)
DOMAIN = worker_domain(31337, RESULTS)
NONCE = Hash32(b"\x09" * 32)
ASKED = OperatorRequest(
    "POST", "/v1/jobs?wait_ms=5", body_hash(b"body"), WORKER, NONCE, 1_800_000_000
)

_bytes32 = st.binary(min_size=32, max_size=32).map(Hash32)
requests = st.builds(
    OperatorRequest,
    st.sampled_from(["GET", "POST", "DELETE"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    _bytes32,
    st.binary(min_size=20, max_size=20).map(Address),
    _bytes32,
    st.integers(0, 2**63 - 1),
)


def signed(request: OperatorRequest, key: PrivateKey = KEY) -> str:
    return authorization(request, OPERATOR, DigestSigner(key).sign(request.digest(DOMAIN)))


@given(requests)
def test_a_signed_request_is_taken(request: OperatorRequest) -> None:
    found = parse_authorization(signed(request))
    assert found.request(request.method, request.target, request.worker) == request
    check_signature(found, request.method, request.target, request.worker, DOMAIN)


@given(requests, requests)
def test_a_signature_is_of_one_request(one: OperatorRequest, other: OperatorRequest) -> None:
    mixed = replace(parse_authorization(signed(one)), body_hash=other.body_hash)
    if (one.method, one.target, one.worker, one.body_hash) != (
        other.method,
        other.target,
        other.worker,
        other.body_hash,
    ):
        with pytest.raises(BadCredentials):
            check_signature(mixed, other.method, other.target, other.worker, DOMAIN)


def test_the_types_are_those_of_eip_712() -> None:
    """As eth_account hashes the same messages from their types."""
    domain = {
        "name": "inferd worker",
        "version": "1",
        "chainId": 31337,
        "verifyingContract": to_checksum_address(RESULTS),
    }
    message: dict[str, Any] = {
        "method": ASKED.method,
        "target": ASKED.target,
        "bodyHash": ASKED.body_hash,
        "worker": to_checksum_address(ASKED.worker),
        "nonce": ASKED.nonce,
        "expiresAt": ASKED.expires_at_s,
    }
    types = {
        "OperatorRequest": [
            {"name": "method", "type": "string"},
            {"name": "target", "type": "string"},
            {"name": "bodyHash", "type": "bytes32"},
            {"name": "worker", "type": "address"},
            {"name": "nonce", "type": "bytes32"},
            {"name": "expiresAt", "type": "uint64"},
        ]
    }
    encoded = encode_typed_data(domain, types, message)
    by_wallet = Account.sign_message(encoded, bytes(KEY.to_bytes()))
    found = parse_authorization(authorization(ASKED, OPERATOR, bytes(by_wallet.signature)))
    check_signature(found, ASKED.method, ASKED.target, WORKER, DOMAIN)
    assert by_wallet.message_hash == ASKED.digest(DOMAIN)
    beat = {"nonce": NONCE, "atMs": 17, "bodyHash": body_hash(b"x")}
    beat_types = {
        "Heartbeat": [
            {"name": "nonce", "type": "bytes32"},
            {"name": "atMs", "type": "uint64"},
            {"name": "bodyHash", "type": "bytes32"},
        ]
    }
    by_wallet = Account.sign_message(
        encode_typed_data(domain, beat_types, beat), bytes(KEY.to_bytes())
    )
    assert by_wallet.message_hash == heartbeat_digest(DOMAIN, NONCE, 17, body_hash(b"x"))


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_no_changed_character_is_taken(at: int, byte: int) -> None:
    header = signed(ASKED)
    at %= len(header)
    changed = header[:at] + chr(byte) + header[at + 1 :]
    if changed == header:
        return
    with pytest.raises(BadCredentials):
        check_signature(parse_authorization(changed), "POST", ASKED.target, WORKER, DOMAIN)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Inferd",
        "Bearer token",
        signed(ASKED) + "\n",
        signed(ASKED) + ",signature=0x" + "00" * 64,
        signed(ASKED).replace("expires=1", "expires=01"),
        signed(ASKED).replace("expires=1800000000", f"expires={2**63}"),
        signed(ASKED).upper(),
        signed(ASKED)[:-2],
        signed(ASKED) + "05",
        signed(ASKED).replace("expires=1", "expires=\u0661"),
    ],
)
def test_another_form_is_refused(header: str) -> None:
    with pytest.raises(BadCredentials):
        check_signature(parse_authorization(header), "POST", ASKED.target, WORKER, DOMAIN)


def test_another_key_domain_or_deployment_is_refused() -> None:
    stranger = PrivateKey(b"\x06" * 32)
    found = parse_authorization(signed(ASKED, stranger))
    with pytest.raises(BadCredentials):
        check_signature(found, "POST", ASKED.target, WORKER, DOMAIN)
    found = parse_authorization(signed(ASKED))
    for domain in (
        worker_domain(1, RESULTS),
        worker_domain(31337, WORKER),
        domain_separator(31337, RESULTS),
    ):
        with pytest.raises(BadCredentials):
            check_signature(found, "POST", ASKED.target, WORKER, domain)


@given(_bytes32)
def test_signatures_of_65_bytes_are_the_same(digest: Hash32) -> None:
    by_wallet = KEY.sign_msg_hash(digest)
    short = DigestSigner(KEY).sign(digest)
    r_s = by_wallet.r.to_bytes(32, "big") + by_wallet.s.to_bytes(32, "big")
    assert compact(r_s + bytes([by_wallet.v])) == short
    assert compact(r_s + bytes([27 + by_wallet.v])) == short
    for malformed in (r_s + b"\x02", r_s + b"\x1d", r_s[:63], r_s + b"\x00\x00"):
        with pytest.raises(BadSignature):
            compact(malformed)


def a_heartbeat(**changes: Any) -> Heartbeat:
    values: dict[str, Any] = {
        "at_ms": 1_800_000_000_123,
        "nonce": as_hex(NONCE),
        "slots": 4,
        "running": 1,
        "queued": 0,
        "free_memory_mb": 900,
        "models": [ModelHealth("text", True, 12.5, 100.0, 55.0)],
        "version": "0.1.0",
        "encryption_keys": [SignedKey("0x" + "ab" * 32, "0x" + "cd" * 64)],
    }
    return Heartbeat(**values | changes)


def test_an_agent_without_keys_for_private_inputs_may_leave_them_out() -> None:
    body = json.loads(encode(a_heartbeat()))
    del body["encryption_keys"]
    assert decode(json.dumps(body).encode(), Heartbeat) == a_heartbeat(encryption_keys=[])


def test_keys_are_few_and_whole() -> None:
    (key,) = a_heartbeat().encryption_keys
    for wrong in ([key] * (MAX_ENCRYPTION_KEYS + 1), [SignedKey("0x12", key.signature)]):
        with pytest.raises(BadMessage):
            decode(encode(a_heartbeat(encryption_keys=wrong)), Heartbeat)


def test_a_heartbeat_is_the_workers_answer_to_one_request() -> None:
    worker = Address(KEY.public_key.to_canonical_address())
    beat = a_heartbeat()
    sent = sign_heartbeat(DigestSigner(KEY), DOMAIN, beat)
    assert checked_heartbeat(sent, nonce=NONCE, worker=worker, domain=DOMAIN) == beat
    again = sign_heartbeat(DigestSigner(KEY), DOMAIN, a_heartbeat(nonce="0x" + "01" * 32))
    foreign = sign_heartbeat(DigestSigner(PrivateKey(b"\x06" * 32)), DOMAIN, beat)
    crowded = sign_heartbeat(
        DigestSigner(KEY), DOMAIN, a_heartbeat(models=beat.models * (MAX_HEARTBEAT_MODELS + 1))
    )
    altered = sent.heartbeat.replace(b'"slots":4', b'"slots":9')
    for spoiled in (
        again,
        foreign,
        crowded,
        SignedHeartbeat(altered, sent.signature),
        SignedHeartbeat(b"{}", sent.signature),
        SignedHeartbeat(sent.heartbeat, as_hex(bytes(64))),
    ):
        with pytest.raises(BadHeartbeat):
            checked_heartbeat(spoiled, nonce=NONCE, worker=worker, domain=DOMAIN)
    with pytest.raises(BadHeartbeat):
        checked_heartbeat(sent, nonce=Hash32(bytes(32)), worker=worker, domain=DOMAIN)
    with pytest.raises(BadHeartbeat):
        checked_heartbeat(sent, nonce=NONCE, worker=WORKER, domain=DOMAIN)
    assert of_hex(beat.nonce) == NONCE
