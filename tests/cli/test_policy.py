"""`inferd policy ...` without a daemon: what it refuses, and what it says of nothing."""

from __future__ import annotations

import asyncio
import json

import pytest

from indexer.database import connect
from inferd.policies.journal import in_force
from tests.cli.support import Cli


@pytest.fixture
def own_database(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("INFERD_DATABASE_URL", database)
    return database


def choice_in(url: str) -> str:
    async def read() -> str:
        connection = await connect(url)
        entry = await in_force(connection)
        await connection.close()
        return str(entry and entry.choice)

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name one policy, or a split of several"),
        (("fifo", "--split", "value=1,edf=1"), "name one policy, or a split of several"),
        (("nothing",), "there is no policy 'nothing'; there are balanced, edf,"),
        (("--split", "value=1,nothing=1"), "there is no policy 'nothing'"),
        (("--split", "value=1"), "a split needs two policies at least"),
        (("--split", "value=1,edf=x"), "the share 'x' is no whole number"),
        (("fifo", "--weights", "fee=1,wait=1,slack=1"), "only `balanced` has weights"),
        (("balanced", "--weights", "fee=1"), "weights are written as fee=60,wait=30,slack=10"),
    ],
)
def test_what_is_no_choice_is_refused_and_changes_nothing(
    cli: Cli, own_database: str, arguments: tuple[str, ...], words: str
) -> None:
    cli("policy", "set", *arguments).refused(1, words)
    assert choice_in(own_database) == "None"


def test_a_choice_is_recorded_and_shown(cli: Cli, own_database: str) -> None:
    assert cli("policy", "set", "balanced", "--weights", "fee=50,wait=40,slack=10").code == 0
    assert choice_in(own_database) == "balanced (fee=50,wait=40,slack=10)"
    outcome = cli("policy", "set", "--split", "value=90,edf=10", "--json")
    body = json.loads(outcome.stdout)
    assert body["schema_version"] == 1
    assert body["arms"] == [{"policy": "value", "share": 90}, {"policy": "edf", "share": 10}]
    lines = cli("policy", "show").stdout.splitlines()
    assert lines[0].startswith("in force   value=90,edf=10, set ")
    assert lines[1].startswith("before     balanced (fee=50,wait=40,slack=10), set ")
    assert lines[-1] == "installed  none"


def test_before_any_daemon_nothing_is_in_force(cli: Cli, own_database: str) -> None:
    cli("policy", "show").refused(75, "no policy is in force on this database yet")


def test_a_database_without_our_tables_is_left_alone(
    cli: Cli, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERD_DATABASE_URL", empty_database)
    cli("policy", "set", "fifo").refused(1, "the database has version 0 of the node tables")
