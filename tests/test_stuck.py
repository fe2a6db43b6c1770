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


_LONG_ONES = """
import time
import pytest

@pytest.mark.timeout(90)
def test_takes_its_time():
    time.sleep(4)
"""


def _run(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 60\n")
    (folder / "test_it.py").write_text(tests)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup"),
            *("--max-worker-restart", "0", "--rootdir", str(folder), str(folder)),
        ],
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_one_that_failed_and_is_never_taken_down_is_named(tmp_path: Path) -> None:
    ended = _run(tmp_path, _TESTS)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "crashed while running" in ended.stdout
    assert "test_it.py::test_fails_and_is_never_taken_down" in ended.stdout
    assert "1 passed" in ended.stdout
    assert "in endless" in ended.stderr, "where it waits"


def test_one_that_may_take_longer_is_given_its_time(tmp_path: Path) -> None:
    ended = _run(tmp_path, _LONG_ONES)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout
