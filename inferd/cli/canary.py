"""`inferd canary ...`: questions whose answer is known, for workers that are not yours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from indexer.errors import OperatorError
from indexer.types import Hash32
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import JsonOption, run_async, session_of
from inferd.cli.tables import node_tables
from inferd.protocol.result import digest_of
from inferd.workers.checks import canaries
from inferd.workers.checks.canaries import Canary

_SHOWN_CHARACTERS = 60


class BadCanary(OperatorError):
    """A canary's question or answer was not given as it must be."""

    code: ClassVar[str] = "bad_canary"


def register(app: typer.Typer) -> None:
    canary = typer.Typer(
        help="Questions whose answer you know.\n\nExample: inferd canary list",
        rich_markup_mode="rich",
        no_args_is_help=True,
    )
    canary.command("add")(add_command)
    canary.command("list")(list_command)
    canary.command("remove")(remove_command)
    app.add_typer(canary, name="canary")


def add_command(
    context: typer.Context,
    model: Annotated[str, typer.Option(metavar="NAME", help="The model to ask.")],
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The question; or --prompt-file.")
    ] = None,
    prompt_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The question's bytes; - for stdin.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="As of a request.")] = 0,
    expect: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The whole answer, as it must be.")
    ] = None,
    expect_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The answer's bytes.")
    ] = None,
    expect_digest: Annotated[
        str | None,
        typer.Option(metavar="0xHEX", help="keccak256 of the answer: its bytes must be equal."),
    ] = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="Have one of this node's own workers compute it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add a question. A running node uses it within a second.

    Answers are compared as `[[checks.models]]` says of the model.

    Example: inferd canary add --model smollm2-135m --prompt "Name a colour." --max-tokens 8 --learn
    """
    text = _one_of("question", _given(prompt), _read(prompt_file))
    answers = [_given(expect), _read(expect_file), _digest(expect_digest), b"" if learn else None]
    if sum(answer is not None for answer in answers) != 1:
        raise BadCanary(
            "a canary needs one answer",
            help_text="give one of --expect, --expect-file, --expect-digest and --learn",
        )
    output = answers[0] if answers[0] is not None else answers[1]
    digest = digest_of(output) if output is not None else _digest(expect_digest)

    async def work() -> int | None:
        async with node_tables(session_of(context)) as connection:
            return await canaries.add(
                connection,
                model=model,
                text=text,
                max_tokens=max_tokens,
                digest=digest,
                output=output,
            )

    number = run_async(work())
    if number is None:
        raise BadCanary(
            "there is a canary with this model, question and number of tokens",
            help_text="`inferd canary list` shows it; remove it first to change its answer",
        )
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, "id": number})
    else:
        show(f"canary {number} added" + (", to be learnt" if learn else ""))


def list_command(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the questions, and whether their answers are known yet.

    Example: inferd canary list
    """

    async def work() -> list[Canary]:
        async with node_tables(session_of(context)) as connection:
            return await canaries.load(connection)

    found = run_async(work())
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, "canaries": [_as_json(one) for one in found]})
        return
    if not found:
        show("there are no canaries")
    for one in found:
        answer = "to be learnt" if one.digest is None else f"answer 0x{one.digest.hex()}"
        text = one.input[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace")
        shown = text[:_SHOWN_CHARACTERS] + ("…" if len(text) > _SHOWN_CHARACTERS else "")
        show(f"{one.id} {one.model}, {one.max_tokens} tokens, {answer}: {shown}")


def remove_command(
    context: typer.Context,
    number: Annotated[int, typer.Argument(metavar="ID", help="As `inferd canary list` shows it.")],
    as_json: JsonOption = False,
) -> None:
    """Remove a question.

    Example: inferd canary remove 3
    """

    async def work() -> bool:
        async with node_tables(session_of(context)) as connection:
            return await canaries.remove(connection, number)

    was = run_async(work())
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, "removed": number, "was": was})
    elif was:
        show(f"canary {number} removed")
    else:
        note(f"there is no canary {number}")


def _as_json(one: Canary) -> dict[str, object]:
    return {
        "id": one.id,
        "model": one.model,
        "input_bytes": len(one.input),
        "max_tokens": one.max_tokens,
        "digest": None if one.digest is None else "0x" + one.digest.hex(),
        "at": one.at.isoformat(),
    }


def _given(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise BadCanary(
            f"{path} cannot be read: {error.strerror}", help_text="name a file that is there"
        ) from None


def _one_of(what: str, one: bytes | None, other: bytes | None) -> bytes:
    if (one is None) == (other is None):
        raise BadCanary(f"a canary needs one {what}", help_text="give --prompt, or --prompt-file")
    return one if one is not None else other or b""


def _digest(text: str | None) -> Hash32 | None:
    if text is None:
        return None
    try:
        digest = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise BadCanary(
            f"{text} is no digest", help_text="it is 0x and 64 hex digits: keccak256 of the answer"
        )
    return Hash32(digest)
