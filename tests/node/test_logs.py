"""Log lines: ours and other libraries' in one form, at one level, and never a reason to stop."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from inferd.node.logs import configure_logs

Captured = pytest.CaptureFixture[str]


def lines(text: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in text.splitlines()]
    for line in found:
        assert str(line.pop("timestamp")).endswith("Z")
    return found


def test_events_and_foreign_records_have_one_form(capsys: Captured) -> None:
    configure_logs("info", "json")
    log = structlog.get_logger("ours").bind(trace_id=b"\xab")
    log.info("said", wei=2**80, error=ValueError("x"))
    log.debug("not said")
    logging.getLogger("theirs").warning("also %s", "said")
    logging.getLogger("theirs").debug("not said")
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        log.exception("failed")
    said, also, failed = lines(capsys.readouterr().err)
    assert said == {
        "trace_id": "0xab",
        "wei": 2**80,
        "error": "ValueError('x')",
        "event": "said",
        "logger": "ours",
        "level": "info",
    }
    assert also == {"event": "also said", "logger": "theirs", "level": "warning"}
    assert (failed["event"], failed["level"]) == ("failed", "error")
    assert "RuntimeError: broken" in str(failed["exception"])


def test_who_has_logged_before_follows_what_is_set_later(capsys: Captured) -> None:
    configure_logs("warning", "console")
    log = structlog.get_logger("ours")
    log.info("not said")
    log.warning("for people")
    assert "for people" in capsys.readouterr().err
    configure_logs("debug", "json")
    log.debug("for programs")
    assert [line["event"] for line in lines(capsys.readouterr().err)] == ["for programs"]


def test_lines_go_where_the_handler_is_told_to_write(capsys: Captured) -> None:
    """As the bar of a backfill tells it."""
    configure_logs("info", "json")
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    elsewhere = io.StringIO()
    handler.setStream(elsewhere)
    structlog.get_logger("ours").info("said")
    assert capsys.readouterr().err == ""
    assert [line["event"] for line in lines(elsewhere.getvalue())] == ["said"]


def test_a_line_that_cannot_be_written_stops_nobody() -> None:
    configure_logs("info", "json")
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    closed = io.StringIO()
    closed.close()
    handler.setStream(closed)
    structlog.get_logger("ours").error("lost")
