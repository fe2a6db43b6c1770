"""A daemon's fees, gas and balance, as its API, its gauges and the command tell them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from typing import Any

from tests.harness import FEE_WEI, OWNER, POSTER, NodeProcess, System, account, address

ETHER = 10**18


def inferd(node: NodeProcess, *arguments: str) -> str:
    """What a command prints, with the daemon's settings."""
    config = str(node.data_dir / "inferd.toml")
    done = subprocess.run(
        [sys.executable, "-m", "inferd", "--config", config, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def gauges(node: NodeProcess) -> dict[str, float]:
    lines = (await node.get_text("/metrics")).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def settlement_of(node: NodeProcess) -> Any:
    _, status = await node.get("/v1/status")
    return status["settlement"]


async def test_the_report_is_what_the_chain_has(world: System, empty_database: str) -> None:
    poster_wei = await world.rpc.balance(address(POSTER))
    node = world.start_node("node", empty_database)
    await node.until_ready()
    asked = [await world.ask(f"tell me of {n}") for n in range(3)]
    late = await world.ask("nobody serves that model", model="other", deadline_in_s=2)
    for one in asked:
        await node.until_state(one.request_id, "settled")
    await node.until_state(late.request_id, "refunded")

    async def confirmed() -> bool:
        _, report = await node.get("/v1/report")
        return (report["total"]["results"], report["total"]["refunds"]) == (3, 1)

    await node.until(confirmed, 30, "confirmed")
    spent_wei = poster_wei - await world.rpc.balance(address(POSTER))
    _, report = await node.get("/v1/report")
    total = report["total"]
    gas_wei = sum(int(total[f"{kind}_gas_wei"]) for kind in ("post", "delivery", "refund"))
    assert gas_wei == spent_wei
    assert int(total["refund_gas_wei"]) > 0
    assert int(total["poster_fees_wei"]) == await world.credit_wei(POSTER)
    assert int(total["worker_fees_wei"]) == await world.credit_wei(OWNER)
    assert int(total["profit_wei"]) == 3 * FEE_WEI - spent_wei
    flows = {flow["account"]: flow for flow in report["accounts"]}
    assert int(flows[account(POSTER).address]["gas_wei"]) == spent_wei

    _, lines = await node.get(f"/v1/requests/{asked[0].request_id}/accounts")
    (line,) = lines["lines"]
    assert int(line["poster_fee_wei"]) + int(line["worker_fee_wei"]) == FEE_WEI
    assert 0 < int(line["gas_wei"]) < spent_wei
    assert (await node.get("/v1/requests/999/accounts"))[0] == 404
    assert (await node.get("/v1/report?begin_s=5&end_s=5"))[0] == 422

    funds = (await settlement_of(node))["posters"][0]["funds"]
    assert funds["state"] == "enough"
    assert int(funds["result_wei"]) > 0
    assert funds["runway_results"] > 1_000
    assert funds["runway_days"] > 0
    assert int(funds["spent_wei_per_day"]) >= spent_wei

    assert node.stop() == 0
    # The tables tell the same without a daemon.
    assert json.loads(inferd(node, "report", "--json"))["total"] == total
    rows = list(csv.DictReader(inferd(node, "report", "--requests", "--csv").splitlines()))
    assert sum(int(row["gas_wei"]) for row in rows) == spent_wei
    assert sum(int(row["profit_wei"]) for row in rows) == 3 * FEE_WEI - spent_wei
    assert {row["outcome"] for row in rows} == {"settled", "refunded"}


async def test_a_low_balance__is_told_before_it_is_spent__and_work_resumes_once_filled_up(
    world: System, empty_database: str
) -> None:
    node = world.start_node("node", empty_database)
    await node.until_ready()
    first = await world.ask("while there is enough")
    await node.until_state(first.request_id, "settled")
    poster = account(POSTER).address

    async def fill(results: float) -> None:
        funds = (await settlement_of(node))["posters"][0]["funds"]
        wei = int(results * int(funds["result_wei"]))
        await world.rpc.request("anvil_setBalance", [poster, hex(wei)])

    def says(state: str, warnings: list[str]) -> Any:
        async def check() -> bool:
            _, status = await node.get("/v1/status")
            told = [warning["code"] for warning in status["warnings"]]
            return (status["settlement"]["posters"][0]["funds"]["state"], told) == (state, warnings)

        return node.until(check, 30, state)

    await fill(100)  # of 200 that are wanted
    await says("low", ["balance_low"])
    assert (await node.get("/readyz"))[0] == 200
    measured = await gauges(node)
    assert measured[f'inferd_poster_balance_low{{poster="{poster}"}}'] == 1
    assert measured[f'inferd_poster_runway_results{{poster="{poster}"}}'] < 200
    assert node.events("balance_low")[0]["runway_results"] < 200
    served = await world.ask("low is not spent")
    await node.until_state(served.request_id, "settled")

    await fill(2)  # of 5 that are kept
    await node.until_not_ready("insufficient_funds")
    nonce = await world.rpc.nonce(address(POSTER))
    waiting = await world.ask("this waits")
    await node.until_state(waiting.request_id, "computed")
    await says("spent", [])
    assert await world.rpc.nonce(address(POSTER)) == nonce

    await world.rpc.request("anvil_setBalance", [poster, hex(ETHER)])
    await node.until_state(waiting.request_id, "settled")
    await node.until_ready()
    await says("enough", [])
    assert [event["level"] for event in node.events("balance_enough")] == ["info"]
    assert node.stop() == 0
    assert await world.credit_wei(POSTER) + await world.credit_wei(OWNER) == 3 * FEE_WEI
