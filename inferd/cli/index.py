"""`inferd index ...`: whether the tables are what the chain says, and what to do if not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import typer

from indexer.batch import QuarantinedLog
from indexer.compare import Difference
from indexer.database import Pool, open_pool
from indexer.errors import ExitCode, OperatorError
from indexer.quarantine import Replay, load_quarantined, replay_quarantined
from indexer.rpc import Rpc
from indexer.schema import chain_migrations, require_current
from indexer.store import Store
from indexer.types import Contracts, Hash32
from indexer.verify import BlockRange, RangeReport, Verifier, choose_range
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.progress import shown_progress
from inferd.cli.session import JsonOption, Session, deployed_chain, run_async, session_of
from inferd.node.preflight import node_migrations
from inferd.node.rebuild import rebuild
from inferd.node.store import Database

_FromOption = Annotated[
    int | None,
    typer.Option("--from", min=0, metavar="N", help="First block; else the deployment's."),
]
_ToOption = Annotated[
    int | None, typer.Option("--to", min=0, metavar="N", help="Last block; else the newest final.")
]
_EveryBlockOption = Annotated[
    bool,
    typer.Option(
        "--every-block",
        help="Read also blocks whose bloom filter rules our contracts out, for chains whose"
        " filters are empty.",
    ),
]


class IndexDiffers(OperatorError):
    """The tables are not what the chain says."""

    code: ClassVar[str] = "index_differs"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


@dataclass(frozen=True, slots=True)
class IndexedChain:
    """The deployment's chain and the tables that are its index."""

    rpc: Rpc
    contracts: Contracts
    pool: Pool
    database_url: str


def register(app: typer.Typer) -> None:
    index = typer.Typer(
        help="Check and mend the tables that copy the chain.\n\nExample: inferd index verify",
        rich_markup_mode="rich",
    )
    index.command("verify")(verify_command)
    index.command("repair")(repair_command)
    index.command("rebuild")(rebuild_command)
    index.command("quarantine")(quarantine_command)
    app.add_typer(index, name="index")


def verify_command(
    context: typer.Context,
    first: _FromOption = None,
    last: _ToOption = None,
    every_block: _EveryBlockOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the tables with the receipts of the chain, and list what differs.

    Changes nothing, and may run beside a node. Ends with exit code 3 where something differs.

    Example: inferd index verify --from 1000 --to 2000
    """
    whole, reports = run_async(
        _look(session_of(context), first, last, "verifying", every_block, Verifier.verify)
    )
    _show_reports(whole, reports, as_json=as_json, word="differ")
    found = sum(len(report.differences) for report in reports)
    if found:
        raise IndexDiffers(
            f"{found} rows are not what the chain says",
            help_text="`inferd index repair` mends them, also beside a running node",
        )


def repair_command(
    context: typer.Context,
    first: _FromOption = None,
    last: _ToOption = None,
    every_block: _EveryBlockOption = False,
    as_json: JsonOption = False,
) -> None:
    """Read blocks again from the receipts of the chain, and mend what differs in the tables.

    May run beside a node, and may be interrupted: each part is mended in one transaction.

    Example: inferd index repair --from 1000 --to 2000
    """
    whole, reports = run_async(
        _look(session_of(context), first, last, "repairing", every_block, Verifier.repair)
    )
    _show_reports(whole, reports, as_json=as_json, word="were mended")


def rebuild_command(context: typer.Context, as_json: JsonOption = False) -> None:
    """Empty the tables of the chain and index it from the deployment's block again.

    A running node does the indexing, and serves nothing until it has; without one this command
    does. Interrupted, whoever indexes next goes on. What the node computed and sent stays.

    Example: inferd index rebuild
    """
    head = run_async(_rebuild(session_of(context)))
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, "indexed_block": head})
    else:
        show(f"the chain is indexed anew up to block {head}")


def quarantine_command(
    context: typer.Context,
    replay: Annotated[
        bool, typer.Option("--replay", help="Try to read them again, after an upgrade.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List logs of the contracts that could not be read, and why; `--replay` reads them again.

    May run beside a node.

    Example: inferd index quarantine --replay
    """
    done = run_async(_quarantine(session_of(context), replay=replay))
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "replayed": done.replayed,
                "quarantined": [_quarantined_body(item) for item in done.left],
            }
        )
        return
    for item in done.left:
        show(
            f"block {item.log.block_number}, log {item.log.log_index} of 0x{item.log.tx_hash.hex()}"
            f" from 0x{item.log.address.hex()}: {item.reason}"
        )
    if replay:
        show(f"{done.replayed} logs were read again, {len(done.left)} are left")
    elif not done.left:
        show("no log is quarantined")


