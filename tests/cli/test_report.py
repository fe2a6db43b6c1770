"""`inferd report` without a daemon: tables, CSV, JSON, periods, and what it refuses."""

from __future__ import annotations

import asyncio
import csv
import json
from datetime import UTC, datetime

import pytest

from indexer.database import Connection, connect
from inferd.chain.anvil import load_anvil_config
from inferd.cli.report import BadPeriod, parse_moment_s, period_of
from tests.cli.support import Cli

NOW_S = 1_800_000_600  # 2027-01-15T08:10:00Z
HOUR_S, DAY_S = 3_600, 86_400
GWEI, ETHER = 10**9, 10**18
FEE_WEI = ETHER // 100

# A post of two results yesterday, one of one result today, and one that reverted; what was
# forgotten three days ago.
_CHAIN = """
    INSERT INTO chain.source VALUES (true, 31337, '', 0, '', '', '', '', '');
    INSERT INTO chain.cursor (block_number, block_hash, timestamp_s, base_fee_wei, gas_limit,
        finalized_number) VALUES (9, '', {now}, 1, 30000000, 0);
"""
_REQUEST = """
    INSERT INTO chain.request (id, commitment, requester, model_id, input_kind, input, max_tokens,
        memory_mb, callback_gas_limit, quorum, batchable, delivery, fee_wei, deadline_s,
        submitted_deadline_s, created_block, created_block_hash, created_log_index,
        created_tx_hash, created_at_s, status, worker, digest, settled_block, settled_tx_hash)
    VALUES ($1, $2, '', '', 0, '', 1, 0, 0, 1, true, 0, $3::bigint, 0, 0, 1, '', 0, '', 0,
        'fulfilled', '\\x0a', '\\x05', $4, $5)
"""
_LOG = """
    INSERT INTO chain.log VALUES ($1, $2, $3, $4, $5, 0, '', $6, NULL, NULL, $7, $8)
"""


