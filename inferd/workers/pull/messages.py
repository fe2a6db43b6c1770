"""A request and its answer as they are at the broker. Pure.

Bodies are texts of JSON, and stay texts: as bytes they would grow by a third once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from inferd.net.guarded import Answer, ExchangeError, Malformed, TooLarge, Unreachable
from inferd.protocol.worker_api_signing import ANSWER_HEADER

HEADERS = ("Date", "Retry-After", ANSWER_HEADER)
"""Of an answer's headers those that say something to the operator."""
_FRAME_BYTES = 4 * 1024


class Asked(msgspec.Struct, frozen=True):
    """The keyword arguments of the task."""

    method: str
    target: str
    authorization: str
    body: str


class Told(msgspec.Struct, frozen=True):
    """What the task returns."""

    status: int
    headers: dict[str, str]
    body: str


class _Outcome(msgspec.Struct):
    """What Celery keeps and tells of a task that has ended."""

    status: str
    result: msgspec.Raw = msgspec.Raw(b"null")


def arguments(
    method: str, target: str, headers: Mapping[str, str], body: bytes | None
) -> dict[str, Any]:
    """Of the task, for a request as it would go over HTTP."""
    asked = Asked(method, target, headers["authorization"], (body or b"").decode())
    return msgspec.structs.asdict(asked)


def read_answer(message: bytes, max_bytes: int) -> Answer:
    """From what the worker put at the broker, which may be anything. Raises TooLarge, Malformed,
    and Unreachable where the task ended without an answer."""
    # JSON writes each quote in a text as two bytes.
    if len(message) > 2 * max_bytes + _FRAME_BYTES:
        raise TooLarge(f"the answer has more than {max_bytes} bytes")
    try:
        outcome = msgspec.json.decode(message, type=_Outcome)
        if outcome.status != "SUCCESS":
            raise _unanswered(outcome.status)
        told = msgspec.json.decode(outcome.result, type=Told)
        body = told.body.encode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Malformed("what it put at the broker is no answer") from None
    if len(body) > max_bytes:
        raise TooLarge(f"the answer has more than {max_bytes} bytes")
    if not 100 <= told.status <= 599:
        raise Malformed("what it put at the broker has no HTTP status")
    return Answer(told.status, _Headers(told.headers), body)


class _Headers(dict[str, str]):
    """By names in any case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__({name.lower(): value for name, value in given.items()})

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())


def _unanswered(status: str) -> ExchangeError:
    if status == "REVOKED":
        return Unreachable(
            "it took the request from the broker after its time, or its clock is ahead"
        )
    return Unreachable("it gave up the request without an answer")
