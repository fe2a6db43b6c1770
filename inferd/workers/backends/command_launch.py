"""Becomes a program, within limits:

    python -I -S command_launch.py MEMORY_MB CPU_S PARENT_PID PROGRAM NAME ARGUMENT...

Limits are set here and not between fork and exec in the daemon, where threads may hold locks. It
runs by its path without the project's packages, so it imports only what Python brings.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    memory_bytes, cpu_s = int(sys.argv[1]) << 20, int(sys.argv[2])
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[3]):
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    os.execv(sys.argv[4], sys.argv[5:])  # noqa: S606


if __name__ == "__main__":
    main()
