"""The deployment file: which contracts, on which chain, from which block."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from eth_utils.address import is_address, to_canonical_address, to_checksum_address

from indexer.errors import OperatorError
from indexer.types import Address, Contracts

_SCHEMA_VERSION = 2
_WITHOUT_DISPUTES = 1


class BadDeploymentFile(OperatorError):
    """The deployment file is missing or not one of ours."""

    code: ClassVar[str] = "bad_deployment_file"


@dataclass(frozen=True, slots=True)
class Deployment:
    """What `inferd deploy` leaves for every other command."""

    contracts: Contracts
    genesis_hash: bytes

    def save(self, path: Path) -> None:
        """Writes the file whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        body = {
            "schema_version": _SCHEMA_VERSION,
            "chain_id": self.contracts.chain_id,
            "genesis_hash": "0x" + self.genesis_hash.hex(),
            "start_block": self.contracts.start_block,
            "contracts": {
                "InferenceRequests": to_checksum_address(self.contracts.requests),
                "InferenceResults": to_checksum_address(self.contracts.results),
                "WorkerRegistry": to_checksum_address(self.contracts.registry),
                "StakeManager": to_checksum_address(self.contracts.stakes),
                "Disputes": to_checksum_address(self.contracts.disputes),
            },
        }
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(json.dumps(body, indent=2) + "\n")
        temporary.replace(path)


def load_deployment(path: Path) -> Deployment:
    """Raises BadDeploymentFile where the file is missing, unreadable or incomplete."""
    try:
        body = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadDeploymentFile(
            f"there is no deployment file at {path}",
            help_text="run `inferd deploy`, or name the file of an existing deployment with "
            "`deployment_file` in inferd.toml or INFERD_DEPLOYMENT_FILE",
        ) from None
    except (OSError, ValueError) as error:
        raise _bad(path, str(error)) from error
    if isinstance(body, dict) and body.get("schema_version") == _WITHOUT_DISPUTES:
        raise BadDeploymentFile(
            f"{path} names contracts of an earlier release of inferd, which this one cannot use",
            help_text="take the money out of them with that release; then deploy anew with"
            " `inferd deploy --force`, or name another `deployment_file`",
        )
    if not isinstance(body, dict) or body.get("schema_version") != _SCHEMA_VERSION:
        raise _bad(path, f"schema_version is not {_SCHEMA_VERSION}")
    try:
        named: Mapping[str, Any] = body["contracts"]
        contracts = Contracts(
            chain_id=int(body["chain_id"]),
            start_block=int(body["start_block"]),
            requests=_address(named, "InferenceRequests"),
            results=_address(named, "InferenceResults"),
            registry=_address(named, "WorkerRegistry"),
            stakes=_address(named, "StakeManager"),
            disputes=_address(named, "Disputes"),
        )
        return Deployment(contracts, bytes.fromhex(body["genesis_hash"].removeprefix("0x")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad(path, f"{type(error).__name__}: {error}") from error


def _address(named: Mapping[str, Any], name: str) -> Address:
    value = named[name]
    if not is_address(value):
        raise ValueError(f"{name} is not an address")
    return Address(to_canonical_address(value))


def _bad(path: Path, what: str) -> BadDeploymentFile:
    return BadDeploymentFile(
        f"{path} is not a deployment file: {what}",
        help_text="write it again with `inferd deploy`, or copy it from the operator"
        " of the deployment",
    )
