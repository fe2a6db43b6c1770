"""`inferd worker`: serves a worker to operators, over HTTP or through their broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from eth_keys.datatypes import PrivateKey

from indexer.errors import OperatorError
from inferd.chain.keys import open_account
from inferd.cli.output import SCHEMA_VERSION, show, show_json
from inferd.cli.session import JsonOption, Session, run_async, session_of
from inferd.cli.worker_settings import NoSuchWorker, chosen_workers
from inferd.node.logs import configure_logs
from inferd.node.pull_settings import broker_of
from inferd.node.settings import Settings, load_settings
from inferd.node.worker_settings import WorkerSettings
from inferd.protocol.deployment import load_deployment
from inferd.protocol.worker_api import PULL
from inferd.signals import until_signalled

if TYPE_CHECKING:
    from inferd.workers.backends.check import BackendReport

_LEAST = {
    "backend": "--backend",
    "model": "--model",
    "key": "a key (--keystore or --dev-account)",
}
"""Of a worker that the settings do not name, what the command line has to say."""
_BACKEND_SECTIONS = ("llamacpp", "openai", "command")


class WorkerEmbedded(OperatorError):
    """The worker's key is the daemon's: two processes with one key could sign two answers."""

    code: ClassVar[str] = "worker_embedded"


NameOption = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Which worker of the settings; else the one with an `endpoint`, or the first.",
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="llamacpp, openai, wordllama, command or markov."),
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="The model's name on chain; repeatable for models of one server."
    ),
]
BaseUrlOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Of the OpenAI-compatible server, up to /v1."),
]
ServerModelOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The model's name at that server; default: --model."),
]
FileOption = Annotated[
    Path | None, typer.Option("--gguf", metavar="PATH", help="A model for llamacpp.")
]
SlotsOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Requests at the same time.")
]


def run_command(
    context: typer.Context,
    name: NameOption = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Default: 127.0.0.1:8750.")
    ] = None,
    metrics_listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Default: 127.0.0.1:8751.")
    ] = None,
    operator: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Whom it works for; repeatable."),
    ] = None,
    deployment: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Default: deployment.json.")
    ] = None,
    keystore: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The worker's key, encrypted.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Its password.")
    ] = None,
    dev_account: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Or an account of anvil.toml, on such a chain."),
    ] = None,
    backend: BackendOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    server_model: ServerModelOption = None,
    gguf: FileOption = None,
    slots: SlotsOption = None,
    memory_mb: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="What it offers to requests.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="For what it has signed; on a local disk."),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="PATH", help="To serve https; PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="PATH", help="Its key; PEM.")] = None,
    pull_url_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Pull jobs from the broker with the URL in this file."),
    ] = None,
    pull_url_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Or in this variable; never on a command line."),
    ] = None,
    pull_ca_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Who signs the broker's certificate; PEM.")
    ] = None,
) -> None:
    """Serve a worker to operators until SIGTERM or Ctrl-C; or put workers on chain.

    It listens for HTTP, or pulls its jobs from a broker of the operator's. What is
    not named comes from the settings: the worker with an `endpoint`, and the
    sections `agent` and `pull`.

    Example: inferd worker --operator 0x70997970C51812dc3A010C7d01b50e0d17dc79C8
    --backend openai --base-url http://127.0.0.1:8000/v1 --model llama
    --keystore keys/worker.json --password-file keys/worker.pass
    """
    given = {
        "name": name,
        "backend": backend,
        "models": model or None,
        "base_url": base_url,
        "server_model": server_model,
        "gguf": gguf,
        "slots": slots,
        "memory_mb": memory_mb,
        "keystore": keystore,
        "password_file": password_file,
        "dev_account": dev_account,
    }
    agent = {
        **_place(listen, "listen", "host", "port"),
        **_place(metrics_listen, "metrics-listen", "metrics_host", "metrics_port"),
        "operators": tuple(operator) if operator else None,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
    }
    pull = {"url_file": pull_url_file, "url_env": pull_url_env, "ca_file": pull_ca_file}
    whole = {"deployment_file": deployment, "data_dir": data_dir}
    if context.invoked_subcommand is not None:
        named = (*given.values(), *agent.values(), *pull.values(), *whole.values())
        if any(value is not None for value in named):
            raise typer.BadParameter(
                f"`inferd worker {context.invoked_subcommand}` takes its options after its name"
            )
        return
    if (pull_url_file or pull_url_env) and any(value is not None for value in (listen, tls_key)):
        raise typer.BadParameter("a worker that pulls does not listen: leave out --listen and TLS")
    sections = {"agent": _set(agent), "pull": _set(pull)}
    settings, worker = _chosen(session_of(context), _set(given), sections, _set(whole))
    _run(settings, worker)


def check_command(
    context: typer.Context,
    name: NameOption = None,
    backend: BackendOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    server_model: ServerModelOption = None,
    gguf: FileOption = None,
    slots: SlotsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a worker's models two questions each: whether they answer, how fast, and the same again.

    `inferd worker` does it at each start. Needs neither chain nor key.

    Example: inferd worker check --backend openai --base-url http://127.0.0.1:8000/v1
    --model llama
    """
    from inferd.workers.backends.check import check_in  # noqa: PLC0415 - see run_command
    from inferd.workers.backends.opening import stocked  # noqa: PLC0415

    given = {
        "backend": backend,
        "models": model or None,
        "base_url": base_url,
        "server_model": server_model,
        "gguf": gguf,
        "slots": slots,
    }
    session = session_of(context)
    section = _section(session.settings, name)
    section.setdefault("key", {"dev_account": 0})  # not opened
    merged = _merged(section, _set(given))
    _refuse_lacking(session.settings, merged)
    settings = load_settings(session.config, workers=[merged])
    (worker,) = settings.workers

    async def work() -> list[BackendReport]:
        opening = stocked(worker.choices, memory_mb=worker.memory_mb, cache_dir=settings.cache_dir)
        async with opening as stock:
            return [await check_in(stock.memory, backend) for backend in stock.backends]

    reports = run_async(work())
    if as_json:
        models = [report.as_json() for report in reports]
        show_json({"schema_version": SCHEMA_VERSION, **models[0], "models": models})
        return
    for report in reports:
        for line in report.lines():
            show(line)


