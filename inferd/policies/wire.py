"""What a daemon and the process of a policy say to each other, over a stream socket.

A message is one head and its columns. The head: 4 bytes, big endian, the length of a JSON object
that follows; in it `columns` lists name, dtype (numpy's, `<f8` or `<i8`) and length of each column,
whose bytes follow one after another. Nothing that arrives is executed: no pickle on this way.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES = ("<f8", "<i8")
_MAX_HEAD = 1 << 20
_MAX_COLUMN = 1 << 26


class BadMessage(Exception):
    """The other side sent something else, or hung up."""


@dataclass(frozen=True, slots=True)
class Message:
    values: Mapping[str, Any]
    """Numbers and texts."""
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Wire:
    """One end of the socket. Every call has a deadline, in seconds of `time.monotonic`."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: Message, deadline_s: float | None = None) -> None:
        """Raises TimeoutError, OSError."""
        columns = {
            name: np.ascontiguousarray(column, dtype="<f8" if column.dtype.kind == "f" else "<i8")
            for name, column in message.columns.items()
        }
        listed = [(name, column.dtype.str, len(column)) for name, column in columns.items()]
        head = json.dumps({**message.values, "columns": listed}).encode()
        self._limit(deadline_s)
        self._end.sendall(struct.pack(">I", len(head)) + head)
        for column in columns.values():
            self._limit(deadline_s)
            self._end.sendall(column.view(np.uint8).data)

    def has_arrived(self, within_s: float) -> bool:
        """Whether there is something to receive, if only that it hung up."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(within_s * 1000))

    def receive(self, deadline_s: float | None = None) -> Message:
        """Raises TimeoutError, OSError, BadMessage."""
        (length,) = struct.unpack(">I", self._exactly(4, deadline_s))
        if length > _MAX_HEAD:
            raise BadMessage(f"a head of {length} bytes")
        try:
            values = json.loads(bytes(self._exactly(length, deadline_s)))
            listed = [(str(name), str(dtype), int(size)) for name, dtype, size in values["columns"]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BadMessage(f"an unreadable head: {error}") from error
        del values["columns"]
        columns = {}
        for name, dtype, size in listed:
            if dtype not in _DTYPES or not 0 <= size <= _MAX_COLUMN:
                raise BadMessage(f"a column of {size} {dtype}")
            columns[name] = np.frombuffer(self._exactly(8 * size, deadline_s), dtype=dtype)
        return Message(values, columns)

    def close(self) -> None:
        self._end.close()

    def _exactly(self, count: int, deadline_s: float | None) -> bytearray:
        buffer = bytearray(count)
        view, got = memoryview(buffer), 0
        while got < count:
            self._limit(deadline_s)
            more = self._end.recv_into(view[got:])
            if not more:
                raise BadMessage("it hung up")
            got += more
        return buffer

    def _limit(self, deadline_s: float | None) -> None:
        if deadline_s is None:
            return
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._end.settimeout(left_s)
