"""`inferd settlement ...` without a daemon: what it shows, and orders that wait for one."""

from __future__ import annotations

import asyncio
import json

import pytest
from eth_utils.address import to_checksum_address

from indexer.database import connect
from inferd.cli import settlement
from tests.cli.support import Cli


@pytest.fixture
def tables(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("INFERD_DATABASE_URL", database)
    return database


def run(url: str, *statements: str) -> None:
    async def do() -> None:
        connection = await connect(url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(do())


SENDER = to_checksum_address("0x" + "ab" * 20)
INTENT = (
    "INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata, gas_limit, reason,"
    " inputs, outcome, diagnosis, created_at, closed_at) VALUES "
)
FAILED = INTENT + (
    "('post', 'a', 'failed', decode(repeat('ab', 20), 'hex'), '', '', 1,"
    " 'worth_it', '{}', 'reverted', 'RequestsPaused()',"
    " now() - interval '3 hours', now())"
)
LIVE = INTENT + (
    "('refund', 'b', 'broadcast', decode(repeat('ab', 20), 'hex'), '', '', 1,"
    " 'expired', '{}', NULL, NULL,"
    " now() - interval '5 minutes', NULL)"
)
ITEMS = (
    "INSERT INTO node.tx_item (intent_id, request_id, commitment, worker, live, outcome) VALUES"
    r" (1, 7, '\x22', '\x33', false, 'abandoned'), (2, 8, '\x22', NULL, true, NULL)"
)
ATTEMPTS = (
    "INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,"
    " priority_fee_wei, gas_limit, raw, state, gas_used, effective_gas_price_wei, error) VALUES"
    r" (decode(repeat('11', 32), 'hex'), 1, 1, '', 4, 3000000000, 1, 9, '', 'mined', 50000,"
    " 2000000000, NULL),"
    r" (decode(repeat('12', 32), 'hex'), 2, 1, '', 5, 1500000000, 1, 9, '', 'broadcast', NULL,"
    " NULL, 'transaction underpriced')"
)


def test_list_shows_what_is_under_way_given_up_and_over(cli: Cli, tables: str) -> None:
    run(tables, FAILED, LIVE, ITEMS, ATTEMPTS)
    failed = [
        f"  1 post failed (reverted), nonce 4 of {SENDER}, 3 h old, paid 0.0001 ether,"
        f" 0x{'11' * 32}",
        "    request 7; worth_it",
        "    given up: request 7",
        "    failed: RequestsPaused()",
    ]
    assert cli("settlement", "list").stdout.splitlines() == [
        "under way: 1",
        f"  2 refund broadcast, nonce 5 of {SENDER}, 5 min old, offers 1.5 gwei, 0x{'12' * 32}",
        "    request 8; expired",
        "    endpoint: transaction underpriced",
        "given up: 1",
        *failed,
        "over: 1",
        *failed,
    ]
    body = json.loads(cli("settlement", "list", "--json").stdout)
    assert body["schema_version"] == 1
    (line,) = body["given_up"]
    assert line.pop("age_s") >= 3 * 3_600
    assert line == {
        "id": 1,
        "sender": SENDER,
        "kind": "post",
        "state": "failed",
        "reason": "worth_it",
        "outcome": "reverted",
        "diagnosis": "RequestsPaused()",
        "cancel_asked": False,
        "nonce": 4,
        "tx_hash": "0x" + "11" * 32,
        "max_fee_wei": "3000000000",
        "priority_fee_wei": "1",
        "cost_wei": "100000000000000",
        "error": None,
        "attempts": 1,
        "request_ids": [7],
        "given_up": [7],
    }


def test_list_of_nothing(cli: Cli, tables: str) -> None:
    expected = ["under way: none", "given up: none", "over: none"]
    assert cli("settlement", "list").stdout.splitlines() == expected


@pytest.mark.parametrize("act", ["retry", "cancel"])
def test_an_order_waits_for_a_node(
    cli: Cli, tables: str, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "_ANSWER_WITHIN_S", 0.1)
    outcome = cli("settlement", act, "17")
    assert outcome.code == 0
    assert outcome.stdout == ""
    assert "no node has done it yet: order 1 waits" in outcome.stderr
    body = json.loads(cli("settlement", act, "17", "--json").stdout)
    assert body == {"schema_version": 1, "order": 2, "answer": None}


def test_what_the_node_answers_is_shown(
    cli: Cli, tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        tables,
        "CREATE FUNCTION node.answer() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN NEW.answer = 'There is no intent 17.'; RETURN NEW; END $$",
        "CREATE TRIGGER answer BEFORE INSERT ON node.settlement_order"
        " FOR EACH ROW EXECUTE FUNCTION node.answer()",
    )
    assert cli("settlement", "cancel", "17").stdout == "There is no intent 17.\n"


def test_an_older_database_is_refused(
    cli: Cli, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERD_DATABASE_URL", empty_database)
    cli("settlement", "list").refused(1, "the database has version 0 of the node tables")
