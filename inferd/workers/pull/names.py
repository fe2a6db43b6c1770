"""What is whose at the broker. Pure.

Every key and channel of a worker begins with its prefix, so that one pattern of an access list
gives it all that is its own and nothing of others'.
"""

from __future__ import annotations

from indexer.types import Address

TASK = "inferd.exchange"
"""The only task: one signed request and its answer."""
_ANSWER = "celery-task-meta-"
"""What Celery puts before a task's id, to name its result and the channel that tells of it."""


def prefix(worker: Address) -> str:
    """Of all that the broker holds for this worker."""
    return f"inferd:0x{worker.hex()}:"


def queue(worker: Address) -> str:
    """The list of its tasks."""
    return prefix(worker) + "jobs"


def taken(worker: Address) -> dict[str, str]:
    """Where the tasks are that it has taken and not ended, as options of kombu's transport."""
    own = prefix(worker)
    return {
        "unacked_key": own + "unacked",
        "unacked_index_key": own + "unacked_index",
        "unacked_mutex_key": own + "unacked_mutex",
    }


def answer(worker: Address, task: str) -> str:
    """Key and channel of one task's answer."""
    return prefix(worker) + _ANSWER + task


def answers(asker: str) -> str:
    """The pattern of all answers to tasks whose ids begin with `asker`, of whichever worker."""
    return f"inferd:0x*:{_ANSWER}{asker}-*"
