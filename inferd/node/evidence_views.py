"""Disagreements between workers for programs and third parties: complete enough to verify who
signed what without this node."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from eth_utils.address import to_checksum_address

from indexer.database import Connection
from indexer.types import Address
from inferd.node.api_models import SCHEMA_VERSION, View
from inferd.protocol.request import Commitment
from inferd.protocol.result import ResultItem, pack_items
from inferd.workers.checks import evidence
from inferd.workers.checks.evidence import Recorded, Side
from scheduler.model import RequestKey


class DomainView(View):
    """The EIP-712 domain of signatures over `ResultGroup(bytes items)`."""

    name: str = "inferd"
    version: str = "1"
    chain_id: int
    verifying_contract: str
    """InferenceResults of the deployment."""


class SideView(View):
    """What one worker said."""

    worker: str | None
    """None where it is what the operator knows."""
    digest: str
    """keccak256 of the output."""
    items: str
    """What is signed: id (8 bytes), commitment (20), digest (32)."""
    signature: str | None
    """EIP-2098, over ResultGroup(items)."""
    output: str | None
    """Base64; the beginning of a long one."""
    output_bytes: int | None
    """Of the whole."""
    media_type: str
    manifest: dict[str, Any]


class DisagreementView(View):
    id: int
    at: str
    kind: str
    """spot, canary, quorum, lie, manifest or equivocation."""
    model: str
    request_id: int
    commitment: str
    on_chain: bool
    """False of a canary that is no request."""
    decided: bool
    """False while it is not known who of them is wrong."""
    reason: str
    dispute: str
    """What has become of it on chain: none, wanted, opened, upheld, rejected, lapsed, unneeded."""
    dispute_tx: str | None
    accused: SideView
    others: list[SideView]


class EvidenceView(View):
    schema_version: int = SCHEMA_VERSION
    domain: DomainView | None
    """None before the first block is indexed."""
    records: list[DisagreementView]
    """The newest first."""


async def load_evidence(
    connection: Connection,
    names: Mapping[bytes, str],
    worker: Address | None,
    limit: int,
) -> EvidenceView:
    """Of one worker, or of all."""
    source = await connection.fetchrow("SELECT chain_id, results FROM chain.source")
    return EvidenceView(
        domain=None
        if source is None
        else DomainView(
            chain_id=source["chain_id"],
            verifying_contract=to_checksum_address(source["results"]),
        ),
        records=[
            _record(one, names) for one in await evidence.of_worker(connection, worker, limit=limit)
        ],
    )


def _record(recorded: Recorded, names: Mapping[bytes, str]) -> DisagreementView:
    found = recorded.disagreement
    return DisagreementView(
        id=recorded.id,
        at=recorded.at.isoformat(),
        kind=str(found.kind),
        model=names.get(found.model_id) or _hex(found.model_id),
        request_id=found.key.id,
        commitment=_hex(found.key.commitment),
        on_chain=found.on_chain,
        decided=found.decided,
        reason=found.reason,
        dispute=str(recorded.dispute),
        dispute_tx=None if recorded.dispute_tx is None else _hex(recorded.dispute_tx),
        accused=_side(found.accused, found.key),
        others=[_side(other, found.key) for other in found.others],
    )


def _side(side: Side, key: RequestKey) -> SideView:
    item = ResultItem(key.id, Commitment(key.commitment), side.digest)
    return SideView(
        worker=None if side.worker is None else to_checksum_address(side.worker),
        digest=_hex(side.digest),
        items=_hex(pack_items([item])),
        signature=None if side.signature is None else _hex(side.signature),
        output=None if side.output is None else base64.b64encode(side.output).decode(),
        output_bytes=side.output_bytes,
        media_type=side.media_type,
        manifest=dict(side.manifest),
    )


def _hex(value: bytes) -> str:
    return "0x" + value.hex()
