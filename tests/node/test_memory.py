"""What is freed goes back to the system, whatever lies around it."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

_HEAP = """
import ctypes, random, sys
from inferd.node.memory import give_back

class Heap(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

if sys.argv[1] == "give_back":
    give_back()
rng, kept = random.Random(1), []
for _ in range(300):  # blocks: large bodies, of which small things stay
    bodies = [bytes(rng.randrange(150_000, 3_000_000)) for _ in range(8)]
    kept += [bytes(2_000), *(bytes(700) for _ in range(20))]
    del bodies
library = ctypes.CDLL(None)
library.mallinfo2.restype = Heap
print(library.mallinfo2().fordblks)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="needs the GNU C library",
)
def test_large_buffers_leave_no_holes_in_the_heap() -> None:
    free = {
        way: int(subprocess.check_output([sys.executable, "-c", _HEAP, way], text=True))
        for way in ("as_it_is", "give_back")
    }
    assert free["give_back"] < 500_000 < free["as_it_is"]
