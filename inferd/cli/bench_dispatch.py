"""`inferd bench dispatch`."""

from __future__ import annotations

from typing import Annotated

import typer

from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import JsonOption, run_async
from inferd.node.logs import configure_logs


def dispatch_command(
    jobs: Annotated[int, typer.Option(min=400, help="Jobs in all.")] = 40_000,
    workers: Annotated[int, typer.Option(min=1, help="Simulated workers.")] = 50,
    batch: Annotated[int, typer.Option(min=100, help="Leases granted at once.")] = 2_000,
    as_json: JsonOption = False,
) -> None:
    """Measure how many jobs a second dispatch bears on one core.

    In processor time, workers answer after 20 ms and compute nothing. Every result
    is written to a PostgreSQL of its own, with all that is learnt of it.

    Example: inferd bench dispatch --jobs 10000
    """
    from inferd.bench.dispatch.measure import measure  # noqa: PLC0415 - only needed here

    # Lines of the log are none of it.
    configure_logs("error", "console")
    found = run_async(measure(jobs=jobs, workers=workers, batch=batch, progress=note))
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, **found.as_json()})
        return
    show(f"{found.jobs} jobs at {workers} workers: {found.jobs_per_s:.0f} a second on one core")
    show(
        f"{found.dispatch_us:.0f} us a job, {found.ratio:.1f} times the {found.reference_us:.0f} us"
        " of tasks that do nothing else"
    )
    show(
        f"memory: {found.bytes_per_job:+.1f} bytes and {found.objects_per_job:+.2f} objects a job,"
        f" at most {found.max_rss_mb:.0f} MB"
    )
