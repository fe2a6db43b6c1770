"""Structured logs on stderr: one JSON object a line, or coloured lines for a person."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, TextIO

import structlog


def configure_logs(level: str, form: Literal["json", "console"]) -> None:
    """Sets up structlog, and the standard library's loggers through it."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _bytes_as_hex,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, _as_it_is],
        logger_factory=_Logger,
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = _Handler(
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        shared,
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # Upkeep passes its jobs' errors on to the supervisor, which logs them once.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes our own events, and the records of other libraries, in one form."""

    def __init__(
        self,
        renderer: structlog.typing.Processor,
        pre_chain: Sequence[structlog.typing.Processor],
    ) -> None:
        super().__init__(sys.stderr)
        self._renderer = renderer
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=pre_chain,
                processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            )
        )

    def tell(self, event: structlog.typing.EventDict) -> None:
        """In a third of the time that a record would take: a request has four lines.

        Where the line cannot be written it is lost, as a record would be.
        """
        line = f"{self._renderer(None, '', event)!s}{self.terminator}"
        self.acquire()
        try:
            with suppress(OSError, ValueError):
                self.stream.write(line)
                self.flush()
        finally:
            self.release()


class _Logger:
    """Hands events to the handlers of this module, at the levels of the standard library."""

    def __init__(self, name: str = "inferd") -> None:
        self.name = name
        self.disabled = False
        self._root = logging.getLogger()
        self.getEffectiveLevel = logging.getLogger(name).getEffectiveLevel

    def info(self, event: structlog.typing.EventDict) -> None:
        for handler in self._root.handlers:
            if isinstance(handler, _Handler):
                handler.tell(event)

    debug = warning = error = exception = critical = info


def _as_it_is(
    logger: object, name: str, event: structlog.typing.EventDict
) -> tuple[tuple[structlog.typing.EventDict], dict[str, object]]:
    """As the one argument of the logger's method."""
    return (event,), {}


def _bytes_as_hex(
    logger: object, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    for key, value in event.items():
        if isinstance(value, bytes):
            event[key] = "0x" + value.hex()
    return event