@asynccontextmanager
async def _indexed_chain(session: Session) -> AsyncIterator[IndexedChain]:
    """Raises what `deployed_chain` raises, DatabaseUnreachable, DatabaseOlder, DatabaseNewer,
    WrongDatabase."""
    async with deployed_chain(session) as chain:
        database = Database(session.settings)
        await database.ensure_running()
        try:
            pool = await open_pool(database.url)
            try:
                async with pool.acquire() as connection:
                    await require_current(connection, "chain", chain_migrations())
                    await require_current(connection, "node", node_migrations())
                store = Store(pool, chain.contracts, window_blocks=0)
                await store.claim(Hash32(session.deployment.genesis_hash))
                yield IndexedChain(chain.rpc, chain.contracts, pool, database.url)
            finally:
                pool.terminate()
        finally:
            await database.leave()


async def _look(
    session: Session,
    first: int | None,
    last: int | None,
    what: str,
    every_block: bool,
    way: Callable[[Verifier, BlockRange], AsyncIterator[RangeReport]],
) -> tuple[BlockRange, list[RangeReport]]:
    async with _indexed_chain(session) as chain:
        whole = await choose_range(chain.pool, chain.contracts, first, last)
        verifier = Verifier(chain.rpc, chain.pool, chain.contracts, every_block=every_block)
        reports = []
        with shown_progress(what, whole.blocks) as tell:
            async for report in way(verifier, whole):
                reports.append(report)
                tell(report.range.last - whole.first + 1)
    return whole, reports


async def _rebuild(session: Session) -> int:
    async with _indexed_chain(session) as chain:
        head = await chain.rpc.header("latest")
        start = chain.contracts.start_block
        target = head.number if head is not None else start
        with shown_progress("indexing", max(1, target - start + 1)) as tell:
            return await rebuild(
                chain.rpc,
                chain.pool,
                chain.contracts,
                database_url=chain.database_url,
                genesis_hash=Hash32(session.deployment.genesis_hash),
                settings=session.settings.index,
                target=target,
                tell=lambda number: tell(min(number, target) - start + 1),
                note=note,
            )


async def _quarantine(session: Session, *, replay: bool) -> Replay:
    async with _indexed_chain(session) as chain:
        if replay:
            return await replay_quarantined(chain.rpc, chain.pool, chain.contracts)
        return Replay(0, await load_quarantined(chain.pool))


def _show_reports(
    whole: BlockRange, reports: list[RangeReport], *, as_json: bool, word: str
) -> None:
    differences = [one for report in reports for one in report.differences]
    read_blocks = sum(report.read_blocks for report in reports)
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "first_block": whole.first,
                "last_block": whole.last,
                "read_blocks": read_blocks,
                "differences": [asdict(one) for one in differences],
            }
        )
        return
    for one in differences:
        show(_line(one))
    what = f"{len(differences)} rows {word}" if differences else "the tables are as the chain says"
    show(f"blocks {whole.first} to {whole.last}, receipts of {read_blocks} read: {what}")


def _line(one: Difference) -> str:
    where = "" if one.block_number is None else f" in block {one.block_number}"
    return f"{one.kind}{where}: {one.subject}"


def _quarantined_body(item: QuarantinedLog) -> dict[str, Any]:
    return {
        "block_number": item.log.block_number,
        "block_hash": "0x" + item.log.block_hash.hex(),
        "tx_hash": "0x" + item.log.tx_hash.hex(),
        "log_index": item.log.log_index,
        "address": "0x" + item.log.address.hex(),
        "topics": ["0x" + topic.hex() for topic in item.log.topics],
        "data": "0x" + item.log.data.hex(),
        "reason": item.reason,
    }
