"""The process that a policy of another package runs in.

    python -m inferd.policies.child SOCKET_FD NAME PARENT_PID

It loads the policy, says its name, version and `sampled`, then answers questions until the daemon
hangs up. What the policy prints goes to stderr, among the daemon's log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from dataclasses import fields
from typing import Any

import numpy as np

from inferd.chain.child import die_with_parent
from inferd.policies.installed import offered
from inferd.policies.wire import BadMessage, Message, Wire
from scheduler.policies import LoadsView, OrderView, Policy, SeatsView


def serve(wire: Wire, name: str) -> None:
    """Until the other side hangs up."""
    try:
        policy: Policy = offered()[name].load()()
        hello = {"version": str(policy.version), "sampled": int(policy.sampled)}
    except Exception as error:
        wire.send(Message({"error": _words(error)}))
        return
    wire.send(Message(hello))
    while True:
        question = wire.receive()
        try:
            answer = _answer(policy, question)
        except Exception as error:
            wire.send(Message({"error": _words(error)}))
        else:
            wire.send(Message({}, {"numbers": answer}))


def _answer(policy: Policy, question: Message) -> np.ndarray[Any, Any]:
    columns: dict[str, Any] = dict(question.columns)
    if question.values["ask"] == "scores":
        view = OrderView(**(columns | _scalars(OrderView, question)))
        return np.asarray(policy.scores(view), dtype=np.float64).ravel()
    if question.values["ask"] == "work":
        return np.asarray(policy.work(SeatsView(**columns)), dtype=np.float64).ravel()
    used = columns.pop("used")
    workers = LoadsView(**(columns | _scalars(LoadsView, question)))
    return np.asarray(policy.load(workers, used), dtype=np.float64).ravel()


def _scalars(view: type[OrderView] | type[LoadsView], question: Message) -> dict[str, Any]:
    names = {field.name for field in fields(view)} - set(question.columns)
    return {name: question.values[name] for name in names}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def main() -> None:
    # It may be in an endless loop then, which hears of nothing.
    die_with_parent()
    if os.getppid() != int(sys.argv[3]):
        return
    # The daemon decides when this ends, also at Ctrl-C, which reaches the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    wire = Wire(socket.socket(fileno=int(sys.argv[1])))
    with contextlib.suppress(BadMessage, OSError):
        serve(wire, sys.argv[2])


if __name__ == "__main__":
    main()
