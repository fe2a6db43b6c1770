"""`inferd workers evidence`: which answers of workers contradict others, and what proves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from indexer.errors import OperatorError
from inferd.cli.addresses import parse_address
from inferd.cli.output import show, show_json
from inferd.cli.session import JsonOption, run_async, session_of
from inferd.cli.tables import node_tables
from inferd.node.evidence_views import DisagreementView, EvidenceView, SideView, load_evidence
from inferd.node.settings import Settings
from inferd.protocol.request import model_id
from inferd.workers.checks.evidence import Kind


class NotSaved(OperatorError):
    """A folder for files that a command writes cannot be written to."""

    code: ClassVar[str] = "not_saved"


def register(workers: typer.Typer) -> None:
    workers.command("evidence")(evidence_command)


def evidence_command(
    context: typer.Context,
    address: Annotated[
        str | None,
        typer.Argument(metavar="ADDRESS", help="The worker's; else those of all workers."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="The newest so many.")] = 20,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write what each side signed into files that `inferd worker"
            " report-equivocation` takes.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which answers of workers were found to contradict others.

    With --json it is complete: domain, signed items, signatures, outputs up to a size.

    Example: inferd workers evidence 0x70997970C51812dc3A010C7d01b50e0d17dc79C8 --json
    """
    session = session_of(context)
    worker = None if address is None else parse_address(address)

    async def work() -> EvidenceView:
        async with node_tables(session) as connection:
            return await load_evidence(connection, _names(session.settings), worker, limit)

    found = run_async(work())
    saved = [] if save is None else _save(found, save)
    if as_json:
        show_json(found.model_dump(mode="json"))
        return
    if not found.records:
        show("no answer was found to contradict another")
    for record in found.records:
        for line in lines_of(record):
            show(line)
    for line in saved:
        show(line)


def lines_of(record: DisagreementView) -> list[str]:
    """One record in words."""
    accused = record.accused
    state = "" if record.decided else ", undecided"
    about = f"request {record.request_id}" if record.on_chain else "a canary"
    lines = [
        f"{record.id} {record.at} {record.kind}{state}: {about}, {record.model}: {record.reason}",
        f"  {accused.worker} signed {accused.digest}, {accused.output_bytes} bytes",
    ]
    for other in record.others:
        who = other.worker or "the known answer"
        size = "" if other.output_bytes is None else f", {other.output_bytes} bytes"
        lines.append(f"  against {who}: {other.digest}{size}")
    if record.dispute != "none":
        tx = "" if record.dispute_tx is None else f" in {record.dispute_tx}"
        lines.append(f"  dispute {record.dispute}{tx}")
    return lines


def _names(settings: Settings) -> dict[bytes, str]:
    """Those of the models that the settings name."""
    named = {worker.model for worker in settings.workers}
    return {model_id(name): name for name in named | {one.name for one in settings.checks.models}}


def _save(found: EvidenceView, folder: Path) -> list[str]:
    """Writes the files; what to do with them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _written(found, folder)
    except OSError as error:
        raise NotSaved(
            f"{folder} cannot be written to: {error.strerror}", help_text="name another folder"
        ) from None


def _written(found: EvidenceView, folder: Path) -> list[str]:
    lines = []
    for record in found.records:
        paths = []
        for number, side in enumerate((record.accused, *record.others)):
            if side.signature is not None:
                name = "accused" if number == 0 else f"other-{number}"
                path = folder / f"{record.id}-{name}.json"
                path.write_text(_signed_item(side))
                paths.append(str(path))
        lines.append("written: " + " ".join(paths))
        if record.kind == Kind.EQUIVOCATION and len(paths) > 1:
            lines.append(
                f"to have its stake taken: inferd worker report-equivocation {paths[0]} {paths[1]}"
            )
    return lines


def _signed_item(side: SideView) -> str:
    return json.dumps({"items": side.items, "signature": side.signature, "index": 0}) + "\n"
