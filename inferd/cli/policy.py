"""`inferd policy ...`: by which policies requests are ordered, and what a comparison shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Annotated, Any, ClassVar

import typer

from indexer.errors import OperatorError, TemporaryError
from inferd.chain.amounts import parse_duration_s, show_ether
from inferd.chain.keys import address_of
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import JsonOption, Session, deployed_chain, run_async, session_of
from inferd.cli.tables import node_tables
from inferd.node.preflight import inspect_chain
from inferd.policies.hosted import HostedPolicy, PolicyFailed
from inferd.policies.installed import UnknownPolicy, offered, require_known
from inferd.policies.journal import Entry, Source, history, in_force, record
from inferd.policies.report import (
    ArmReport,
    Comparison,
    Report,
    count_fallbacks,
    load_outcomes,
    report,
)
from scheduler.choice import BadChoice, Choice, chosen
from scheduler.experiment import Difference
from scheduler.policies import POLICIES

_HISTORY = 10
_LOAD_WITHIN_S = 20.0
_FALLBACKS = """
    SELECT count(*) AS rounds, max(created_at) AS last,
           (array_agg(fallback ORDER BY id DESC))[1] AS reason
    FROM node.round WHERE fallback IS NOT NULL AND created_at > now() - interval '1 day'
"""


class BadPolicy(OperatorError):
    """What was asked for is no policy, or no split or weights of policies."""

    code: ClassVar[str] = "bad_policy"


class NothingInForce(TemporaryError):
    """No node has run on this database yet."""

    code: ClassVar[str] = "nothing_in_force"


@dataclass(frozen=True, slots=True)
class _Fallbacks:
    """Rounds of the last day that were planned with the fallback."""

    rounds: int
    last: str | None
    reason: str | None


def register(app: typer.Typer) -> None:
    policy = typer.Typer(
        help="Choose and compare the policies that order requests.\n\nExample: inferd policy show",
        rich_markup_mode="rich",
    )
    policy.command("set")(set_command)
    policy.command("show")(show_command)
    policy.command("report")(report_command)
    app.add_typer(policy, name="policy")


def set_command(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The policy; `policy show` lists them.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="SHARES", help="Several, as in value=90,balanced=10, to compare."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="WEIGHTS", help="Of `balanced`, as in fee=60,wait=30,slack=10."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Change the policy from the next round on, also of a node that runs.

    It holds over restarts, until it is set again or the settings file is changed and read.

    Example: inferd policy set balanced --weights fee=50,wait=40,slack=10
    """
    choice = _checked(name, split, weights)
    entry = run_async(_set(session_of(context), choice))
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, **_entry_body(entry)})
        return
    show(f"policy {entry.choice} is in force from the next round on (experiment {entry.id})")


