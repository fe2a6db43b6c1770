"""The artifacts in git come from the sources beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferd.chain.compile import Compilation, compile_contracts, write_artifacts
from inferd.protocol.artifacts import CONTRACTS, EXAMPLES, artifacts_folder, load

SOURCES = Path(__file__).parents[2] / "contracts"


@pytest.fixture(scope="module")
def compiled() -> Compilation:
    return compile_contracts(SOURCES, may_install=False)


def test_the_artifacts_are_those_of_the_sources(compiled: Compilation, tmp_path: Path) -> None:
    written = write_artifacts(compiled, tmp_path)

    assert sorted(path.stem for path in written) == sorted(CONTRACTS + EXAMPLES)
    for path in written:
        kept = artifacts_folder() / path.name
        assert kept.read_bytes() == path.read_bytes(), f"run `inferd compile`: {path.stem} differs"


def test_writing_the_same_artifacts_again_changes_no_file(
    compiled: Compilation, tmp_path: Path
) -> None:
    write_artifacts(compiled, tmp_path)

    assert write_artifacts(compiled, tmp_path) == []


def test_the_storage_layout_is_the_agreed_one() -> None:
    """One slot a request, bits in words: what upgrades of the indexer and proofs rely on."""
    layout = {
        (entry["label"], entry["slot"], entry["type"])
        for entry in load("InferenceRequests").storage_layout["storage"]
    }

    assert layout == {
        ("_owner", "0", "address"),
        ("_pendingOwner", "1", "address"),
        ("_terms", "2", "struct ModelTerms[]"),
        ("_termsOfModel", "3", "mapping(bytes32 => uint256)"),
        ("_termsOfRequest", "4", "mapping(uint256 => uint256)"),
        ("_credits", "5", "mapping(address => uint256)"),
        ("_state", "6", "uint256"),
        ("_settledWords", "7", "uint256[72057594037927936]"),
        ("_storedWords", "72057594037927943", "uint256[72057594037927936]"),
        ("_requests", "144115188075855879", "RequestWord[9223372036854775808]"),
    }
    assert load("InferenceResults").storage_layout["storage"] == []


def test_artifacts_name_no_path_of_this_machine() -> None:
    for name in CONTRACTS + EXAMPLES:
        text = json.dumps(load(name).abi)
        assert str(SOURCES.parent) not in text
