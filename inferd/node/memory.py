"""How the C library keeps memory that Python has given back."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_THRESHOLD_BYTES = 128 * 1024
# Of <malloc.h> in the GNU C library; others have no such call.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def give_back() -> None:
    """Of this process, buffers of 128 KiB and more, and what is free at the end of the heap, go
    back to the system from now on.

    By itself the GNU C library raises both limits each time it frees a large buffer, up to 32 MiB
    and twice that: a block's receipts and a round's rows then end up between small things that
    stay, and the heap grows around the holes.
    """
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _THRESHOLD_BYTES)
