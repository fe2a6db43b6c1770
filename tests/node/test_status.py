"""What the status counts of blocks that were mended, and what it says of posters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from eth_utils.address import to_checksum_address

from indexer.recheck import RecheckStatus
from indexer.status import IndexerStatus
from indexer.types import Address
from inferd.node import metrics
from inferd.node.health import Health
from inferd.node.settings import Settings
from inferd.node.status import StatusReader, index_view
from inferd.settlement.runway import FundsState
from inferd.settlement.settings import KeyStatus, PausedReason, SettlementStatus


def test_repaired_blocks__those_near_the_head_and_those_that_are_final() -> None:
    session: Any = SimpleNamespace(
        indexer=SimpleNamespace(
            status=IndexerStatus(completed_blocks=2), endpoints=lambda: (), heads_status=None
        ),
        recheck=SimpleNamespace(status=RecheckStatus(repaired_blocks=3)),
    )
    assert index_view(session).repaired_blocks == 5
    assert index_view(None).repaired_blocks == 0


def test_one_poster_in_trouble_is_a_warning_and_all_of_them_a_problem() -> None:
    well, ill = (KeyStatus(Address(bytes([index]) * 20)) for index in (1, 2))
    settlement = SettlementStatus(keys=(well, ill))
    session: Any = SimpleNamespace(
        indexer=SimpleNamespace(status=IndexerStatus(), endpoints=lambda: (), heads_status=None),
        recheck=SimpleNamespace(status=RecheckStatus()),
        settlement=SimpleNamespace(status=settlement),
        worker_views=(),
        caught_up=True,
    )
    health, crew = Health(), SimpleNamespace()
    reader = StatusReader(Settings(), 31337, health, crew)  # type: ignore[arg-type]

    def told() -> tuple[set[str], set[str]]:
        settlement.conclude()
        reader.observe(session)
        return set(health.problems) - {"starting", "no_workers"}, set(health.warnings)

    assert told() == (set(), set())
    ill.noticed, ill.funds = PausedReason.SIGNER_UNAVAILABLE, FundsState.LOW
    assert told() == (set(), {"poster_paused", "balance_low"})
    assert "0x0202" in health.warnings["poster_paused"].sentence
    assert metrics.POSTER_PAUSED.labels(to_checksum_address(ill.address))._value.get() == 1
    assert metrics.POSTER_PAUSED.labels(to_checksum_address(well.address))._value.get() == 0
    well.noticed = PausedReason.SIGNER_UNAVAILABLE
    assert told() == ({"signer_unavailable"}, {"balance_low"})
    well.noticed = ill.noticed = PausedReason.KEY_IN_USE
    assert told()[0] == {"key_in_use"}
