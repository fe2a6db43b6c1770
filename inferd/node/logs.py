"""Structured logs on stderr: one JSON object a line, or coloured lines for a person."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def configure_logs(level: str, form: Literal["json", "console"]) -> None:
    """Sets up structlog, and the standard library's loggers through it."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _bytes_as_hex,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # Upkeep passes its jobs' errors on to the supervisor, which logs them once.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)


def _bytes_as_hex(
    logger: object, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    for key, value in event.items():
        if isinstance(value, bytes):
            event[key] = "0x" + value.hex()
    return event
