"""The reference page: every code, reason, setting and metric, read from the code that has it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import platformdirs
from prometheus_client.metrics import MetricWrapperBase
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from indexer.errors import ExitCode, OperatorError
from inferd.chain.keys import KeySource
from inferd.node import metrics
from inferd.node.api_models import RequestState
from inferd.node.check_settings import CheckedModelSettings
from inferd.node.health import PROBLEMS, WARNINGS
from inferd.node.limit_settings import TenantSettings
from inferd.node.settings import Settings
from inferd.node.why import NEXT_ACTIONS
from inferd.node.worker_settings import WorkerSettings
from inferd.workers.backends.choice import BACKEND_OPTIONS, ModelChoice
from inferd.workers.service import metrics as agent_metrics
from scheduler.model import Reason

_PACKAGES = ("indexer", "scheduler", "inferd")
_TYPES: dict[Any, str] = {
    int: "int",
    float: "float",
    str: "text",
    bool: "bool",
    Path: "path",
    SecretStr: "secret",
    WorkerSettings: "worker",
    ModelChoice: "model",
    TenantSettings: "tenant",
    CheckedModelSettings: "checked model",
}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}

_HEAD = """# Reference

Written from the code by `scripts/reference.py`; a test fails while the two differ.
"""
_EXIT_CODES = "Of every `inferd` command, the daemon included."
_ERROR_CODES = """An error is two lines on stderr, `error:` and `help:`. The code names its kind in
the log line `task_waits` and in the sources."""
_STATES = "What `inferd why ID` and the API say of a request: where it is, and what can be done."
_REASONS = """Why a round keeps a request waiting or turns it away: `inferd why`, the API, the log
line `decided`, `inferd_decisions_total`, the table `node.decision`."""
_HEALTH = (
    "What `/readyz`, `/healthz` and `inferd status` name. `/readyz` is 503 while there is one."
)
_WARNINGS = "What `inferd status` names while the node still works; `/readyz` stays 200."
_SETTINGS = """In `inferd.toml` by these names, or in the environment by the variables, which win.
In a variable, lists and keys are JSON. Where they are not set, `$XDG_DATA_HOME` is `~/.local/share`
and `$XDG_CACHE_HOME` is `~/.cache`."""
_WORKERS = "Each `[[workers]]` section."
_MODELS = "Each `[[workers.models]]` below its `[[workers]]`: as the worker's own model."
_OF_WORKER = (
    "In `[workers.{0}]`, below its `[[workers]]`; of one more model in `[workers.models.{0}]`."
)
_TENANTS = (
    "Each `[[tenants]]` section: what one requester may take, where it differs from `[limits]`."
)
_CHECKED_MODELS = "Each `[[checks.models]]` section: what you know of a model."
_KEYS = "Exactly one of `keystore`, `raw`, `dev_account` and `remote_signer_url`."
_METRICS = "At `/metrics`. A histogram has the samples `_bucket`, `_sum` and `_count`."

_AGENT_METRICS = "At `/metrics` of the listener of `inferd worker` that `agent.metrics_port` names."


def reference() -> str:
    """The whole page in Markdown."""
    return "\n".join(_parts())


def _parts() -> Iterator[str]:
    yield _HEAD
    yield from _section("Exit codes", _EXIT_CODES)
    meanings = attribute_docs(ExitCode)
    yield from _table(
        ("exit code", "name", "meaning"),
        [(str(int(code)), _words(code.name), meanings.get(code.name, "")) for code in ExitCode],
    )
    yield from _section("Error codes", _ERROR_CODES)
    yield from _table(
        ("code", "exit code", "meaning"),
        [(f"`{kind.code}`", str(int(kind.exit_code)), sentence(kind)) for kind in error_classes()],
    )
    yield from _section("States of a request", _STATES)
    yield from _table(("state", "meaning", "next action"), _with_actions(RequestState))
    yield from _section("Reasons", _REASONS)
    reasons = [row for row in _with_actions(Reason) if row[0] != f"`{Reason.ASSIGNED}`"]
    yield from _table(("reason", "next action"), [(name, action) for name, _, action in reasons])
    yield from _section("Health problems", _HEALTH)
    yield from _table(("problem", "sentence", "next action"), _in_words(PROBLEMS))
    yield from _section("Warnings", _WARNINGS)
    yield from _table(("warning", "sentence", "next action"), _in_words(WARNINGS))
    yield from _settings()
    yield from _section("Metrics", _METRICS)
    columns = ("metric", "type", "labels", "meaning")
    yield from _table(columns, _metrics(metrics))
    yield from _section("Metrics of a worker agent", _AGENT_METRICS)
    yield from _table(columns, _metrics(agent_metrics))


def _in_words(texts: Mapping[str, tuple[str, str]]) -> list[tuple[str, str, str]]:
    return [
        (f"`{code}`", text.format(detail="…"), action) for code, (text, action) in texts.items()
    ]


def error_classes() -> list[type[OperatorError]]:
    """Every kind of error an operator can meet, by code."""
    for package in _PACKAGES:
        for module in pkgutil.walk_packages([str(_folder(package))], f"{package}."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
    ours = {kind for kind in _below(OperatorError) if kind.__module__.split(".")[0] in _PACKAGES}
    return sorted(ours, key=lambda kind: (kind.code, kind.__module__))


def settings_classes() -> dict[str, type[BaseModel]]:
    """The classes whose fields an operator sets, by the prefix of their names."""
    sections = {
        f"{name}.": field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and _is_section(field.annotation)
    }
    return {"": Settings, **sections}


def attribute_docs(owner: type) -> dict[str, str]:
    """The texts under a class's attributes, which Python itself does not keep."""
    (definition,) = ast.parse(inspect.getsource(owner)).body
    if not isinstance(definition, ast.ClassDef):
        raise TypeError(f"{owner.__name__} is no class")
    found = {}
    for statement, below in pairwise(definition.body):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def sentence(owner: type) -> str:
    """The first paragraph of a class's own docstring."""
    return " ".join((vars(owner).get("__doc__") or "").split("\n\n")[0].split())


