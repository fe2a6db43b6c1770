"""Threads beside the event loop."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from indexer.errors import OperatorError
from inferd.node import daemon
from inferd.node.roles import ALL
from inferd.node.settings import Settings


def test_the_daemon_has_its_threads_give_way_within_a_millisecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    monkeypatch.setattr(daemon, "configure_logs", lambda *_: None)
    settings = Settings.model_construct(
        log_level="INFO", log_format="json", deployment_file=tmp_path / "none.json"
    )
    try:
        with pytest.raises(OperatorError):
            daemon.run(settings, ALL, lambda: settings)
        assert sys.getswitchinterval() <= 0.001
    finally:
        sys.setswitchinterval(before_s)
