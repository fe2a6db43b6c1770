"""What a server means by an answer that is no result: pure.

Its words are searched and never shown: they may repeat the prompt, or a part of the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from inferd.workers.job import JobError, WorkerBusy, WorkerFailed

BUSY = (429, 503, 529)
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_TEXT = 4_000
_LONGEST_REST_S = 60.0
_TOO_LONG_CODES = ("context_length_exceeded", "exceed_context_size_error")
_TOO_LONG_WORDS = re.compile(
    r"(maximum|available|model'?s?) (input |model )?(context|length|sequence)"
    r"|context (length|size|window)|prompt is too long|input is too long|too many tokens"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer with an error in it."""

    status: int
    """Of HTTP; 200 where the error came in the middle of a stream."""
    code: str = ""
    """The server's own word for it, or nothing where that is more than a word."""
    param: str = ""
    """The field it does not like."""
    text: str = field(default="", repr=False)
    """In lower case, cut."""

    @property
    def too_long(self) -> bool:
        """Whether prompt and answer together exceed what the model can hold."""
        return self.code in _TOO_LONG_CODES or (
            self.status in (400, 413, 422, 200) and bool(_TOO_LONG_WORDS.search(self.text))
        )

    @property
    def words(self) -> str:
        """For operators."""
        said = "an error" if self.status == 200 else f"HTTP {self.status}"
        return f"{said} ({self.code})" if self.code else said


class Refused(Exception):
    """A server's refusal, on its way to who knows what it means."""

    def __init__(self, refusal: Refusal, retry_after_s: float | None = None) -> None:
        super().__init__(refusal.words)
        self.refusal = refusal
        self.retry_after_s = retry_after_s


def refusal_of(status: int, body: bytes) -> Refusal:
    """From an answer's body, whatever it is: OpenAI's form, vLLM's older one, FastAPI's, text."""
    try:
        return refusal_from(status, msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return Refusal(status, text=body[:_MAX_TEXT].decode(errors="replace").lower())


def refusal_from(status: int, value: Any) -> Refusal:
    """The same from the decoded value."""
    inner = value.get("error", value) if isinstance(value, dict) else value
    table = inner if isinstance(inner, dict) else {}
    words = [table.get(name) for name in ("code", "type")]
    codes = [word for word in words if isinstance(word, str) and _CODE.fullmatch(word)]
    param = table.get("param")
    # The known ones first: llama.cpp has its own in `type` and OpenAI in `code`.
    codes.sort(key=lambda code: code not in _TOO_LONG_CODES)
    return Refusal(
        status,
        code=codes[0] if codes else "",
        param=param if isinstance(param, str) else "",
        text=msgspec.json.encode(inner)[:_MAX_TEXT].decode(errors="replace").lower(),
    )


def error_of(refused: Refused) -> JobError:
    """What it means for a job that is not too long."""
    refusal = refused.refusal
    if refusal.status in BUSY and refusal.code != "insufficient_quota":
        return WorkerBusy(
            f"its server has no capacity: {refusal.words}", retry_after_s=refused.retry_after_s
        )
    return WorkerFailed(f"its server answered with {refusal.words}")


def retry_after_s(header: str | None) -> float | None:
    """Seconds of a `Retry-After` header, at most a minute; None where it has a date or nothing."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return min(seconds, _LONGEST_REST_S) if seconds >= 0 else None
