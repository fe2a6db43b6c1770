"""Compiles the contracts into the artifacts that are kept in git.

The compiler is py-solc-x's: a native solc of the wanted version where one is installed or can be
installed, else the npm one behind contracts/solc-shim.cjs. Both give the same bytes.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from indexer.errors import OperatorError
from inferd.protocol.artifacts import CONTRACTS, EXAMPLES

SOLC_VERSION = "0.8.37"


class CompilerMissing(OperatorError):
    """No Solidity compiler can be had."""

    code: ClassVar[str] = "compiler_missing"


class CompilationFailed(OperatorError):
    """The compiler refused the sources."""

    code: ClassVar[str] = "compilation_failed"


@dataclass(frozen=True, slots=True)
class Compilation:
    """Artifacts by contract name, and which compiler made them."""

    artifacts: dict[str, dict[str, Any]]
    compiler: str


def compile_contracts(
    folder: Path, *, may_install: bool, names: tuple[str, ...] = CONTRACTS + EXAMPLES
) -> Compilation:
    """Compiles `folder`/src with the settings of `folder`/foundry.toml.

    `may_install` allows to download a native solc where none is installed. Raises
    CompilerMissing, CompilationFailed.
    """
    import solcx  # noqa: PLC0415 - an optional extra that operators do not need
    from solcx.exceptions import SolcError  # noqa: PLC0415

    binary, described = _compiler(folder, may_install)
    sources = {
        path.relative_to(folder).as_posix(): {"content": path.read_text()}
        for path in sorted((folder / "src").rglob("*.sol"))
    }
    standard_input = {
        "language": "Solidity",
        "sources": sources,
        "settings": _settings(folder),
    }
    try:
        output = solcx.compile_standard(standard_input, solc_binary=binary)
    except SolcError as error:
        raise CompilationFailed(
            f"the contracts do not compile: {_first_error(error)}",
            help_text="`forge build` in contracts/ shows the place",
        ) from error
    artifacts = {}
    for name in names:
        compiled = output["contracts"][_place_of(name, sources)][name]
        artifacts[name] = {
            "contractName": name,
            "compiler": SOLC_VERSION,
            "abi": compiled["abi"],
            "bytecode": "0x" + compiled["evm"]["bytecode"]["object"],
            "storageLayout": _without_ast_ids(compiled["storageLayout"]),
        }
    return Compilation(artifacts, described)


def _place_of(name: str, sources: Iterable[str]) -> str:
    """A contract is in the file of its name, in whichever folder."""
    return next(place for place in sources if Path(place).stem == name)


def write_artifacts(compilation: Compilation, folder: Path) -> list[Path]:
    """Writes one file a contract; returns those that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, artifact in compilation.artifacts.items():
        path = folder / f"{name}.json"
        text = json.dumps(artifact, indent=1) + "\n"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed.append(path)
    return changed


def _compiler(folder: Path, may_install: bool) -> tuple[Path, str]:
    import solcx  # noqa: PLC0415
    from solcx.exceptions import SolcInstallationError  # noqa: PLC0415

    installed = any(str(version) == SOLC_VERSION for version in solcx.get_installed_solc_versions())
    if not installed and may_install:
        with contextlib.suppress(SolcInstallationError, OSError, ValueError):
            solcx.install_solc(SOLC_VERSION)
            installed = True
    if installed:
        return Path(solcx.install.get_executable(SOLC_VERSION)), f"native solc {SOLC_VERSION}"
    shim = folder / "solc-shim.cjs"
    if (folder.parent / "node_modules" / "solc").is_dir() and shim.is_file():
        return shim, f"npm solc {SOLC_VERSION}"
    raise CompilerMissing(
        f"no solc {SOLC_VERSION}: neither a native one nor the npm one is installed",
        help_text="run `make setup`, which installs the npm one",
    )


def _settings(folder: Path) -> dict[str, Any]:
    profile = tomllib.loads((folder / "foundry.toml").read_text())["profile"]["default"]
    return {
        "optimizer": {"enabled": profile["optimizer"], "runs": profile["optimizer_runs"]},
        "viaIR": profile["via_ir"],
        "evmVersion": profile["evm_version"],
        "metadata": {"bytecodeHash": profile["bytecode_hash"]},
        "outputSelection": {"*": {"*": ["abi", "evm.bytecode.object", "storageLayout"]}},
    }


def _without_ast_ids(layout: dict[str, Any]) -> dict[str, Any]:
    """AST ids change with any edit of any source; the layout does not."""
    return {
        "storage": [
            {
                "label": entry["label"],
                "slot": entry["slot"],
                "offset": entry["offset"],
                "type": layout["types"][entry["type"]]["label"],
                "numberOfBytes": layout["types"][entry["type"]]["numberOfBytes"],
            }
            for entry in layout["storage"]
        ]
    }


def _first_error(error: Exception) -> str:
    message = getattr(error, "message", None) or str(error)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if "Error" in line), lines[0] if lines else "no message")