def _run(settings: Settings, worker: WorkerSettings) -> None:
    from inferd.workers.service.agent import Post  # noqa: PLC0415 - only this needs the whole agent
    from inferd.workers.service.running import run_agent  # noqa: PLC0415

    configure_logs(settings.log_level, settings.log_format)
    broker = broker_of(settings.pull) if worker.endpoint == PULL else None
    deployment = load_deployment(settings.deployment_file)
    contracts = deployment.contracts
    account = open_account(worker.key, contracts.chain_id, use=f"worker {worker.name}")
    post = Post(
        worker.name, PrivateKey(bytes(account.key)), contracts, worker.slots, worker.memory_mb
    )

    async def work() -> None:
        await until_signalled(
            asyncio.create_task(
                run_agent(
                    post,
                    worker.choices,
                    settings.agent,
                    deployment,
                    settings.rpc_urls,
                    endpoint=worker.endpoint,
                    data_dir=settings.data_dir,
                    cache_dir=settings.cache_dir,
                    broker=broker,
                )
            )
        )

    asyncio.run(work())


def _chosen(
    session: Session,
    given: dict[str, Any],
    sections: dict[str, dict[str, Any]],
    whole: dict[str, Any],
) -> tuple[Settings, WorkerSettings]:
    """The settings in force, and the worker of them, both with what the command line names.

    Raises BadSettings, NoSuchWorker and WorkerEmbedded.
    """
    settings = session.settings
    section = _section(settings, given.pop("name", None))
    if settings.workers and not section.get("endpoint"):
        raise WorkerEmbedded(
            f"worker {section['name']} has no `endpoint`, so a daemon with these settings computes"
            " with its key",
            help_text="set `endpoint` in its section to where operators reach this agent",
        )
    merged = _merged(section, given)
    if sections["pull"]:
        merged["endpoint"] = PULL
    _refuse_lacking(settings, merged)
    settings = load_settings(session.config, workers=[merged], **sections, **whole)
    return settings, settings.workers[0]


def _refuse_lacking(settings: Settings, merged: dict[str, Any]) -> None:
    """Raises NoSuchWorker where neither settings nor command line say enough of a worker."""
    lacking = [option for name, option in _LEAST.items() if name not in merged]
    if lacking and not settings.workers:
        raise NoSuchWorker(
            f"the settings name no workers, and the command does not name {', '.join(lacking)}",
            help_text="name them, or add a [[workers]] section with an `endpoint` to inferd.toml",
        )


def _section(settings: Settings, name: str | None) -> dict[str, Any]:
    """What the settings say of one worker; little where they name none. Raises NoSuchWorker."""
    if not settings.workers:
        return {"name": name or "agent"}
    return _one(settings, name).model_dump(exclude_unset=True)


def _one(settings: Settings, name: str | None) -> WorkerSettings:
    if name is not None:
        return chosen_workers(settings, [name])[0]
    served = [worker for worker in settings.workers if worker.endpoint]
    if len(served) > 1:
        raise NoSuchWorker(
            f"the settings have {len(served)} workers with an endpoint",
            help_text=f"choose with --name: {', '.join(worker.name for worker in served)}",
        )
    return served[0] if served else settings.workers[0]


def _merged(section: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """A worker's section with what the command line says of it."""
    merged = dict(section)
    key = {
        name: given[name] for name in ("keystore", "password_file", "dev_account") if name in given
    }
    if key:
        merged["key"] = key
    for name in ("backend", "slots", "memory_mb"):
        if name in given:
            merged[name] = given[name]
    models = given.get("models", [])
    if models:
        merged["model"] = models[0]
    if given.get("backend", section.get("backend")) != section.get("backend"):
        for other in _BACKEND_SECTIONS:
            merged.pop(other, None)
    server = {"base_url": given.get("base_url"), "model": given.get("server_model")}
    if _set(server):
        merged["openai"] = {**merged.get("openai", {}), **_set(server)}
    if "gguf" in given:
        merged["llamacpp"] = {**merged.get("llamacpp", {}), "file": given["gguf"]}
    if len(models) > 1:
        if merged.get("backend") != "openai" or "server_model" in given:
            raise typer.BadParameter(
                "several --model are those of one server, by the names that it has: --backend"
                " openai without --server-model; others go into [[workers.models]]"
            )
        server = {name: of for name, of in merged.get("openai", {}).items() if name != "model"}
        merged["openai"] = server
        merged["models"] = [
            {"backend": "openai", "model": name, "openai": server} for name in models[1:]
        ]
    return merged


def _place(text: str | None, option: str, host: str, port: str) -> dict[str, Any]:
    """Raises BadParameter."""
    if text is None:
        return {}
    at, _, number = text.rpartition(":")
    if not at or not number.isascii() or not number.isdigit():
        raise typer.BadParameter(f"--{option} is HOST:PORT, as in 127.0.0.1:8750")
    return {host: at.strip("[]"), port: int(number)}


def _set(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
