"""A test that never ends costs its own process, and the run tells its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_CONFTEST = """
from tests.stuck import StuckTests

def pytest_configure(config):
    config.pluginmanager.register(StuckTests(3.0))
"""
_TESTS = """
import threading
import pytest

@pytest.fixture
def endless():
    yield
    threading.Event().wait()

def test_fails_and_is_never_taken_down(endless):
    assert False

def test_another():
    pass
"""


def test_one_that_failed_and_is_never_taken_down_is_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 60\n")
    (tmp_path / "test_it.py").write_text(_TESTS)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup"),
            *("--max-worker-restart", "0", "--rootdir", str(tmp_path), str(tmp_path)),
        ],
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "crashed while running" in ended.stdout
    assert "test_it.py::test_fails_and_is_never_taken_down" in ended.stdout
    assert "1 passed" in ended.stdout
    assert "in endless" in ended.stderr, "where it waits"
