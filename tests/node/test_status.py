"""What the status counts of blocks that were mended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from indexer.recheck import RecheckStatus
from indexer.status import IndexerStatus
from inferd.node.status import index_view


def test_repaired_blocks__those_near_the_head_and_those_that_are_final() -> None:
    session: Any = SimpleNamespace(
        indexer=SimpleNamespace(
            status=IndexerStatus(completed_blocks=2), endpoints=lambda: (), heads_status=None
        ),
        recheck=SimpleNamespace(status=RecheckStatus(repaired_blocks=3)),
    )
    assert index_view(session).repaired_blocks == 5
    assert index_view(None).repaired_blocks == 0
