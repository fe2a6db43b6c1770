"""When the daemon decides on its tables."""

from __future__ import annotations

import pytest

from indexer.status import IndexerStatus
from inferd.node.session import tells_of_now


@pytest.mark.parametrize(
    ("status", "now"),
    [
        (IndexerStatus(), False),
        (IndexerStatus(head=10, last_progress_monotonic=1.0), False),
        (IndexerStatus(head=10, indexed=10, last_progress_monotonic=None), False),
        (IndexerStatus(head=10, indexed=10, last_progress_monotonic=1.0), True),
        (IndexerStatus(head=13, indexed=10, lag_blocks=3, last_progress_monotonic=1.0), True),
        (IndexerStatus(head=14, indexed=10, lag_blocks=4, last_progress_monotonic=1.0), False),
        # An endpoint that is a block or two behind is usual behind a balancer.
        (IndexerStatus(head=7, indexed=10, last_progress_monotonic=1.0), True),
        (IndexerStatus(head=6, indexed=10, last_progress_monotonic=1.0), False),
    ],
)
def test_tables_tell_of_now(status: IndexerStatus, now: bool) -> None:
    assert tells_of_now(status) is now
