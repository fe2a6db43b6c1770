"""`inferd demo` as a newcomer runs it: real models, plain lines, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def _start(folder: Path, output: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "inferd", "demo", "--folder", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=output.open("wb"),
        stderr=subprocess.STDOUT,
    )


def _processes_of(folder: Path) -> list[str]:
    """Processes that were started with the folder's name, or have a file in it open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            files = [str(handle.readlink()) for handle in (process / "fd").iterdir()]
        except OSError:
            continue
        if any(str(folder) in place for place in (line, *files)):
            found.append(line)
    return found


@pytest.mark.timeout(240)
def test_everything_is_as_promised_and_nothing_is_left(tmp_path: Path) -> None:
    folder, output = tmp_path / "demo", tmp_path / "output"
    demo = _start(folder, output)
    assert demo.wait(200) == 0, output.read_text()
    text = output.read_text()
    assert "everything is as promised" in text
    assert "refunded: 1, 12" in text
    assert "gas per result" in text
    assert "\x1b[" not in text
    assert _processes_of(folder) == []


@pytest.mark.parametrize("after", ["PostgreSQL is up", "Anvil is up", "ready at", "on chain"])
def test_ctrl_c_leaves_no_process_behind(after: str, tmp_path: Path) -> None:
    folder, output = tmp_path / "demo", tmp_path / "output"
    demo = _start(folder, output)
    end = time.monotonic() + 120
    while after not in output.read_text():
        assert demo.poll() is None, output.read_text()
        assert time.monotonic() < end, output.read_text()
        time.sleep(0.02)
    os.kill(demo.pid, signal.SIGINT)
    assert demo.wait(30) == 130, output.read_text()
    assert "Traceback" not in output.read_text()
    assert _processes_of(folder) == []
