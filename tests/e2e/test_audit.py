"""Decisions proved against a real chain, and what a changed row looks like."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from indexer.database import Connection, connect
from indexer.errors import ExitCode, OperatorError
from inferd.chain.decision_audit import Verdict
from inferd.cli.audit import audit_decisions, conclude
from inferd.cli.session import Session
from tests.e2e.test_commands import run
from tests.harness import NodeProcess, System


async def audit(node: NodeProcess, request_id: int, *more: str) -> tuple[int, Any, str]:
    code, out, err = await run(node, "audit", str(request_id), "--json", *more)
    return code, json.loads(out)["decisions"] if out else None, err


async def until_anchored(node: NodeProcess, request_id: int) -> Any:
    async with asyncio.timeout(60):
        while True:
            code, decisions, err = await audit(node, request_id)
            if code != ExitCode.TRY_AGAIN:
                return code, decisions, err
            await asyncio.sleep(0.5)


async def changed(database: Connection, statement: str, *arguments: object) -> None:
    assert await database.execute(statement, *arguments) == "UPDATE 1"


async def test_a_decision_is_proved_and_computed_once_more(
    world: System, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    monkeypatch.setenv("INFERD_NODE_URL", node.url() or "")
    asked = await world.ask("why me?")
    await node.until_state(asked.request_id, "settled")

    code, (decision,), err = await until_anchored(node, asked.request_id)
    assert code == ExitCode.OK, err
    assert (decision["reason"], decision["verdict"]) == ("assigned", "proved")
    database = await connect(empty_database)
    roots = await database.fetch("SELECT topics[2] FROM chain.log WHERE kind = 'DecisionsAnchored'")
    assert decision["anchor"]["root"] in ["0x" + root[0].hex() for root in roots]
    assert decision["rebuilt_leaf"] == decision["leaf"]

    code, (again,), err = await audit(node, asked.request_id, "--replay")
    assert code == ExitCode.OK, err
    assert again["replay"]["same"] is True
    offered = {one["worker"] for one in again["replay"]["candidates"]}
    assert len(offered) == 2
    assert decision["worker"] in offered

    code, out, _ = await run(node, "audit", str(asked.request_id), "--replay")
    assert code == ExitCode.OK
    assert "Chosen is worker" in out
    assert out.count("<- chosen") == 1
    assert "the same" in out
    await tampered_rows_are_told(node, database, asked.request_id)
    await recordings_that_are_gone_or_changed_are_told(node, database, asked.request_id)
    await database.close()
    assert node.stop() == 0


async def judged(node: NodeProcess, request_id: int) -> tuple[Verdict, str | None]:
    """The verdict on the only decision, and the code the command would end with."""
    entries = await audit_decisions(Session(node.data_dir / "inferd.toml"), request_id)
    try:
        conclude(request_id, entries)
    except OperatorError as error:
        return entries[0].audited.verdict, error.code
    return entries[0].audited.verdict, None


async def tampered_rows_are_told(node: NodeProcess, database: Connection, request_id: int) -> None:
    """Each change makes a mismatch, and undone it is proved again."""
    for table, column, value in (
        ("decision", "worker", b"\x66" * 20),
        ("decision", "fee_wei", 1),
        ("decision", "score", 0.125),
        ("decision", "lease_ms", 1),
        ("decision", "reason", "no_free_slot"),
        ("decision", "available", 1),
        ("decision", "leaf", b"\x66" * 32),
        ("round", "base_fee_wei", 1),
        ("round", "policy", "fifo"),
        ("round", "policy_version", "99"),
        ("round", "block_hash", b"\x66" * 32),
        ("round", "snapshot_digest", b"\x66" * 32),
    ):
        before = await database.fetchval(f"SELECT {column} FROM node.{table}")
        await changed(database, f"UPDATE node.{table} SET {column} = $1", value)
        assert await judged(node, request_id) == (Verdict.MISMATCH, "decision_mismatch"), column
        await changed(database, f"UPDATE node.{table} SET {column} = $1", before)
        assert await judged(node, request_id) == (Verdict.PROVED, None), column
    # The row and its leaf together, as somebody would who knows how leaves are made.
    await changed(database, "UPDATE node.decision SET fee_wei = fee_wei + 1")
    (entry,) = await audit_decisions(Session(node.data_dir / "inferd.toml"), request_id)
    honest = await database.fetchval("SELECT leaf FROM node.decision")
    await changed(database, "UPDATE node.decision SET leaf = $1", entry.audited.leaf)
    (entry,) = await audit_decisions(Session(node.data_dir / "inferd.toml"), request_id)
    assert entry.audited.verdict is Verdict.MISMATCH
    assert "root" in entry.audited.sentence, "only the chain can tell"
    await changed(database, "UPDATE node.decision SET leaf = $1, fee_wei = fee_wei - 1", honest)
    assert await judged(node, request_id) == (Verdict.PROVED, None)
    await changed(database, "UPDATE node.decision SET worker = $1", b"\x66" * 20)
    code, (decision,), err = await audit(node, request_id)
    assert code == ExitCode.NOT_AS_PROMISED
    assert decision["verdict"] == "mismatch"
    assert "is not what was anchored" in err
    await changed(
        database, "UPDATE node.decision SET worker = $1", bytes.fromhex(entry.view.worker[2:])
    )


async def recordings_that_are_gone_or_changed_are_told(
    node: NodeProcess, database: Connection, request_id: int
) -> None:
    stored = await database.fetchval("SELECT encoding FROM node.round_snapshot")
    await changed(database, "UPDATE node.round_snapshot SET encoding = $1", stored[:-8] + bytes(8))
    code, (decision,), _ = await audit(node, request_id, "--replay")
    assert decision["replay"]["same"] is not True
    await database.execute("DELETE FROM node.round_snapshot")
    code, (decision,), err = await audit(node, request_id, "--replay")
    assert code == ExitCode.OK, err
    assert decision["replay"]["same"] is None
    assert "deleted" in decision["replay"]["sentence"]


async def test_a_decision_that_waits_for_a_post_is_not_anchored_yet(
    world: System, empty_database: str
) -> None:
    node = world.start_node(
        "node", empty_database, delay_price_gwei_per_s=0, sections="guard_s = 1"
    )
    await node.until_ready()
    asked = await world.ask("hold on")
    await node.until_state(asked.request_id, "computed")
    code, (decision,), err = await audit(node, asked.request_id)
    assert code == ExitCode.TRY_AGAIN
    assert decision["verdict"] == "not_anchored"
    assert "not anchored yet" in err
    code, out, err = await run(node, "audit", "99")
    assert code == ExitCode.CONFIGURATION
    assert out == ""
    assert node.stop() == 0