async def seed(connection: Connection, poster: bytes, owner: bytes) -> None:
    await connection.execute(_CHAIN.format(now=NOW_S))
    await connection.execute("INSERT INTO node.sender VALUES (31337, $1, 3)", poster)

    async def transaction(number: int, at_s: int, ids: list[int], status: int, gas: int) -> None:
        tx_hash = bytes([number]) * 32
        intent = await connection.fetchval(
            "INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit,"
            " reason, inputs, closed_at) VALUES ('post', $1, 'confirmed', $2, '', '', 1, '', '{}',"
            " now()) RETURNING id",
            tx_hash,
            poster,
        )
        await connection.execute(
            "INSERT INTO chain.block VALUES ($1, $2, '', $3, 1, 1, 1)", number, tx_hash, at_s
        )
        await connection.execute(
            "INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,"
            " priority_fee_wei, gas_limit, raw, state, mined_block, mined_block_hash, status,"
            " gas_used, effective_gas_price_wei) VALUES ($1, $2, 31337, $3, $4, 1, 1, 1, '',"
            " 'mined', $4, $1, $5, $6, $7)",
            tx_hash,
            intent,
            poster,
            number,
            status,
            gas,
            GWEI,
        )
        for one in ids:
            await connection.execute(
                "INSERT INTO node.tx_item VALUES ($1, $2, $3, '\\x0a', false, $4)",
                intent,
                one,
                bytes([one]),
                "settled" if status else "reverted",
            )
        if not status:
            return
        for one in ids:
            await connection.execute(_REQUEST, one, bytes([one]), FEE_WEI, number, tx_hash)
        whole = FEE_WEI * len(ids)
        for index, (kind, role, account, worker, amount) in enumerate(
            (
                ("WorkerPaid", "worker", owner, b"\x0a", whole * 4 // 5),
                ("PosterPaid", "poster", poster, None, whole // 5),
            )
        ):
            await connection.execute(_LOG, tx_hash, index, number, at_s, tx_hash, kind, [], b"")
            await connection.execute(
                "INSERT INTO chain.payment VALUES ($1, $2, $3, $1, $4, $5, $6, $7, $8::bigint)",
                tx_hash,
                index,
                number,
                role,
                account,
                worker,
                len(ids),
                amount,
            )

    await transaction(1, NOW_S - DAY_S, [1, 2], 1, 100_001)
    await transaction(2, NOW_S - 60, [3], 1, 60_000)
    await transaction(3, NOW_S - 30, [4], 0, 30_000)
    hour_s = (NOW_S - 3 * DAY_S) // HOUR_S * HOUR_S
    await connection.execute(
        "INSERT INTO node.gas_ledger VALUES ($1, $2, 'refund', 2, 5, 123456789, 1, 23)",
        hour_s,
        poster,
    )
    topics = [b"", bytes(12) + owner, bytes(12) + b"\x09" * 20]
    await connection.execute(
        _LOG, b"w", 0, 3, NOW_S - 20, b"w", "Withdrawn", topics, (7 * GWEI).to_bytes(32, "big")
    )


def account(index: int) -> bytes:
    return bytes.fromhex(load_anvil_config().account(index).address[2:])


@pytest.fixture
def books(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("INFERD_DATABASE_URL", database)
    owner = load_anvil_config().account(3).address
    poster = load_anvil_config().account(1).address
    monkeypatch.setenv("INFERD_POSTING__OWN_ACCOUNTS", json.dumps([owner, poster]))

    async def fill() -> None:
        connection = await connect(database)
        await seed(connection, account(1), account(3))
        await connection.close()

    asyncio.run(fill())
    return database


def test_for_people(cli: Cli, books: str) -> None:
    outcome = cli("report")
    assert outcome.code == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert lines[0] == ("2027-01-08T08:00Z to 2027-01-15T09:00Z; amounts in ether, rounded to gwei")
    assert [line.split()[0] for line in lines[1:6]] == [
        "day",
        "2027-01-12",
        "2027-01-14",
        "2027-01-15",
        "total",
    ]
    assert lines[3].split()[1:] == [
        "2",
        "0",
        "0",
        "0.004000000",
        "0.016000000",
        "0.000100001",
        "0.000000000",
        "0.000000000",
        "0.000000000",
        "0.019899999",
    ]
    assert lines[5].split()[-1] == "0.029809999"
    assert lines[6] == "2 of 5 transactions did nothing"
    owner, poster = sorted(lines[9:11], key=lambda line: "0.024000000" not in line)
    assert owner.split()[1:] == [
        "0.000000000",
        "0.024000000",
        "0.000000000",
        "0.000000000",
        "0.000000007",
        "0.000000000",
        "0.000000000",
    ]
    assert poster.split()[-2] == "0.000190001"
    assert len({len(line) for line in lines[1:6]}) == 1


def test_csv__stable_names__wei(cli: Cli, books: str) -> None:
    lines = cli("report", "--csv").stdout.splitlines()
    assert lines[0] == (
        "day,results,refunds,callbacks,transactions,wasted_transactions,poster_fees_wei,"
        "worker_fees_wei,post_gas_wei,delivery_gas_wei,refund_gas_wei,wasted_gas_wei,profit_wei"
        ",releases,disputes,dispute_gas_wei,released_wei,bonds_wei"
    )
    assert lines[1] == "2027-01-12,0,5,0,2,1,0,0,0,0,123456789,23,-123456789,0,0,0,0,0"
    assert lines[3] == (
        "2027-01-15,1,0,0,2,1,2000000000000000,8000000000000000,90000000000000,0,0,"
        "30000000000000,9910000000000000,0,0,0,0,0"
    )


def test_json__the_api_s_and_the_csv_s_figures(cli: Cli, books: str) -> None:
    body = json.loads(cli("report", "--json").stdout)
    assert body["schema_version"] == 1
    rows = csv.DictReader(cli("report", "--csv").stdout.splitlines())
    for day, row in zip(body["days"], rows, strict=True):
        assert {name: str(value) for name, value in day.items()} == row
    assert body["total"]["profit_wei"] == "29809998876543211"


def test_requests__a_line_each__gas_to_the_wei(cli: Cli, books: str) -> None:
    rows = list(csv.DictReader(cli("report", "--requests", "--csv").stdout.splitlines()))
    assert [(row["id"], row["outcome"], row["gas_wei"]) for row in rows] == [
        ("1", "settled", "50000500000000"),
        ("2", "settled", "50000500000000"),
        ("3", "settled", "60000000000000"),
        ("4", "reverted", "30000000000000"),
    ]
    assert {row["poster_fee_wei"] for row in rows[:3]} == {str(FEE_WEI // 5)}
    assert rows[0]["time"] == "2027-01-14T08:10:00Z"
    assert rows[3]["profit_wei"] == "-30000000000000"
    bodies = [
        json.loads(line)
        for line in cli("report", "--requests", "--json").stdout.split("\n")
        if line
    ]
    assert [body["id"] for body in bodies] == [1, 2, 3, 4]
    assert all(body["schema_version"] == 1 for body in bodies)
    text = cli("report", "--requests").stdout.splitlines()
    assert text[3].startswith(
        "2027-01-15T08:09:30Z  request 4, post reverted: fees 0.000000000 + 0.000000000,"
    )


def test_since_and_until(cli: Cli, books: str) -> None:
    def days(*arguments: str) -> list[str]:
        rows = csv.DictReader(cli("report", "--csv", *arguments).stdout.splitlines())
        return [row["day"] for row in rows]

    assert days("--since", "1h") == ["2027-01-15"]
    assert days("--since", "24h") == ["2027-01-14", "2027-01-15"]
    assert days("--since", "2027-01-14", "--until", "2027-01-15") == ["2027-01-14"]
    assert days("--since", "4d", "--until", "2d") == ["2027-01-12"]
    assert days("--since", "2027-01-15T10:00+02:00") == ["2027-01-15"]
    assert days("--since", "30d", "--until", "20d") == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--since", "yesterday"), 1, "'yesterday' is no time"),
        (("--since", "2027-01-15T10:00"), 1, "does not say in which time zone"),
        (("--since", "1d", "--until", "2d"), 1, "would end 86400 s before it begins"),
        (("--since", "1d", "--until", "1d"), 1, "would end where it begins"),
    ],
)
def test_refused(cli: Cli, books: str, arguments: tuple[str, ...], code: int, words: str) -> None:
    cli("report", *arguments).refused(code, words)


def test_csv_or_json(cli: Cli, books: str) -> None:
    outcome = cli("report", "--csv", "--json")
    assert outcome.code == 2
    assert "choose one of --csv and --json" in outcome.stderr


def test_before_the_first_block(cli: Cli, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERD_DATABASE_URL", database)
    cli("report").refused(75, "no block is indexed yet")


def test_moments() -> None:
    assert parse_moment_s("1d", NOW_S) == NOW_S - DAY_S
    assert parse_moment_s("1970-01-02", NOW_S) == DAY_S
    assert parse_moment_s("1970-01-01T01:00Z", NOW_S) == HOUR_S
    period = period_of("7d", None, NOW_S)
    assert period.begin_s <= NOW_S - 7 * DAY_S
    assert period.end_s > NOW_S
    with pytest.raises(BadPeriod):
        parse_moment_s("", NOW_S)
    assert datetime.fromtimestamp(NOW_S, UTC).isoformat() == "2027-01-15T08:10:00+00:00"
