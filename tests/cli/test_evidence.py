"""`inferd workers evidence` and `inferd canary` without a daemon."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from indexer.database import Connection, connect
from indexer.types import Address, Contracts
from inferd.chain.equivocation import load_signed_item, signer_of_both
from inferd.protocol.result import digest_of
from inferd.protocol.typed_data import domain_separator, group_digest, recover
from inferd.workers.checks import canaries, evidence
from inferd.workers.checks.evidence import Disagreement, Kind, Side
from tests.cli.support import Cli
from tests.workers.checks.test_evidence import ONE, a_disagreement, address, result_of
from tests.workers.support import MODEL, a_job

RESULTS = b"\x11" * 20
"""The contract of the domain that the tests' workers sign for."""


@pytest.fixture
def tables(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Connection], Awaitable[Any]]], Any]:
    monkeypatch.setenv("INFERD_DATABASE_URL", database)

    async def with_tables(work: Callable[[Connection], Awaitable[Any]]) -> Any:
        connection = await connect(database)
        try:
            return await work(connection)
        finally:
            await connection.close()

    def do(work: Callable[[Connection], Awaitable[Any]]) -> Any:
        return asyncio.run(with_tables(work))

    do(
        lambda connection: connection.execute(
            "INSERT INTO chain.source VALUES (true, 31337, '', 0, '', $1, '', '', '')", RESULTS
        )
    )
    return do


def test_a_third_party_can_verify_it_from_the_json_alone(cli: Cli, tables: Any) -> None:
    tables(lambda connection: evidence.record(connection, a_disagreement()))
    told = cli("workers", "evidence", "0x" + address(ONE).hex(), "--json")
    assert told.code == 0, told.stderr
    body = json.loads(told.stdout)
    (record,) = body["records"]
    domain = domain_separator(
        body["domain"]["chain_id"],
        Address(bytes.fromhex(body["domain"]["verifying_contract"][2:])),
        name=body["domain"]["name"],
    )
    for side in (record["accused"], record["others"][0]):
        items = bytes.fromhex(side["items"][2:])
        assert items[28:].hex() == side["digest"][2:]
        signer = recover(group_digest(domain, items), bytes.fromhex(side["signature"][2:]))  # type: ignore[arg-type]
        assert signer.hex() == side["worker"][2:].lower()
    right = base64.b64decode(record["others"][0]["output"])
    assert "0x" + digest_of(right).hex() == record["others"][0]["digest"]
    assert record["others"][1]["worker"] is None
    assert (record["kind"], record["dispute"], record["decided"]) == ("spot", "wanted", True)


def test_for_people(cli: Cli, tables: Any) -> None:
    assert cli("workers", "evidence").stdout == "no answer was found to contradict another\n"
    tables(lambda connection: evidence.record(connection, a_disagreement()))
    told = cli("workers", "evidence")
    assert "spot: request 7" in told.stdout
    assert "two workers say otherwise" in told.stdout
    assert "against the known answer" in told.stdout
    assert cli("workers", "evidence", "0x" + "12" * 20).stdout.startswith("no answer")


def test_two_answers_are_saved_as_what_slashes(cli: Cli, tables: Any) -> None:
    job = a_job(7)
    found = Disagreement(
        kind=Kind.EQUIVOCATION,
        key=job.key,
        model_id=job.model_id,
        accused=Side.of(result_of(job, ONE, b"one")),
        others=(Side.of(result_of(job, ONE, b"another")),),
        reason="it signed two answers to one request",
    )
    tables(lambda connection: evidence.record(connection, found))
    told = cli("workers", "evidence", "--save", "kept")
    assert told.code == 0, told.stderr
    command = "inferd worker report-equivocation kept/1-accused.json kept/1-other-1.json"
    assert command in told.stdout
    items = [load_signed_item(Path(path)) for path in command.split()[-2:]]
    results = Address(RESULTS)
    contracts = Contracts(31337, 0, results, results, results, results, results)
    assert signer_of_both(*items, contracts) == address(ONE)
    Path("file").write_text("")
    cli("workers", "evidence", "--save", "file").refused(1, "cannot be written to")


def test_canaries_come_and_go(cli: Cli, tables: Any) -> None:
    assert cli("canary", "list").stdout == "there are no canaries\n"
    add = ("canary", "add", "--model", MODEL, "--max-tokens", "7")
    done = cli(*add, "--prompt", "what is right?", "--expect", "this", "--json")
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["id"] == 1
    Path("question").write_bytes(b"\xff\x00bytes")
    assert (
        cli(*add, "--prompt-file", "question", "--learn").stdout == "canary 2 added, to be learnt\n"
    )
    digest = "0x" + digest_of(b"x").hex()
    assert cli(*add, "--prompt", "a\x1b[31m", "--expect-digest", digest).code == 0
    first, second, third = tables(canaries.load)
    assert (first.output, first.digest, first.max_tokens) == (b"this", digest_of(b"this"), 7)
    assert (second.input, second.digest) == (b"\xff\x00bytes", None)
    assert (third.digest, third.output) == (digest_of(b"x"), None)
    shown = cli("canary", "list").stdout
    assert "to be learnt" in shown
    assert "\x1b" not in shown
    assert [
        one["id"] for one in json.loads(cli("canary", "list", "--json").stdout)["canaries"]
    ] == [
        1,
        2,
        3,
    ]
    assert cli("canary", "remove", "2").stdout == "canary 2 removed\n"
    assert cli("canary", "remove", "2").stderr.endswith("there is no canary 2\n")
    assert [one.id for one in tables(canaries.load)] == [1, 3]


def test_canaries_that_cannot_be(cli: Cli, tables: Any) -> None:
    add = ("canary", "add", "--model", MODEL)
    cli(*add, "--learn").refused(1, "needs one question")
    cli(*add, "--prompt", "a", "--prompt-file", "b", "--learn").refused(1, "cannot be read")
    cli(*add, "--prompt", "a").refused(1, "needs one answer")
    cli(*add, "--prompt", "a", "--learn", "--expect", "b").refused(1, "needs one answer")
    cli(*add, "--prompt", "a", "--expect-digest", "0x12").refused(1, "is no digest")
    assert cli(*add, "--prompt", "a", "--learn").code == 0
    cli(*add, "--prompt", "a", "--expect", "b").refused(1, "remove it first")