def show_command(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show what is in force, what was before, and which policies there are.

    Example: inferd policy show
    """
    entries, fallbacks = run_async(_show(session_of(context)))
    others = sorted(offered())
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "in_force": _entry_body(entries[0]),
                "history": [_entry_body(entry) for entry in entries],
                "built_in": sorted(POLICIES),
                "installed": others,
                "fallbacks": asdict(fallbacks),
            }
        )
        return
    for word, entry in zip(("in force", *["before"] * _HISTORY), entries, strict=False):
        show(f"{word:<11}{entry.choice}, set {_when(entry)} by {entry.set_by} ({entry.source})")
    show(f"built in   {', '.join(sorted(POLICIES))}")
    show(f"installed  {', '.join(others) or 'none'}")
    if fallbacks.rounds:
        show(
            f"fallbacks  {fallbacks.rounds} rounds within a day, the last at {fallbacks.last}:"
            f" {fallbacks.reason}"
        )


def report_command(
    context: typer.Context,
    since: Annotated[
        str, typer.Option(metavar="SPAN", help="Requests assigned first within it.")
    ] = "1d",
    as_json: JsonOption = False,
) -> None:
    """Compare the arms of the newest experiment: settled, on time, fees, gas, profit, waits.

    Example: inferd policy report --since 12h
    """
    found = run_async(_report(session_of(context), parse_duration_s(since)))
    if as_json:
        show_json(_report_body(found))
        return
    for line in _report_lines(found):
        show(line)
    if found.ratio_is_wrong:
        note(
            f"warning: requests do not divide as the shares say (p = {found.ratio_p_value:.2g}):"
            " something loses them on the way, so trust no other line"
        )


def _checked(name: str | None, split: str | None, weights: str | None) -> Choice:
    """Raises BadPolicy."""
    if (name is None) == (split is None):
        raise BadPolicy(
            "name one policy, or a split of several",
            help_text="inferd policy set balanced, or inferd policy set --split value=90,edf=10",
        )
    try:
        choice = chosen(name or "", split or "", weights or "")
        require_known(choice)
    except (BadChoice, UnknownPolicy) as error:
        raise BadPolicy(str(error), help_text="see docs/policies.md") from None
    for arm in choice.arms:
        if arm.policy not in POLICIES:
            _try_out(arm.policy)
    return choice


def _try_out(name: str) -> None:
    """Raises BadPolicy where its package does not load."""
    hosted = HostedPolicy(name)
    try:
        if not hosted.is_up(_LOAD_WITHIN_S):
            raise PolicyFailed(f"{name} is not up after {_LOAD_WITHIN_S:.0f} s")
    except PolicyFailed as error:
        raise BadPolicy(
            f"the policy {error}", help_text="mend its package, or name another one"
        ) from None
    finally:
        hosted.close()


async def _set(session: Session, choice: Choice) -> Entry:
    async with node_tables(session) as connection, connection.transaction():
        return await record(connection, Source.COMMAND, choice)


async def _show(session: Session) -> tuple[list[Entry], _Fallbacks]:
    async with node_tables(session) as connection:
        entries = await history(connection, _HISTORY)
        row = await connection.fetchrow(_FALLBACKS)
    if not entries or row is None:
        raise _nothing()
    last = None if row["last"] is None else row["last"].isoformat(timespec="seconds")
    return entries, _Fallbacks(row["rounds"], last, row["reason"])


async def _report(session: Session, since_s: int) -> Report:
    from inferd.node.session_settings import own_accounts  # noqa: PLC0415 - it loads settlement

    async with deployed_chain(session) as chain, node_tables(session) as connection:
        entry = await in_force(connection)
        if entry is None:
            raise _nothing()
        facts = await inspect_chain(chain.rpc, session.deployment)
        chain_id = chain.contracts.chain_id
        keys = session.settings.named_posters
        posters = [address_of(key, chain_id, use=name) for name, key in keys.items()]
        outcomes = await load_outcomes(
            connection,
            entry,
            since_s=since_s,
            poster_bps=facts.poster_bps,
            own_accounts=own_accounts(session.settings, chain_id, posters),
        )
        fallback_rounds = await count_fallbacks(connection, entry, since_s)
    return report(entry, since_s, outcomes, fallback_rounds)


def _nothing() -> NothingInForce:
    return NothingInForce(
        "no policy is in force on this database yet", help_text="start `inferd node`"
    )


def _report_lines(found: Report) -> Iterator[str]:
    yield f"experiment {found.entry.id}: {found.entry.choice}, since {_when(found.entry)}"
    for arm in found.arms:
        yield f"{arm.policy}: {_arm_line(arm)}"
    for comparison in found.comparisons:
        yield (
            f"{comparison.policy} less {found.arms[0].policy}, per request:"
            f" {_comparison_line(comparison)}"
        )
    if len(found.arms) > 1:
        yield f"division of requests: p = {found.ratio_p_value:.3g}"
    if found.fallback_rounds:
        yield f"fallbacks: {found.fallback_rounds} rounds went by least-requests for all arms"


def _arm_line(arm: ArmReport) -> str:
    on_time = "unknown" if arm.on_time is None else f"{arm.on_time:.1%}"
    return (
        f"{arm.requests} requests, {arm.settled} settled, on time {on_time},"
        f" fee {show_ether(arm.fee_wei)}, gas {show_ether(arm.gas_wei)},"
        f" profit {_ether(arm.profit_wei)},"
        f" wait p50 {_seconds(arm.wait_p50_s)}, p95 {_seconds(arm.wait_p95_s)}"
    )


def _comparison_line(one: Comparison) -> str:
    return (
        f"on time {_interval(one.on_time, 100.0, ' points')},"
        f" profit {_interval(one.profit_wei, 1e-9, ' gwei')},"
        f" wait {_interval(one.wait_s, 1.0, ' s')}"
    )


def _interval(one: Difference, scale: float, unit: str) -> str:
    if not isfinite(one.lower):
        return "unknown"
    mean, lower, upper = one.mean * scale, one.lower * scale, one.upper * scale
    return f"{mean:+.4g}{unit} [{lower:+.4g}, {upper:+.4g}]"


def _ether(amount_wei: int) -> str:
    sign = "-" if amount_wei < 0 else ""
    return sign + show_ether(abs(amount_wei))


def _seconds(value_s: float | None) -> str:
    return "unknown" if value_s is None else f"{value_s:.1f} s"


def _when(entry: Entry) -> str:
    return entry.set_at.isoformat(timespec="seconds")


def _entry_body(entry: Entry) -> dict[str, Any]:
    weights = entry.choice.weights
    return {
        "id": entry.id,
        "arms": [asdict(arm) for arm in entry.choice.arms],
        "weights": None if weights is None else asdict(weights),
        "source": str(entry.source),
        "set_by": entry.set_by,
        "set_at": _when(entry),
    }


def _report_body(found: Report) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment": _entry_body(found.entry),
        "since_s": found.since_s,
        "arms": [
            asdict(arm)
            | {name: str(getattr(arm, name)) for name in ("fee_wei", "gas_wei", "profit_wei")}
            for arm in found.arms
        ],
        "differences": [
            {
                "policy": one.policy,
                "on_time": _difference_body(one.on_time),
                "profit_wei": _difference_body(one.profit_wei),
                "wait_s": _difference_body(one.wait_s),
            }
            for one in found.comparisons
        ],
        "fallback_rounds": found.fallback_rounds,
        "ratio_p_value": found.ratio_p_value,
        "ratio_is_wrong": found.ratio_is_wrong,
    }


def _difference_body(one: Difference) -> dict[str, Any]:
    known = isfinite(one.lower)
    return {
        "mean": one.mean if known else None,
        "lower": one.lower if known else None,
        "upper": one.upper if known else None,
    }
