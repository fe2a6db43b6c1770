"""Compiled contracts: ABI, bytecode and storage layout, in git so that none is needed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

CONTRACTS = (
    "InferenceRequests",
    "InferenceResults",
    "WorkerRegistry",
    "StakeManager",
    "Disputes",
    "AttestationVerifier",
)
EXAMPLES = ("Diary", "Emitter")
"""Contracts that ask: what the tests and `inferd bench` call back."""

_PACKAGED = Path(__file__).parent / "artifacts"
_CHECKOUT = Path(__file__).parents[2] / "contracts" / "artifacts"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One compiled contract."""

    name: str
    abi: list[dict[str, Any]]
    bytecode: bytes
    storage_layout: dict[str, Any]


def artifacts_folder() -> Path:
    """Inside an installed wheel, or the checkout's own."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


@cache
def load(name: str) -> Artifact:
    """Reads one artifact. Raises FileNotFoundError for an unknown name."""
    raw = json.loads((artifacts_folder() / f"{name}.json").read_text())
    return Artifact(
        name=name,
        abi=raw["abi"],
        bytecode=bytes.fromhex(raw["bytecode"].removeprefix("0x")),
        storage_layout=raw["storageLayout"],
    )
