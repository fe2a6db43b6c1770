"""What processes take of the machine, from /proc; nothing where the system has none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inferd.bench.index.processes import cpu_s_of

_PROC = Path("/proc")
_INTERVAL_S = 1.0


@dataclass
class Usage:
    """Of some processes by name, each with its children."""

    pids: Mapping[str, int]
    _before_s: dict[str, float] = field(default_factory=dict)
    _used_s: dict[str, float] = field(default_factory=dict)
    samples_mb: dict[str, list[float]] = field(default_factory=dict)
    """One a second."""

    def start(self) -> None:
        """CPU counts from here on."""
        self._before_s = {name: cpu_s_of(pid) for name, pid in self.pids.items()}

    def cpu_s(self) -> dict[str, float]:
        """Seconds of CPU since the start, by now or when it was last there."""
        for name, pid in self.pids.items():
            used_s = cpu_s_of(pid) - self._before_s[name]
            self._used_s[name] = max(self._used_s.get(name, 0.0), used_s)
        return dict(self._used_s)

    async def sample(self) -> None:
        """Memory and CPU, until it is cancelled."""
        while True:
            self.cpu_s()
            for name, pid in self.pids.items():
                self.samples_mb.setdefault(name, []).append(memory_mb(pid))
            await asyncio.sleep(_INTERVAL_S)

    def peak_mb(self) -> dict[str, float]:
        """The most of all samples."""
        return {name: max(samples, default=0.0) for name, samples in self.samples_mb.items()}


def memory_mb(pid: int) -> float:
    """MiB that a process and its children hold, what they share counted once."""
    children = [
        int(child)
        for tasks in _PROC.glob(f"{pid}/task/*/children")
        for child in _read(tasks).split()
    ]
    total = 0
    for one in (pid, *children):
        for line in _read(_PROC / str(one) / "smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def _read(path: Path) -> str:
    """Nothing of a process that has ended or is another user's."""
    try:
        return path.read_text()
    except OSError:
        return ""
