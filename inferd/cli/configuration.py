"""`inferd config`: the settings in force, without secrets."""

from __future__ import annotations

import json
from typing import Any

import typer

from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import JsonOption, session_of
from inferd.node.settings import find_settings_file, printable


def register(app: typer.Typer) -> None:
    app.command()(config)


def config(context: typer.Context, as_json: JsonOption = False) -> None:
    """Print the settings in force, from file and environment, without passwords and keys.

    Example: inferd config --json
    """
    session = session_of(context)
    settings = printable(session.settings)
    place = session.config or find_settings_file()
    note(f"from {place} and INFERD_*" if place else "from INFERD_* and defaults: no inferd.toml")
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, "settings": settings})
        return
    for name, value in _flat(settings):
        show(f"{name} = {json.dumps(value, ensure_ascii=False)}")


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Nested values as `section.key`, list entries as `section.0.key`."""
    if isinstance(value, dict) and value:
        entries = [(str(name), inner) for name, inner in value.items()]
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        entries = [(str(index), inner) for index, inner in enumerate(value)]
    else:
        return [(prefix.removesuffix("."), value)]
    return [line for name, inner in entries for line in _flat(inner, f"{prefix}{name}.")]
