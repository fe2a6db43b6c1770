"""`inferd workers ...`: who computes for this node, and why or why not."""

from __future__ import annotations

import getpass
import socket
from typing import Annotated

import typer
from eth_utils.address import to_checksum_address
from rich.console import Console
from rich.table import Table
from rich.text import Text

from indexer.types import Wei
from inferd.chain.amounts import show_ether
from inferd.cli import evidence
from inferd.cli.addresses import parse_address
from inferd.cli.client import NodeClient
from inferd.cli.output import SCHEMA_VERSION, escape, note, show, show_json
from inferd.cli.session import JsonOption, run_async, session_of
from inferd.cli.tables import node_tables
from inferd.node.pool_models import (
    DisagreementBriefView,
    ModelReputationView,
    PoolView,
    PoolWorkerDetailView,
    PoolWorkerView,
)
from inferd.workers import reputation

AddressArgument = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="The worker's, as `inferd workers` shows it.")
]


def register(app: typer.Typer) -> None:
    workers = typer.Typer(
        help="See who computes for this node.\n\nExample: inferd workers",
        rich_markup_mode="rich",
        invoke_without_command=True,
    )
    workers.callback()(list_command)
    workers.command("show")(show_command)
    workers.command("suspend")(suspend_command)
    workers.command("resume")(resume_command)
    evidence.register(workers)
    app.add_typer(workers, name="workers")


def list_command(context: typer.Context, as_json: JsonOption = False) -> None:
    """List this node's workers, its own and those of other machines, and why one gets no work.

    Example: inferd workers
    """
    if context.invoked_subcommand is not None:
        return
    settings = session_of(context).settings

    async def work() -> PoolView:
        async with NodeClient(settings.node_url) as node:
            return await node.workers()

    found = run_async(work())
    if as_json:
        show_json(found.model_dump(mode="json"))
        return
    if not found.workers:
        show("there are no workers: none in the settings, none in the registry")
        return
    Console(highlight=False).print(_table(found))


def show_command(
    context: typer.Context, address: AddressArgument, as_json: JsonOption = False
) -> None:
    """Show one worker: why it is in the pool or not, how it does, and what it failed at.

    Example: inferd workers show 0x70997970C51812dc3A010C7d01b50e0d17dc79C8
    """
    settings = session_of(context).settings
    wanted = to_checksum_address(parse_address(address))

    async def work() -> PoolWorkerDetailView:
        async with NodeClient(settings.node_url) as node:
            return await node.worker(wanted)

    found = run_async(work())
    if as_json:
        show_json(found.model_dump(mode="json"))
        return
    for line in _told(found):
        show(line)


