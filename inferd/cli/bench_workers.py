"""`inferd bench workers`."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from indexer.errors import ExitCode, OperatorError
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import JsonOption, run_async, session_of
from inferd.node.logs import configure_logs


class WorkersUnsafe(OperatorError):
    """Bad workers made requests end twice, late, or wrong."""

    code: ClassVar[str] = "workers_unsafe"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


def workers_command(
    context: typer.Context,
    requests: Annotated[int, typer.Option(min=10, help="In each of the two runs.")] = 200,
    deadline_s: Annotated[
        int, typer.Option(min=30, help="Seconds after which a result is too late.")
    ] = 3_600,
    spot_ppm: Annotated[
        int,
        typer.Option(min=0, max=1_000_000, help="Results of a million that are computed again."),
    ] = 1_000_000,
    as_json: JsonOption = False,
) -> None:
    """Measure what workers that lie, crash and hang cost those who ask them.

    The same requests go to a good and a slow worker with SmolLM2, and then to these
    two with three others: one signs wrong texts, one dies in each job, one never ends.
    Each worker is a process. Ends with exit code 3 where a request is not settled once,
    or the liar is not suspended.

    Example: inferd bench workers --requests 50
    """
    from inferd.bench.workers.measure import measure  # noqa: PLC0415 - only needed here
    from inferd.workers.model_files import smollm2  # noqa: PLC0415

    configure_logs("error", "console")
    model = smollm2(session_of(context).settings.cache_dir)
    found = run_async(
        measure(
            model, requests=requests, deadline_in_s=deadline_s, spot_ppm=spot_ppm, progress=note
        )
    )
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, **found.as_json()})
    else:
        for run in (found.alone, found.together):
            show(
                f"{', '.join(run.workers)}: {run.settled} of {run.requests} settled in"
                f" {run.blocks} s, {run.right} of them right: {run.goodput_per_s:.2f} a second"
            )
        together = found.together
        show(
            f"goodput with all five: {found.ratio:.2f} of the good ones alone;"
            f" {together.deaths} deaths"
        )
        show(f"suspended: {', '.join(together.suspended) or 'nobody'} ({together.records} records)")
    for run in (found.alone, found.together):
        if run.settled < run.requests or run.doubled:
            raise WorkersUnsafe(
                f"{run.settled} of {run.requests} requests were settled, {run.doubled} ended twice",
                help_text="a machine that is busy may need a longer --deadline-s",
            )
    if found.together.suspended != ("liar",):
        raise WorkersUnsafe(
            f"suspended: {', '.join(found.together.suspended) or 'nobody'}, and not the liar alone",
            help_text="with few requests none of the liar's answers may have been checked",
        )
