"""`inferd bench limits`."""

from __future__ import annotations

from typing import Annotated

import typer

from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import JsonOption

_WORDS = {
    "none": "without limits",
    "quotas_wide": "quotas and a budget that bind nobody",
    "quotas_tight": "quotas that keep half of all requests, and a budget",
    "fair_turns": "turns of tenants",
    "probation": "a fifth of the workers on probation",
    "all": "all of these",
    "split": "two policies, 90 to 10",
}


def limits_command(
    pending: Annotated[int, typer.Option(min=8, help="Requests that wait.")] = 100_000,
    workers: Annotated[int, typer.Option(min=8, help="Workers, all of them idle.")] = 10_000,
    models: Annotated[int, typer.Option(min=1, help="Models asked for and served.")] = 50,
    repetitions: Annotated[int, typer.Option(min=1, help="Rounds the medians are of.")] = 7,
    as_json: JsonOption = False,
) -> None:
    """Measure what limits, a split and a change of policy cost a round.

    In processor time, the cases taking turns: the ratios to a round without limits mean
    something on a machine that is shared, too.

    Example: inferd bench limits --pending 10000 --workers 1000
    """
    from inferd.bench.round.limits import measure_limits  # noqa: PLC0415 - only needed here
    from inferd.bench.round.world import Size  # noqa: PLC0415

    found = measure_limits(Size(pending, workers, models), repetitions, note)
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, **found})
        return
    plain_ms = found["none_ms"]
    for name, words in _WORDS.items():
        show(f"{words}: {found[f'{name}_ms']:.0f} ms, {found[f'{name}_ms'] / plain_ms:.2f} times")
    show(
        f"stall of a change of policy: {found['swap_stall_ms']} ms at most,"
        f" {found['swap_to_process_stall_ms']} ms to one of another package"
    )