def setting_docs(owner: type[BaseModel]) -> dict[str, str]:
    """What each of its fields is for; a section's text is that of its class."""
    texts: dict[str, str] = {}
    for kind in reversed(owner.__mro__):
        if kind.__module__.split(".")[0] in _PACKAGES:
            texts |= attribute_docs(kind)
    for name, field in owner.model_fields.items():
        if isinstance(field.annotation, type) and _is_section(field.annotation):
            texts.setdefault(name, sentence(field.annotation))
    return {name: texts.get(name, "") for name in owner.model_fields}


def _settings() -> Iterator[str]:
    yield from _section("Settings", _SETTINGS)
    for prefix, owner in settings_classes().items():
        if prefix:
            yield f"### `[{prefix.removesuffix('.')}]`\n\n{sentence(owner)}\n"
        yield from _fields(owner, prefix, with_variables=True)
    yield f"### A worker\n\n{_WORKERS}\n"
    yield from _fields(WorkerSettings, "")
    yield f"### One more model of a worker\n\n{_MODELS}\n"
    yield from _fields(ModelChoice, "")
    for name, options in BACKEND_OPTIONS.items():
        yield f"### A worker's `{name}`\n\n{sentence(options)} {_OF_WORKER.format(name)}\n"
        yield from _fields(options, "")
    yield f"### A tenant\n\n{_TENANTS}\n"
    yield from _fields(TenantSettings, "")
    yield f"### A checked model\n\n{_CHECKED_MODELS}\n"
    yield from _fields(CheckedModelSettings, "")
    yield f"### A key\n\n{_KEYS}\n"
    yield from _fields(KeySource, "")


def _fields(owner: type[BaseModel], prefix: str, *, with_variables: bool = False) -> Iterator[str]:
    texts = setting_docs(owner)
    rows = []
    for name, field in owner.model_fields.items():
        if any(_is_section(kind) for kind in _kinds(field.annotation)):
            continue
        variable = "INFERD_" + (prefix.replace(".", "__") + name).upper()
        cells = [f"`{name}`", f"`{variable}`", _type(field), _default(field), texts[name]]
        rows.append(cells if with_variables else [cells[0], *cells[2:]])
    names = ["setting", "variable", "type", "default", "meaning"]
    yield from _table(names if with_variables else [names[0], *names[2:]], rows)


def _kinds(annotation: Any) -> Iterator[type]:
    """The classes of a field, whether it may be left out or not."""
    optional = get_origin(annotation) in (Union, UnionType)
    for kind in get_args(annotation) if optional else (annotation,):
        if isinstance(kind, type):
            yield kind


def _is_section(annotation: type) -> bool:
    return issubclass(annotation, BaseModel) and annotation is not KeySource


def _type(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(limit, name)}"
        for limit in field.metadata
        for name, sign in _BOUNDS.items()
        if hasattr(limit, name)
    ]
    return " ".join([_type_name(field.annotation), ", ".join(bounds)]).strip()


def _type_name(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in inner)
    if origin is tuple:
        return f"list of {_type_name(inner[0])}"
    if origin in (Union, UnionType):
        return " or ".join(_type_name(part) for part in inner if part is not NoneType)
    if annotation is KeySource:
        return "key"
    return _TYPES.get(annotation, str(annotation))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    # No page may depend on whose machine it was written on.
    if value == Path(platformdirs.user_data_dir("inferd")):
        return "`$XDG_DATA_HOME/inferd`"
    if value == Path(platformdirs.user_cache_dir("inferd")):
        return "`$XDG_CACHE_HOME/inferd`"
    if value is None or value == ():
        return "none"
    if isinstance(value, KeySource):
        return f"`{{ dev_account = {value.dev_account} }}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value)}`".replace("'", '"') if isinstance(value, tuple) else f"`{value}`"


def _metrics(module: ModuleType) -> Iterator[Sequence[str]]:
    for collector in vars(module).values():
        if isinstance(collector, MetricWrapperBase):
            (metric,) = collector.describe()
            name = metric.name + ("_total" if metric.type == "counter" else "")
            labels = ", ".join(f"`{label}`" for label in collector._labelnames)
            yield f"`{name}`", metric.type, labels, f"{metric.documentation}."


def _with_actions(kinds: type[Enum]) -> list[tuple[str, str, str]]:
    texts = attribute_docs(kinds)
    return [
        (
            f"`{kind.value}`",
            texts.get(kind.name, ""),
            NEXT_ACTIONS.get(kind.value, "See its reason."),
        )
        for kind in kinds
    ]


def _below(kind: type[OperatorError]) -> Iterator[type[OperatorError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def _folder(package: str) -> Path:
    return Path(str(importlib.import_module(package).__file__)).parent


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def _section(title: str, text: str) -> Iterator[str]:
    yield f"## {title}\n\n{text}\n"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for cells in (names, ["---"] * len(names), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""
