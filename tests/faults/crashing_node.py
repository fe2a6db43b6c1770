"""A daemon that kills itself with SIGKILL at one named point of a request's way.

Run as a program in the daemon's place: the first argument names the point, the rest is the
daemon's own command line. It wraps the functions that do each step; the daemon itself knows
nothing of it.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import indexer.rpc.client
import indexer.store
import inferd.node.rounds
import inferd.settlement.launch
import inferd.settlement.outbox
import inferd.settlement.signing
import inferd.workers.dispatch
import inferd.workers.local
from inferd.cli import main


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def always(_: Any) -> bool:
    return True


def wrap(
    owner: Any,
    name: str,
    *,
    before: bool = False,
    when: Callable[[Any], bool] = always,
) -> None:
    """Dies before the function, or after it where `when` holds for what it returned."""
    real: Callable[..., Awaitable[Any]] = getattr(owner, name)

    @functools.wraps(real)
    async def wrapped(*arguments: Any, **named: Any) -> Any:
        if before:
            die()
        returned = await real(*arguments, **named)
        if when(returned):
            die()
        return returned

    setattr(owner, name, wrapped)


def wrap_delivery(owner: Any, name: str, *, before: bool = False) -> None:
    """The same where the function is about a delivery: told by the `kind` of an argument."""
    real: Callable[..., Awaitable[Any]] = getattr(owner, name)

    @functools.wraps(real)
    async def wrapped(*arguments: Any, **named: Any) -> Any:
        delivers = any(getattr(one, "kind", None) == "deliver" for one in arguments)
        if delivers and before:
            die()
        returned = await real(*arguments, **named)
        if delivers:
            die()
        return returned

    setattr(owner, name, wrapped)


def request_seen(original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(original)
    async def wrapped(store: Any, *arguments: Any, **named: Any) -> Any:
        returned = await original(store, *arguments, **named)
        async with store._pool.acquire() as connection:
            if await connection.fetchval("SELECT 1 FROM chain.request LIMIT 1"):
                die()
        return returned

    return wrapped


def after_indexed() -> None:
    store = indexer.store.Store
    store.commit = request_seen(store.commit)  # type: ignore[method-assign]


POINTS: dict[str, Callable[[], None]] = {
    "indexed": after_indexed,
    "assigned": lambda: wrap(inferd.node.rounds.Rounds, "_write", when=bool),
    "computed": lambda: wrap(inferd.workers.local.LocalWorker, "compute"),
    "stored": lambda: wrap(inferd.workers.dispatch.Dispatcher, "_write_result"),
    "planned": lambda: wrap(inferd.settlement.outbox.Outbox, "sign_first", before=True),
    "signed": lambda: wrap(indexer.rpc.client.Rpc, "send_raw_transaction", before=True),
    "sent": lambda: wrap(indexer.rpc.client.Rpc, "send_raw_transaction"),
    "mined": lambda: wrap(
        indexer.rpc.client.Rpc, "receipt", when=lambda receipt: receipt is not None
    ),
    "mined_recorded": lambda: wrap(inferd.settlement.outbox.Outbox, "mark_mined"),
}

DELIVERY_POINTS: dict[str, Callable[[], None]] = {
    "delivery_decided": lambda: wrap_delivery(inferd.settlement.outbox.Outbox, "plan", before=True),
    "delivery_planned": lambda: wrap_delivery(inferd.settlement.outbox.Outbox, "plan"),
    "delivery_signed": lambda: wrap_delivery(inferd.settlement.signing.Signing, "first"),
    "delivery_sent": lambda: wrap_delivery(inferd.settlement.launch.Launcher, "launch"),
    "delivery_mined": lambda: wrap_delivery(inferd.settlement.outbox.Outbox, "close", before=True),
    "delivery_closed": lambda: wrap_delivery(inferd.settlement.outbox.Outbox, "close"),
}


if __name__ == "__main__":
    (POINTS | DELIVERY_POINTS)[sys.argv.pop(1)]()
    main()
