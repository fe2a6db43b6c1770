"""Every custom error is named with its arguments, and the common ones come with advice."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from inferd.protocol.artifacts import CONTRACTS, load
from inferd.protocol.reverts import _ADVICE, decode_revert, revert_advice

ERRORS: dict[str, list[dict[str, Any]]] = {
    entry["name"]: entry["inputs"]
    for contract in CONTRACTS
    for entry in load(contract).abi
    if entry["type"] == "error"
}
VALUES = {"address": "0x" + "ab" * 20, "uint256": 7}


def data_of(name: str) -> bytes:
    types = [entry["type"] for entry in ERRORS[name]]
    selector = keccak(text=f"{name}({','.join(types)})")[:4]
    return selector + encode(types, [VALUES[kind] for kind in types])


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_error_of_ours_is_read(name: str) -> None:
    arguments = (f"{entry['name']}={VALUES[entry['type']]}" for entry in ERRORS[name])

    assert decode_revert("0x" + data_of(name).hex()) == f"{name}({', '.join(arguments)})"


def test_all_advice_is_about_an_error_there_is() -> None:
    assert _ADVICE.keys() <= ERRORS.keys()


def test_advice_is_found_by_the_bytes() -> None:
    advice = revert_advice(data_of("RequestsPaused"))

    assert advice is not None
    assert "inferd admin show" in advice
    assert revert_advice(data_of("FeeZero")) is None
    assert revert_advice("0x12345678") is None
    assert revert_advice(None) is None


def test_arguments_that_are_cut_off() -> None:
    assert decode_revert(data_of("NotHeld")[:-1]) == "NotHeld"
