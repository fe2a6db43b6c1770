"""`inferd worker update`: what a worker offers on chain, changed by its owner."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import typer
from eth_utils.address import to_checksum_address

from indexer.errors import OperatorError
from indexer.types import Address, Hash32
from inferd.chain.register import Offer, read_offer, update_worker
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json
from inferd.cli.session import JsonOption, Session, run_async, session_of
from inferd.cli.worker_settings import owned_worker
from inferd.protocol.request import model_id

_UINT32_MAX = 2**32 - 1


class NothingToUpdate(OperatorError):
    """No part of the offer was named."""

    code: ClassVar[str] = "nothing_to_update"


def register(workers: typer.Typer) -> None:
    workers.command("update")(update_command)


def update_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A worker of the settings.")],
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="All models it serves; repeatable."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where it listens, or pull: ; empty = in the operator's process."
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(min=1, max=_UINT32_MAX, metavar="N", help="Requests at the same time."),
    ] = None,
    memory_mb: Annotated[
        int | None, typer.Option(min=0, max=_UINT32_MAX, metavar="N", help="What it offers.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Change what a registered worker offers; what is not named stays as it is on chain.

    `inferd worker register` brings the offer back to what the settings say.

    Example: inferd worker update text --endpoint https://gpu.example:8443 --slots 8
    """
    if not models and endpoint is None and slots is None and memory_mb is None:
        raise NothingToUpdate(
            "nothing was named that should change",
            help_text="name --model, --endpoint, --slots or --memory-mb",
        )
    changes: dict[str, object] = {
        "models": tuple(model_id(model) for model in models) if models else None,
        "endpoint": endpoint,
        "slots": slots,
        "memory_mb": memory_mb,
    }
    wanted = {key: value for key, value in changes.items() if value is not None}
    signer, offer, tx_hash = run_async(_update(session_of(context), name, wanted))
    _show(signer, offer, tx_hash, as_json=as_json)


async def _update(
    session: Session, name: str, changes: dict[str, object]
) -> tuple[Address, Offer, Hash32 | None]:
    async with owned_worker(session, name) as (owner, signer, contracts):
        present = await read_offer(owner.rpc, contracts, signer)
        offer: Offer = replace(present, **changes)  # type: ignore[arg-type]
        return signer, offer, await update_worker(owner, contracts, signer, offer)


def _show(signer: Address, offer: Offer, tx_hash: Hash32 | None, *, as_json: bool) -> None:
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "signer": to_checksum_address(signer),
                "models": ["0x" + model.hex() for model in offer.models],
                "endpoint": offer.endpoint,
                "slots": offer.slots,
                "memory_mb": offer.memory_mb,
                "updated": tx_hash is not None,
                "tx_hash": None if tx_hash is None else "0x" + tx_hash.hex(),
            }
        )
        return
    show(f"{to_checksum_address(signer)} {'unchanged' if tx_hash is None else 'updated'}")
    if tx_hash is not None:
        note(f"transaction 0x{tx_hash.hex()}")