def suspend_command(
    context: typer.Context,
    address: AddressArgument,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why, for whoever reads `inferd workers`.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Give a worker no new work; what it has in hand goes on.

    A running node does it within a second.

    Example: inferd workers suspend 0x70997970C51812dc3A010C7d01b50e0d17dc79C8 --reason odd
    """
    worker = parse_address(address)
    by = f"{getpass.getuser()}@{socket.gethostname()}"

    async def work() -> None:
        async with node_tables(session_of(context)) as connection:
            await reputation.suspend(connection, worker, reason or "no reason given", by)

    run_async(work())
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, "suspended": to_checksum_address(worker)})
    else:
        show(f"{to_checksum_address(worker)} is suspended")


def resume_command(
    context: typer.Context, address: AddressArgument, as_json: JsonOption = False
) -> None:
    """Give a suspended worker work again.

    Example: inferd workers resume 0x70997970C51812dc3A010C7d01b50e0d17dc79C8
    """
    worker = parse_address(address)

    async def work() -> bool:
        async with node_tables(session_of(context)) as connection:
            return await reputation.resume(connection, worker)

    was_suspended = run_async(work())
    shown = to_checksum_address(worker)
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, "resumed": shown, "was": was_suspended})
    elif was_suspended:
        show(f"{shown} is given work again")
    else:
        note(f"{shown} was not suspended")


def _table(found: PoolView) -> Table:
    table = Table("worker", "work", "models")
    for title in ("busy", "beat", "good", "bad"):
        table.add_column(title, justify="right")
    for one in found.workers:
        good = sum(model.good + model.late for model in one.models)
        bad = sum(model.failed + model.timeouts + model.lies for model in one.models)
        table.add_row(
            one.name or one.address,
            _plain("yes" if one.in_pool else f"no: {one.reason}"),
            _plain(", ".join(model.model for model in one.models)),
            _busy(one),
            "" if one.heartbeat_age_s is None else f"{one.heartbeat_age_s:.0f} s",
            str(good),
            str(bad),
            style="" if one.in_pool else "yellow",
        )
    return table


def _plain(text: str) -> Text:
    """Others chose it: neither steers it the terminal, nor is it markup."""
    return Text(escape(text))


def _busy(one: PoolWorkerView) -> str:
    most = one.slots if one.limit is None else min(one.limit, one.slots)
    return f"{one.in_flight} of {most}"


def _told(one: PoolWorkerDetailView) -> list[str]:
    lines = [f"{one.address}{f' ({one.name})' if one.name else ''}"]
    lines.append("gets work" if one.in_pool else f"gets no work: {one.reason}")
    if one.suspended is not None:
        lines.append(f"suspended by {one.suspended_by}: {one.suspended}")
    if one.owner is not None and one.stake_wei is not None:
        lines.append(f"owner {one.owner}, stake {show_ether(Wei(int(one.stake_wei)))}")
    lines.append("inside this node" if one.embedded else f"at {one.endpoint or 'no endpoint'}")
    lines.append(f"in hand {_busy(one)}; {one.slots} slots, {one.memory_mb} MB")
    lines += _of_heartbeat(one)
    if one.circuit:
        lines.append(
            f"circuit {one.circuit}: of its last calls {one.failure_share:.0%} failed,"
            f" {one.slow_share:.0%} were slow"
            + (f"; tried again in {one.opens_in_s:.0f} s" if one.opens_in_s else "")
        )
    if one.rests_s:
        lines.append(f"said that it is busy: asked again in {one.rests_s:.0f} s")
    for model in one.models:
        lines += _of_model(model)
    for check in one.checks:
        lines.append(
            f"checked {check.model} ({check.kind}): {check.passed} passed, {check.failed} failed,"
            f" {check.undecided} undecided, {check.not_done} not done"
        )
    if one.disagreements:
        lines.append("answers that contradict others (`inferd workers evidence`):")
    lines += [f"  {line}" for each in one.disagreements for line in _of_disagreement(each)]
    if one.failures:
        lines.append("last failures:")
    lines += [f"  {each.at} request {each.id}: {each.failure}" for each in one.failures]
    return lines


def _of_disagreement(one: DisagreementBriefView) -> list[str]:
    state = "" if one.decided else ", undecided"
    return [f"{one.id} {one.at} {one.kind}{state}, request {one.request_id}: {one.reason}"]


def _of_heartbeat(one: PoolWorkerDetailView) -> list[str]:
    if one.embedded:
        return []
    lines = []
    if one.heartbeat_age_s is not None:
        lines.append(
            f"heartbeat {one.heartbeat_age_s:.0f} s ago: {one.running} running, {one.queued}"
            f" queued, {one.free_memory_mb} MB free, release {one.version}"
        )
    lines += [f"private inputs to key {each.key}" for each in one.encryption_keys]
    if one.trouble is not None:
        lines.append(f"last question for a heartbeat: {one.trouble}")
    if one.skew_ms is not None:
        lines.append(f"clock {one.skew_ms:+.0f} ms, right to {one.skew_error_ms:.0f} ms")
    return lines


def _of_model(model: ModelReputationView) -> list[str]:
    lines = [
        f"{model.model}: {model.good} good, {model.late} late, {model.failed} failed,"
        f" {model.timeouts} timed out, {model.lies} not what they said"
    ]
    if model.mean_ms is not None and model.success_lower is not None:
        speed = f"{model.mean_ms:.0f} ms for 64 tokens"
        if model.tokens_per_s is not None:
            speed += f", {model.tokens_per_s:.0f} tokens/s by its own word"
        lines.append(
            f"  {speed}; succeeds more often than {model.success_lower:.0%} with 90 % confidence"
            + (", which is on probation" if model.on_probation else "")
        )
    return lines
