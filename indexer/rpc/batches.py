"""Several calls in one exchange: how many an endpoint takes, and their answers put in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from indexer.rpc import wire
from indexer.rpc.endpoint import Endpoint
from indexer.rpc.exchange import Parse, call_object, result_of
from indexer.rpc.types import RpcBatchRefused, RpcError

T = TypeVar("T")

_MOST_CALLS = 100
_CALM = 64
"""After so many batches that were taken, one of twice the size is tried."""


class BatchSize:
    """How many calls one endpoint takes at once, as far as it has shown it."""

    def __init__(self) -> None:
        self.calls = _MOST_CALLS
        self._calm = 0

    def answered(self) -> None:
        """A batch was taken."""
        self._calm += 1
        if self._calm >= _CALM:
            self._calm = 0
            self.calls = min(_MOST_CALLS, self.calls * 2)

    def refused(self, calls: int) -> None:
        """A batch of so many was not."""
        self._calm = 0
        self.calls = max(1, calls // 2)


def batch_body(first_id: int, calls: Sequence[tuple[str, Sequence[Any]]]) -> bytes:
    """Methods with their parameters, numbered from `first_id`."""
    return msgspec.json.encode([call_object(first_id + at, *call) for at, call in enumerate(calls)])


def batch_parser(first_id: int, parses: Sequence[Callable[[msgspec.Raw], T]]) -> Parse[list[T]]:
    """Reads the answers in the order of the calls, whatever order they come in. What it gives
    raises RpcBatchRefused where the batch as a whole was not taken."""

    def parse_body(body: bytes, endpoint: Endpoint) -> list[T]:
        answers = wire.batch_decoder.decode(body)
        if isinstance(answers, wire.Answer):
            raise _refused(answers, endpoint)
        errors = [answer for answer in answers if answer.error is not None]
        if errors and len(errors) == len(answers):
            # Geth answers the first call alone, others each of them.
            raise _refused(errors[0], endpoint)
        by_id = {answer.id: answer for answer in answers}
        if len(by_id) != len(answers) or len(answers) != len(parses):
            raise ValueError(f"{len(answers)} answers to a batch of {len(parses)}")
        found = []
        for at, parse in enumerate(parses):
            answer = by_id.get(first_id + at)
            if answer is None:
                raise ValueError("an answer to a call that was not in the batch")
            found.append(parse(result_of(answer, endpoint)))
        return found

    return parse_body


def _refused(answer: wire.Answer, endpoint: Endpoint) -> Exception:
    """Raises RpcRateLimited where the calls were too many in a time, and not in a batch."""
    if answer.error is not None and _is_about_size(answer.error.message):
        message = endpoint.without_secrets(answer.error.message)
        return RpcBatchRefused(answer.error.code, message, answer.error.data)
    try:
        result_of(answer, endpoint)
    except RpcError as error:
        return RpcBatchRefused(error.code, error.message, error.data)
    return ValueError("one answer to a batch")


def _is_about_size(message: str) -> bool:
    text = message.lower()
    return "batch" in text and "rate limit" not in text
