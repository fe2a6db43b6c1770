"""How far the index is and what its endpoints answer, for people and monitors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from indexer.rpc import EndpointStatus
from indexer.rpc.heads import HeadsStatus
from inferd.node import metrics
from inferd.node.api_models import EndpointView, IndexView

if TYPE_CHECKING:
    from inferd.node.session import Session


def repaired_blocks(session: Session) -> int:
    return session.recheck.status.repaired_blocks + session.indexer.status.completed_blocks


def index_view(session: Session | None) -> IndexView:
    """Of this process; without a session nothing is known."""
    if session is None:
        return IndexView(
            head=None,
            indexed=None,
            finalized=None,
            lag_blocks=None,
            lag_s=None,
            reorgs=0,
            quarantined=0,
            rechecked=None,
            repaired_blocks=0,
        )
    status = session.indexer.status
    return IndexView(
        head=status.head,
        indexed=status.indexed,
        finalized=status.finalized,
        lag_blocks=status.lag_blocks,
        lag_s=status.lag_s,
        reorgs=status.reorgs,
        quarantined=status.quarantined,
        left_s=status.left_s,
        deepest_reorg=status.deepest_reorg,
        range_blocks=status.range_blocks,
        endpoints=endpoint_views(session.indexer.endpoints(), session.indexer.heads_status),
        rechecked=session.recheck.status.checked,
        repaired_blocks=repaired_blocks(session),
    )


def endpoint_views(
    endpoints: Sequence[EndpointStatus], heads: HeadsStatus | None
) -> list[EndpointView]:
    """All endpoints for the API, the websocket last."""
    views = [EndpointView(**asdict(endpoint)) for endpoint in endpoints]
    if heads is not None:
        views.append(
            EndpointView(
                endpoint=heads.endpoint,
                state="live" if heads.live else "away",
                reason=heads.reason,
                latency_ms=None,
                error_rate=0.0,
                head=None,
                lag_blocks=0,
                calls_per_s=None,
            )
        )
    return views


def measure_endpoints(session: Session) -> None:
    for endpoint in session.indexer.endpoints():
        usable = endpoint.state in {"in_use", "ready"} and endpoint.reason is None
        metrics.RPC_ENDPOINT_UP.labels(endpoint.endpoint).set(usable)
        metrics.RPC_ENDPOINT_LAG.labels(endpoint.endpoint).set(endpoint.lag_blocks)
    heads = session.indexer.heads_status
    metrics.HEADS_LIVE.set(heads is not None and heads.live)
