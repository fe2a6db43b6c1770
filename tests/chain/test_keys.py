"""A key opens, or one line says why not; no text ever holds a key or a password."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from eth_account import Account
from pydantic import SecretStr, ValidationError
from structlog.testing import capture_logs

from inferd.chain.keys import BadKey, KeySource, address_of, open_account
from inferd.chain.signers import LocalSigner

SECRET = "0x" + "5e" * 32
PASSWORD = "correct horse battery"
MAINNET, ANVIL = 1, 31337


@pytest.fixture
def keystore(tmp_path: Path) -> KeySource:
    place, password = tmp_path / "key.json", tmp_path / "password"
    place.write_text(json.dumps(Account.encrypt(SECRET, PASSWORD, kdf="pbkdf2", iterations=2)))
    password.write_text(PASSWORD + "\n")
    return KeySource(keystore=place, password_file=password)


def test_a_keystore_opens_on_every_chain(keystore: KeySource) -> None:
    account = open_account(keystore, MAINNET, use="poster")

    assert account.address == Account.from_key(SECRET).address


def test_a_wrong_password_is_told(keystore: KeySource, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("wrong guess")

    with pytest.raises(BadKey, match="the password is wrong") as refused:
        open_account(keystore, MAINNET, use="poster")

    assert "wrong guess" not in str(refused.value) + refused.value.help_text


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"version": 3}', "\x00"])
def test_a_file_that_is_no_keystore_is_told(
    keystore: KeySource, tmp_path: Path, content: str
) -> None:
    (tmp_path / "key.json").write_text(content)

    with pytest.raises(BadKey, match="keystore"):
        open_account(keystore, MAINNET, use="poster")


@pytest.mark.parametrize("missing", ["key.json", "password"])
def test_a_missing_file_is_told(keystore: KeySource, tmp_path: Path, missing: str) -> None:
    (tmp_path / missing).unlink()

    with pytest.raises(BadKey, match="poster key cannot be read"):
        open_account(keystore, MAINNET, use="poster")


def test_bytes_that_are_no_text_are_told(keystore: KeySource, tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"\xff\xfe\x80")

    with pytest.raises(BadKey):
        open_account(keystore, MAINNET, use="poster")


@pytest.mark.parametrize("source", [KeySource(dev_account=0), KeySource(raw=SecretStr(SECRET))])
def test_development_keys_stay_on_development_chains(source: KeySource) -> None:
    assert open_account(source, ANVIL, use="poster").address

    with pytest.raises(BadKey, match="no development chain") as refused:
        open_account(source, MAINNET, use="poster")

    assert SECRET not in str(refused.value)


def test_a_raw_key_is_warned_of_and_in_no_text() -> None:
    source = KeySource(raw=SecretStr(SECRET))
    with capture_logs() as told:
        account = open_account(source, ANVIL, use="poster")
    (warning,) = told
    assert (warning["event"], warning["log_level"]) == ("raw_key", "warning")
    assert (warning["address"], warning["use"]) == (account.address, "poster")
    signer = LocalSigner(account)
    for shown in (told, source, source.model_dump_json(), signer, f"{signer}"):
        assert "5e5e" not in f"{shown!r}"


def test_a_raw_key_that_is_none_is_not_shown() -> None:
    with pytest.raises(BadKey, match="not 32 bytes of hex") as refused:
        open_account(KeySource(raw=SecretStr("0x5e5e5e")), ANVIL, use="poster")

    assert "5e5e" not in str(refused.value) + repr(refused.value.__cause__)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"keystore": "a"},
        {"password_file": "a", "dev_account": 1},
        {"dev_account": 1, "raw": SECRET},
        {"dev_account": -1},
        {"remote_signer_url": "http://127.0.0.1:9000"},
        {"address": "0x" + "ab" * 20},
        {"dev_account": 1, "address": "0x" + "ab" * 20},
        {"remote_signer_url": "http://127.0.0.1:9000", "address": "0xab"},
        {"remote_signer_url": "ftp://127.0.0.1", "address": "0x" + "ab" * 20},
        {"remote_signer_url": "http://:9000", "address": "0x" + "ab" * 20},
        {"remote_signer_url": "http://[", "address": "0x" + "ab" * 20},
    ],
)
def test_exactly_one_source(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        KeySource.model_validate(fields)


def test_a_key_at_a_remote_signer_is_opened_by_nobody_here() -> None:
    url = SecretStr("https://user:hunter2@127.0.0.1:9000")
    source = KeySource(remote_signer_url=url, address="0x" + "ab" * 20)
    assert address_of(source, MAINNET, use="poster") == b"\xab" * 20
    with pytest.raises(BadKey, match="at a remote signer") as refused:
        open_account(source, ANVIL, use="worker text")
    assert "hunter2" not in f"{refused.value!r} {source!r}"
