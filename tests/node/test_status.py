"""What the status says of blocks that were mended, and of posts that are behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from indexer.recheck import RecheckStatus
from indexer.status import IndexerStatus
from inferd.node.health import Health
from inferd.node.settings import Settings
from inferd.node.status import StatusReader, index_view
from inferd.settlement.settings import PausedReason, SettlementStatus


def test_repaired_blocks__those_near_the_head_and_those_that_are_final() -> None:
    session: Any = SimpleNamespace(
        indexer=SimpleNamespace(
            status=IndexerStatus(completed_blocks=2), endpoints=lambda: (), heads_status=None
        ),
        recheck=SimpleNamespace(status=RecheckStatus(repaired_blocks=3)),
    )
    assert index_view(session).repaired_blocks == 5
    assert index_view(None).repaired_blocks == 0


@pytest.mark.parametrize(
    ("status", "warned"),
    [
        (SettlementStatus(ready=1_200, waits_for_slot=True), True),
        (SettlementStatus(ready=1_199, waits_for_slot=True), False),
        # What waits for something else than room in a post has its own words.
        (SettlementStatus(ready=1_200), False),
        (
            SettlementStatus(
                ready=1_200, waits_for_slot=True, paused_reason=PausedReason.INSUFFICIENT_FUNDS
            ),
            False,
        ),
    ],
)
def test_posting_that_is_behind_is_told(status: SettlementStatus, warned: bool) -> None:
    session: Any = SimpleNamespace(
        indexer=SimpleNamespace(status=IndexerStatus(), endpoints=lambda: (), heads_status=None),
        recheck=SimpleNamespace(status=RecheckStatus()),
        settlement=SimpleNamespace(status=status),
        worker_views=None,
        caught_up=False,
    )
    health = Health()
    crew: Any = SimpleNamespace(members=())
    StatusReader(Settings(), 31337, health, crew, "0x").observe(session)
    assert ("posting_behind" in health.warnings) is warned
    if warned:
        assert health.warnings["posting_behind"].sentence.startswith("1,200 results wait")
