"""What is put on the chain: the contracts under test, and the tests' own that use them."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferd.chain.compile import compile_contracts
from inferd.protocol.artifacts import artifacts_folder

_HERE = Path(__file__).parent
_CHECKOUT = Path(__file__).parents[2]
_UNDER_TEST = "INFERD_ARTIFACTS_UNDER_TEST"
"""Names a folder of other artifacts: contracts broken on purpose, which the tests must refuse."""
HELPERS = ("Consumer", "OddVerifier", "Viewer", "ProofChecker")
_SETTINGS = """
[profile.default]
evm_version = "cancun"
optimizer = true
optimizer_runs = 200
via_ir = false
bytecode_hash = "none"
"""


@dataclass(frozen=True, slots=True)
class Code:
    """One compiled contract."""

    abi: list[dict[str, Any]]
    bytecode: str
    storage: dict[str, int]


def under_test(name: str) -> Code:
    folder = Path(os.environ.get(_UNDER_TEST, artifacts_folder()))
    return _code(json.loads((folder / f"{name}.json").read_text()))


def compile_helpers(folder: Path) -> dict[str, Code]:
    """Compiles ./sources beside the libraries they show."""
    for shown in ("lib", "interfaces"):
        source = _CHECKOUT / "contracts" / "src" / shown
        shutil.copytree(source, folder / "contracts" / "src" / shown)
    return compile_sources(_HERE / "sources", folder, HELPERS)


def compile_sources(sources: Path, folder: Path, names: tuple[str, ...]) -> dict[str, Code]:
    """Compiles what is in `sources`, by way of `folder`; plainly and so quickly."""
    contracts = folder / "contracts"
    shutil.copytree(sources, contracts / "src", dirs_exist_ok=True)
    shutil.copy(_CHECKOUT / "contracts" / "solc-shim.cjs", contracts)
    (contracts / "foundry.toml").write_text(_SETTINGS)
    (folder / "node_modules").symlink_to(_CHECKOUT / "node_modules")
    compiled = compile_contracts(contracts, may_install=False, names=names)
    return {name: _code(artifact) for name, artifact in compiled.artifacts.items()}


def _code(artifact: dict[str, Any]) -> Code:
    storage = {e["label"]: int(e["slot"]) for e in artifact["storageLayout"]["storage"]}
    return Code(artifact["abi"], artifact["bytecode"], storage)
