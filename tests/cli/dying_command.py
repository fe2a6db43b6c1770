"""A command that kills itself with SIGKILL after the n-th write of its kind.

Run as a program: the first argument is `point:n`, the rest is the command line.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import indexer.store
import inferd.node.rebuild
from inferd.cli import main


def dying(real: Callable[..., Awaitable[Any]], times: int) -> Callable[..., Awaitable[Any]]:
    left = times

    async def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        returned = await real(*arguments, **named)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return returned

    return wrapped


if __name__ == "__main__":
    point, _, count = sys.argv.pop(1).partition(":")
    owner, name = {
        "repair": (indexer.store.Store, "replace_blocks"),
        "rebuild": (indexer.store.Store, "commit"),
        "emptied": (inferd.node.rebuild, "empty_tables"),
    }[point]
    setattr(owner, name, dying(getattr(owner, name), int(count)))
    main()
