"""Who is in the pool, and why the others are not."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address
from inferd.protocol.request import ModelId, model_id
from inferd.protocol.worker_api import Heartbeat, ModelHealth, SignedKey
from inferd.workers.remote import membership as members
from inferd.workers.remote.clocks import Offset, SkewFilter
from inferd.workers.remote.membership import (
    Bar,
    Heard,
    Registered,
    Terms,
    candidates,
    membership,
    names_told,
)

ROW = Registered(
    address=Address(b"\x01" * 20),
    owner=Address(b"\x02" * 20),
    models=frozenset({model_id("a"), model_id("b")}),
    endpoint="https://worker.example",
    slots=8,
    memory_mb=4_000,
    enabled=True,
    staked=True,
    stake_wei=5,
)
BEAT = Heartbeat(
    at_ms=0,
    nonce="0x" + "00" * 32,
    slots=4,
    running=0,
    queued=0,
    free_memory_mb=100,
    models=[
        ModelHealth("a", True, 10.0, 200.0, 30.0),
        ModelHealth("unregistered", True, 0.0, 1.0, 0.0),
    ],
    version="1",
)
HEARD = Heard(BEAT, age_s=1.0, offset=Offset(5.0, 2.0))
OTHER = Address(b"\x09" * 20)


@pytest.mark.parametrize(
    ("row", "terms", "bar"),
    [
        (ROW, Terms(), None),
        (ROW, Terms(allow=frozenset({ROW.address})), None),
        (ROW, Terms(deny=frozenset({OTHER})), None),
        (ROW, Terms(allow=frozenset({OTHER})), Bar.NOT_ALLOWED),
        (ROW, Terms(allow=frozenset({ROW.address}), deny=frozenset({ROW.address})), Bar.DENIED),
        (replace(ROW, enabled=False), Terms(), Bar.DISABLED),
        (replace(ROW, staked=False), Terms(), Bar.UNSTAKED),
        (replace(ROW, endpoint=""), Terms(), Bar.NO_ENDPOINT),
        (ROW, Terms(max_workers=0), Bar.TOO_MANY),
    ],
)
def test_registry_and_settings_say_who_is_asked(
    row: Registered, terms: Terms, bar: Bar | None
) -> None:
    found = candidates([row], terms, set(), {})[row.address]
    assert found.bar is bar
    assert found.listed is (bar is None)
    assert (found.why_not is None) is (bar is None)


def test_an_endpoint_that_cannot_be_called_is_told_and_embedded_workers_are_passed_over() -> None:
    found = candidates([ROW], Terms(), set(), {ROW.address: "the URL has no host"})
    assert found[ROW.address].why_not == "its endpoint cannot be called: the URL has no host"
    assert candidates([ROW], Terms(), {ROW.address}, {}) == {}


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 10))
def test_those_with_the_most_stake_are_taken(stakes: list[int], most: int) -> None:
    rows = [
        replace(ROW, address=Address(number.to_bytes(20, "big")), stake_wei=stake)
        for number, stake in enumerate(stakes)
    ]
    found = candidates(rows, Terms(max_workers=most), set(), {})
    taken = [row.stake_wei for row in rows if found[row.address].bar is None]
    others = [row.stake_wei for row in rows if found[row.address].bar is Bar.TOO_MANY]
    assert len(taken) == min(most, len(rows))
    assert len(taken) + len(others) == len(rows)
    assert not taken or not others or min(taken) >= max(others)


def test_its_keys_for_private_inputs_are_what_it_says_last() -> None:
    key = SignedKey("0x" + "ab" * 32, "0x" + "cd" * 64)
    beat = msgspec.structs.replace(BEAT, encryption_keys=[key])
    for heard in (Heard(beat, age_s=1.0), Heard(beat, age_s=1_000.0)):
        announced = membership(ROW, heard, Terms(), None).announced
        assert announced.encryption_keys == (b"\xab" * 32,)
    assert membership(ROW, HEARD, Terms(), None).announced.encryption_keys == ()


@pytest.mark.parametrize(
    ("heard", "suspended", "bar"),
    [
        (HEARD, None, None),
        (HEARD, "looks odd", Bar.SUSPENDED),
        (Heard(trouble="no connection"), None, Bar.UNHEARD),
        (replace(HEARD, age_s=15.1, trouble="no connection"), None, Bar.SILENT),
        (replace(HEARD, offset=Offset(70_000.0, 100.0)), None, Bar.SKEWED),
        (replace(HEARD, offset=Offset(-70_000.0, 100.0)), None, Bar.SKEWED),
        (replace(HEARD, offset=Offset(60_050.0, 100.0)), None, None),
        (replace(HEARD, offset=None), None, None),
    ],
)
def test_heartbeats_and_the_operator_say_who_gets_work(
    heard: Heard, suspended: str | None, bar: Bar | None
) -> None:
    found = membership(ROW, heard, Terms(), suspended)
    assert found.bar is bar
    assert found.listed, "its requests wait for it"
    if heard.trouble:
        assert heard.trouble in (found.why_not or "")


def test_what_a_heartbeat_says_of_itself_counts() -> None:
    def bar_of(**changes: object) -> Bar | None:
        fields = {name: getattr(BEAT, name) for name in Heartbeat.__struct_fields__}
        return membership(
            ROW, replace(HEARD, heartbeat=Heartbeat(**{**fields, **changes})), Terms(), None
        ).bar

    assert bar_of(stopping=True) is Bar.STOPPING
    assert bar_of(slots=0) is Bar.NO_SLOTS
    assert bar_of(models=[]) is Bar.NO_MODEL
    assert bar_of(models=[ModelHealth("unregistered", True, 0.0, 1.0, 0.0)]) is Bar.NO_MODEL


def test_a_worker_offers_what_registry_and_heartbeat_both_say() -> None:
    found = membership(ROW, HEARD, Terms(), None).announced
    assert (found.slots, found.memory_mb) == (4, 4_000)
    assert set(found.models) == {model_id("a")}
    assert found.models[model_id("a")].prior_ms == 200.0
    assert names_told(ROW, BEAT) == {model_id("a"): "a"}
    unheard = membership(ROW, Heard(), Terms(), None).announced
    assert set(unheard.models) == ROW.models, "known by their ids"


@given(
    st.lists(st.tuples(st.floats(0, 5_000), st.floats(0, 5_000)), min_size=1, max_size=20),
    st.floats(-1e7, 1e7),
)
def test_a_measured_skew_is_as_right_as_it_says(
    ways_ms: list[tuple[float, float]], true_ms: float
) -> None:
    """Whatever the ways there and back take."""
    found = SkewFilter()
    assert found.offset is None
    for number, (there_ms, back_ms) in enumerate(ways_ms):
        sent_ms = 1e6 * number
        found.add(
            sent_ms=sent_ms,
            received_ms=sent_ms + there_ms + back_ms,
            theirs_ms=sent_ms + there_ms + true_ms,
        )
    assert found.offset is not None
    assert abs(found.offset.skew_ms - true_ms) <= found.offset.error_ms + 1e-3
    shortest = min(there + back for there, back in ways_ms[-8:])
    assert found.offset.error_ms <= shortest / 2 + 1e-6


def test_names_of_strangers_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def counted(name: str) -> ModelId:
        hashed.append(name)
        return model_id(name)

    monkeypatch.setattr(members, "model_id", counted)
    members._id_of.cache_clear()
    models = [ModelHealth(f"of nobody {n}", True, 0.0, 1.0, 0.0) for n in range(9)]
    heard = replace(HEARD, heartbeat=msgspec.structs.replace(BEAT, models=models))
    for _ in range(5):
        assert membership(ROW, heard, Terms(), None).bar is Bar.NO_MODEL
    assert sorted(hashed) == [model.name for model in models]
