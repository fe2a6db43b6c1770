"""Whose money is the operator's: what the settings say, and else the owners they name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from eth_account import Account
from eth_utils.address import to_canonical_address

from indexer.types import Address
from inferd.chain.anvil import load_anvil_config
from inferd.chain.keys import BadKey, KeySource, address_of
from inferd.node.posting_settings import PostingSettings
from inferd.node.preflight import ChainFacts
from inferd.node.session_settings import own_accounts, settlement_settings
from inferd.node.settings import BadSettings, Settings, load_settings
from inferd.node.worker_settings import WorkerSettings

ANVIL, MAINNET = 31337, 1
POSTER = Address(b"\x09" * 20)
THIRD = Address(b"\x0a" * 20)
OWNER = Address(b"\x0c" * 20)


def worker(name: str, owner: KeySource | None) -> WorkerSettings:
    return WorkerSettings(
        name=name, backend="markov", model="m", key=KeySource(dev_account=5), owner=owner
    )


def keystore(folder: Path, body: object) -> KeySource:
    path = folder / "owner.json"
    path.write_text(json.dumps(body))
    return KeySource(keystore=path, password_file=folder / "missing")


def test_the_poster_and_the_owners_that_are_named(tmp_path: Path) -> None:
    settings = Settings(
        workers=(
            worker("mine", KeySource(dev_account=3)),
            worker("locked", keystore(tmp_path, {"address": OWNER.hex()})),
            worker("theirs", None),
        )
    )
    third = to_canonical_address(load_anvil_config().account(3).address)
    assert own_accounts(settings, ANVIL, [POSTER, THIRD]) == {POSTER, THIRD, third, OWNER}


def test_an_address_is_read_without_the_password(tmp_path: Path) -> None:
    secret = "0x" + "5e" * 32
    source = keystore(tmp_path, Account.encrypt(secret, "lost", kdf="pbkdf2", iterations=2))
    address = to_canonical_address(Account.from_key(secret).address)
    assert address_of(source, MAINNET, use="owner") == address


def test_a_list_takes_their_place() -> None:
    settings = Settings(
        workers=(worker("mine", KeySource(dev_account=3)),),
        posting=PostingSettings(own_accounts=("0x" + OWNER.hex(),)),
    )
    assert own_accounts(settings, MAINNET, [POSTER]) == {OWNER}
    assert (
        own_accounts(Settings(posting=PostingSettings(own_accounts=())), ANVIL, [POSTER]) == set()
    )


@pytest.mark.parametrize("body", [{}, [], {"address": 5}, {"address": "0x12"}])
def test_a_keystore_without_its_address_is_told(tmp_path: Path, body: object) -> None:
    settings = Settings(workers=(worker("mine", keystore(tmp_path, body)),))
    with pytest.raises(BadKey) as caught:
        own_accounts(settings, MAINNET, [POSTER])
    assert "own_accounts" in caught.value.help_text


def test_a_keystore_that_is_not_here_is_told(tmp_path: Path) -> None:
    source = KeySource(keystore=tmp_path / "owner.json", password_file=tmp_path / "password")
    with pytest.raises(BadKey, match="owner of worker mine"):
        own_accounts(Settings(workers=(worker("mine", source),)), MAINNET, [POSTER])


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"posting\.own_accounts"):
        load_settings(posting={"own_accounts": ["0x1234"]})


def test_the_refunds_bounds_reach_settlement() -> None:
    settings = Settings(
        posting=PostingSettings(refund_min_fee_ratio=2.5, refund_budget_gwei_per_day=7)
    )
    given = settlement_settings(settings, ChainFacts(2_000), frozenset({OWNER}))
    assert given.own_accounts == {OWNER}
    assert given.refund_min_fee_ratio == 2.5
    assert given.refund_budget_wei_per_day == 7 * 10**9
