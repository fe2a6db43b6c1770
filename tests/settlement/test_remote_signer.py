"""A remote signer is asked, and nothing it says is believed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from eth_account import Account
from eth_account.typed_transactions.dynamic_fee_transaction import DynamicFeeTransaction
from eth_utils.address import to_canonical_address, to_checksum_address
from hexbytes import HexBytes
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address
from inferd.chain.encoding import signed, v_of
from inferd.chain.keys import BadKey
from inferd.chain.remote_signer import RemoteSigner
from inferd.chain.signed_answer import NotWhatWasAsked, checked, raw_of
from inferd.chain.signers import LocalSigner, SignerTrouble
from tests.settlement.signer_server import Lie, SignerServer, signer_server

ACCOUNT = Account.from_key(b"\x42" * 32)
STRANGER = Account.from_key(b"\x43" * 32)
ADDRESS = Address(to_canonical_address(ACCOUNT.address))
ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
ASKED: dict[str, Any] = {
    "type": 2,
    "chainId": 31337,
    "nonce": 3,
    "to": to_checksum_address(b"\x01" * 20),
    "value": 0,
    "data": b"\x01\x02",
    "gas": 90_000,
    "maxFeePerGas": 5_000,
    "maxPriorityFeePerGas": 1_000,
}


ASKED_LEGACY: dict[str, Any] = {
    **{name: ASKED[name] for name in ("chainId", "nonce", "to", "value", "data", "gas")},
    "gasPrice": 5_000,
}


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
async def server() -> AsyncIterator[SignerServer]:
    async with signer_server(ACCOUNT) as running:
        yield running


@pytest.fixture
async def signer(server: SignerServer) -> AsyncIterator[RemoteSigner]:
    remote = RemoteSigner(server.url, ADDRESS, timeout_s=0.5, clock=Clock())
    yield remote
    await remote.close()


@pytest.mark.parametrize("as_geth", [False, True])
async def test_gives_the_bytes_that_the_key_itself_would(
    server: SignerServer, signer: RemoteSigner, as_geth: bool
) -> None:
    server.as_geth = as_geth
    assert await signer.sign(ASKED) == await LocalSigner(ACCOUNT).sign(ASKED)
    assert signer.address == ADDRESS


def changing(**fields: Any) -> Lie:
    return lambda transaction: transaction | fields


def by_another(transaction: dict[str, Any]) -> str:
    return "0x" + bytes(STRANGER.sign_transaction(transaction).raw_transaction).hex()


def with_high_s(transaction: dict[str, Any]) -> str:
    signed = ACCOUNT.sign_transaction(transaction)
    flipped = DynamicFeeTransaction.from_dict(
        transaction | {"accessList": (), "v": 1 - signed.v, "r": signed.r, "s": ORDER - signed.s}
    )
    return "0x02" + flipped.payload().hex()


def with_more_behind(transaction: dict[str, Any]) -> str:
    return "0x" + bytes(ACCOUNT.sign_transaction(transaction).raw_transaction).hex() + "00"


def as_legacy(transaction: dict[str, Any]) -> str:
    fields = {
        name: value
        for name, value in transaction.items()
        if name not in {"type", "maxFeePerGas", "maxPriorityFeePerGas"}
    }
    signed = ACCOUNT.sign_transaction(fields | {"gasPrice": 5_000})
    return "0x" + bytes(signed.raw_transaction).hex()


def naming_another_hash(transaction: dict[str, Any]) -> dict[str, Any]:
    raw = bytes(ACCOUNT.sign_transaction(transaction).raw_transaction)
    return {"raw": "0x" + raw.hex(), "tx": {"hash": "0x" + "00" * 32}}


LIES: dict[str, tuple[Lie, str]] = {
    "other nonce": (changing(nonce=4), "its nonce is another"),
    "other chain": (changing(chainId=1), "its chainId is another"),
    "higher fee": (changing(maxFeePerGas=5_001), "its maxFeePerGas is another"),
    "higher tip": (changing(maxPriorityFeePerGas=1_001), "its maxPriorityFeePerGas is another"),
    "more gas": (changing(gas=90_001), "its gas is another"),
    "other receiver": (changing(to=STRANGER.address), "its to is another"),
    "value": (changing(value=1), "its value is another"),
    "other data": (changing(data=b"\x01\x03"), "its data is another"),
    "access list": (
        changing(accessList=[{"address": STRANGER.address, "storageKeys": []}]),
        "its accessList is another",
    ),
    "other account": (by_another, "another account signed it"),
    "high s": (with_high_s, "not canonical"),
    "bytes behind": (with_more_behind, "cannot be read"),
    "legacy": (as_legacy, "no transaction of type 2"),
    "other hash": (naming_another_hash, "the hash it names is another"),
    "garbage": (lambda transaction: "0x02c0ffee", "cannot be read"),
    "no hex": (lambda transaction: "0xzz", "no hex text"),
    "a number": (lambda transaction: 7, "no hex text"),
    "nothing": (lambda transaction: None, "no hex text"),
    "empty": (lambda transaction: "0x", "no transaction of type 2"),
    "an object": (lambda transaction: {"raw": None}, "no hex text"),
    "a refusal": (
        lambda transaction: {"error": {"code": -32000, "message": "sealed"}},
        "does not sign: sealed",
    ),
}


@pytest.mark.parametrize(("lie", "words"), LIES.values(), ids=LIES.keys())
async def test_what_was_not_asked_for_is_not_taken(
    server: SignerServer, signer: RemoteSigner, lie: Lie, words: str
) -> None:
    server.lie = lie
    with pytest.raises(SignerTrouble, match=words):
        await signer.sign(ASKED)


@given(st.data())
def test_no_change_of_a_byte_is_taken(data: st.DataObject) -> None:
    raw = bytearray(ACCOUNT.sign_transaction(ASKED).raw_transaction)
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(NotWhatWasAsked):
        checked(bytes(raw), ASKED, ADDRESS)


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_break_the_check(body: bytes, typed: bool) -> None:
    with pytest.raises(NotWhatWasAsked):
        checked(b"\x02" + body if typed else body, ASKED, ADDRESS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("0x02"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["raw", "tx", "hash"]), inner, max_size=3)
    ),
)


@given(JSON)
def test_no_answer_breaks_the_reader(answer: Any) -> None:
    with suppress(NotWhatWasAsked):
        assert isinstance(raw_of(answer), bytes)


@given(
    nonce=st.integers(0, 2**64 - 2),
    fee=st.integers(0, 2**128),
    gas=st.integers(21_000, 2**24),
    data=st.binary(max_size=200),
)
def test_what_was_asked_for_is_taken(nonce: int, fee: int, gas: int, data: bytes) -> None:
    asked = ASKED | {
        "nonce": nonce,
        "maxFeePerGas": fee,
        "maxPriorityFeePerGas": fee // 2,
        "gas": gas,
        "data": data,
    }
    signed = ACCOUNT.sign_transaction(asked)
    taken = checked(bytes(signed.raw_transaction), asked, ADDRESS)
    assert (taken.raw, taken.hash) == (bytes(signed.raw_transaction), bytes(signed.hash))
    assert DynamicFeeTransaction.from_bytes(HexBytes(taken.raw)).dictionary["nonce"] == nonce


async def test_a_silent_one_is_given_up_and_rests(server: SignerServer) -> None:
    clock = Clock()
    signer = RemoteSigner(server.url, ADDRESS, timeout_s=0.2, clock=clock)
    server.silent = True
    for rest_s in (1, 2, 4):
        with pytest.raises(SignerTrouble, match="does not answer within"):
            await signer.sign(ASKED)
        asked = server.signatures()
        with pytest.raises(SignerTrouble, match=f"asked again in {rest_s} s"):
            await signer.sign(ASKED)
        assert server.signatures() == asked
        clock.now_s += rest_s
    server.silent = False
    await signer.sign(ASKED)
    server.status = 500
    with pytest.raises(SignerTrouble, match="HTTP 500"):
        await signer.sign(ASKED)
    with pytest.raises(SignerTrouble, match="asked again in 1 s"):
        await signer.sign(ASKED)
    await signer.close()


async def test_nobody_there() -> None:
    signer = RemoteSigner("http://127.0.0.1:1", ADDRESS)
    await signer.check()
    with pytest.raises(SignerTrouble, match="does not answer"):
        await signer.sign(ASKED)
    await signer.close()


@pytest.mark.parametrize("accounts", [[], [STRANGER.address, 7, None, "0x"]])
async def test_one_without_the_key_is_told_at_the_start(
    server: SignerServer, signer: RemoteSigner, accounts: list[Any]
) -> None:
    await signer.check()
    server.accounts = accounts
    with pytest.raises(BadKey, match=f"no key of {ACCOUNT.address}"):
        await signer.check()


async def test_one_that_does_not_list_its_accounts_may_have_the_key(
    server: SignerServer, signer: RemoteSigner
) -> None:
    for accounts in ({}, "no", 7):
        server.accounts = accounts
        await signer.check()
    server.status = 404
    await signer.check()


@given(st.text("abcdefghijklmnop0123456789", min_size=8, max_size=40), st.integers(0, 3))
async def test_no_text_holds_what_its_url_keeps_secret(secret: str, place: int) -> None:
    secret = f"s3cr3t-{secret}"
    url = (
        f"http://user:{secret}@127.0.0.1:1/sign",
        f"http://{secret}:word@127.0.0.1:1",
        f"http://127.0.0.1:1/{secret}/x",
        f"http://127.0.0.1:1/?key={secret}",
    )[place]
    signer = RemoteSigner(url, ADDRESS)
    with pytest.raises(SignerTrouble) as trouble:
        await signer.sign(ASKED)
    said = trouble.value
    chain = f"{said!r} {said} {said.help_text} {said.__cause__!r} {said.__context__!r} {signer!r}"
    assert secret not in chain
    await signer.close()


async def test_signs_with_a_gas_price_where_one_is_asked_for(
    server: SignerServer, signer: RemoteSigner
) -> None:
    assert await signer.sign(ASKED_LEGACY) == await LocalSigner(ACCOUNT).sign(ASKED_LEGACY)
    asked = server.asked[-1]["params"][0]
    assert asked["gasPrice"] == hex(5_000)
    assert "maxFeePerGas" not in asked


LEGACY_LIES: dict[str, tuple[Lie, str]] = {
    "other nonce": (changing(nonce=4), "its nonce is another"),
    "other chain": (changing(chainId=1), "another chain"),
    "higher price": (changing(gasPrice=5_001), "its gasPrice is another"),
    "more gas": (changing(gas=90_001), "its gas is another"),
    "other receiver": (changing(to=STRANGER.address), "its to is another"),
    "value": (changing(value=1), "its value is another"),
    "other data": (changing(data=b"\x01\x03"), "its data is another"),
    "other account": (by_another, "another account signed it"),
    "bytes behind": (with_more_behind, "cannot be read"),
    "type 2": (
        lambda _: "0x" + bytes(ACCOUNT.sign_transaction(ASKED).raw_transaction).hex(),
        "read",
    ),
}


@pytest.mark.parametrize("name", LEGACY_LIES)
async def test_whatever_else_comes_with_a_gas_price_is_no_signature(
    server: SignerServer, signer: RemoteSigner, name: str
) -> None:
    server.lie, said = LEGACY_LIES[name]
    with pytest.raises(SignerTrouble, match=said):
        await signer.sign(ASKED_LEGACY)


@given(st.binary(max_size=200))
def test_no_foreign_bytes_pass_for_a_legacy_signature(raw: bytes) -> None:
    with pytest.raises(NotWhatWasAsked):
        checked(raw, ASKED_LEGACY, ADDRESS)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64), st.binary(max_size=300), st.booleans())
def test_bytes_are_those_of_another_encoder(
    nonce: int, price: int, data: bytes, dynamic: bool
) -> None:
    asked = (ASKED if dynamic else ASKED_LEGACY) | {"nonce": nonce, "data": data}
    asked |= {"maxFeePerGas": price} if dynamic else {"gasPrice": price}
    made = ACCOUNT.sign_transaction(asked)
    parity = made.v if dynamic else made.v - v_of(asked, 0)
    assert signed(asked, parity, made.r, made.s) == bytes(made.raw_transaction)
    assert checked(bytes(made.raw_transaction), asked, ADDRESS).hash == bytes(made.hash)


@given(st.binary(max_size=300), st.booleans())
def test_what_creates_a_contract_has_no_receiver(code: bytes, dynamic: bool) -> None:
    asked = (ASKED if dynamic else ASKED_LEGACY) | {"data": code}
    called = bytes(ACCOUNT.sign_transaction(asked).raw_transaction)
    del asked["to"]
    made = ACCOUNT.sign_transaction(asked)
    assert checked(bytes(made.raw_transaction), asked, ADDRESS).hash == bytes(made.hash)
    with pytest.raises(NotWhatWasAsked, match="its to is another"):
        checked(called, asked, ADDRESS)
