"""What the status says of blocks that were mended, of posts that are behind, and of posters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from eth_utils.address import to_checksum_address

from indexer.recheck import RecheckStatus
from indexer.status import IndexerStatus
from indexer.types import Address
from inferd.inputs.room import Room
from inferd.node import metrics
from inferd.node.health import Health
from inferd.node.index_views import index_view
from inferd.node.roles import Role
from inferd.node.settings import Settings
from inferd.node.status import StatusReader
from inferd.outputs.unwritten import Unwritten
from inferd.settlement.runway import FundsState
from inferd.settlement.settings import KeyStatus, PausedReason, SettlementStatus


def a_session(
    settlement: SettlementStatus | None = None,
    *,
    unwritten: Any = None,
    roster: Any = None,
    inputs: Any = None,
) -> Any:
    """One that has seen the chain and no worker, as far as the status looks at it."""
    return SimpleNamespace(
        indexer=SimpleNamespace(status=IndexerStatus(), endpoints=lambda: (), heads_status=None),
        recheck=SimpleNamespace(status=RecheckStatus()),
        dispatcher=SimpleNamespace(waiting_late=0, unwritten=unwritten or Unwritten()),
        retries=SimpleNamespace(tokens=0.0),
        roster=roster or SimpleNamespace(entries={}, unsigned=0),
        settlement=SimpleNamespace(status=settlement or SettlementStatus()),
        inputs=inputs or SimpleNamespace(waiting_for_room=0, room=Room(10, 1)),
        outlook=SimpleNamespace(worker_views=()),
        caught_up=True,
    )


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
        (SettlementStatus(waiting_for_slot=1_200), True),
        (SettlementStatus(waiting_for_slot=1_199), False),
        # What waits for something else than room in a post has its own words.
        (SettlementStatus(ready=1_200), False),
        (
            SettlementStatus(waiting_for_slot=1_200, paused_reason=PausedReason.INSUFFICIENT_FUNDS),
            False,
        ),
    ],
)
def test_posting_that_is_behind_is_told(status: SettlementStatus, warned: bool) -> None:
    session = a_session(settlement=status)
    health = Health()
    crew: Any = SimpleNamespace(members=())
    StatusReader(Settings(), 31337, health, crew).observe(session)
    assert ("posting_behind" in health.warnings) is warned
    if warned:
        assert health.warnings["posting_behind"].sentence.startswith("1,200 results wait")


def test_one_poster_in_trouble_is_a_warning_and_all_of_them_a_problem() -> None:
    well, ill = (KeyStatus(Address(bytes([index]) * 20)) for index in (1, 2))
    settlement = SettlementStatus(keys=(well, ill))
    session = a_session(settlement=settlement)
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


def test_outputs_that_wait_for_the_disk_are_told_of() -> None:
    unwritten = SimpleNamespace(count=2, reason="No space left on device")
    session = a_session(unwritten=unwritten)
    health, crew = Health(), SimpleNamespace()
    reader = StatusReader(Settings(), 31337, health, crew)  # type: ignore[arg-type]
    reader.observe(session)
    said = health.warnings["outputs_not_written"].sentence
    assert "2 at the moment (No space left on device)" in said
    assert metrics.OUTPUTS_UNWRITTEN._value.get() == 2
    unwritten.count = 0
    reader.observe(session)
    assert "outputs_not_written" not in health.warnings


def test_inputs_that_have_no_room_are_told_of() -> None:
    inputs = SimpleNamespace(waiting_for_room=3, room=Room(1_000, 10, held_bytes=995))
    health, crew = Health(), SimpleNamespace()
    reader = StatusReader(Settings(), 31337, health, crew)  # type: ignore[arg-type]
    reader.observe(a_session(inputs=inputs))
    assert "3 more contents have no room, 995 bytes" in health.warnings["inputs_full"].sentence
    assert metrics.INPUT_BYTES._value.get() == 995
    inputs.waiting_for_room = 0
    reader.observe(a_session(inputs=inputs))
    assert "inputs_full" not in health.warnings


def test_workers_that_nobody_can_ask_are_told_of() -> None:
    """A node whose poster's key is at a remote signer, without a `pool.operator`."""
    elsewhere = {Address(bytes([index]) * 20): object() for index in (1, 2, 3)}
    session = a_session(roster=SimpleNamespace(entries=elsewhere, unsigned=2))
    health, crew = Health(), SimpleNamespace()
    reader = StatusReader(Settings(), 31337, health, crew)  # type: ignore[arg-type]
    reader.observe(session)
    assert health.warnings["no_operator_key"].sentence.startswith("2 registered workers of other")
    assert "0 of its own and 3 of other machines" in health.problems["no_workers"].sentence
    session.roster.unsigned = 0
    reader.observe(session)
    assert "no_operator_key" not in health.warnings


def test_processes_warn_of_what_their_own_roles_lack() -> None:
    session = a_session(roster=SimpleNamespace(entries={}, unsigned=2))
    session.others = SimpleNamespace(missing=[])
    told = {}
    for role in (Role.SCHEDULE, Role.SETTLE):
        health, crew, roles = Health(), SimpleNamespace(), frozenset({role})
        StatusReader(Settings(), 31337, health, crew, roles).observe(session)  # type: ignore[arg-type]
        told[role] = health
    # Who settles asks them to sign for posts.
    assert "no_operator_key" in told[Role.SETTLE].warnings
    assert (
        "0 are known to those that dispatch" in told[Role.SCHEDULE].problems["no_workers"].sentence
    )
