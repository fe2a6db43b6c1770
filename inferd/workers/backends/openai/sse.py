"""Server-sent events (WHATWG HTML, section 9.2.6), as far as streams of answers use them: pure."""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")


class BadStream(ValueError):
    """The stream is not what was asked for; the text holds nothing of it."""


class SseReader:
    """Bytes in, the data of whole events out. It never holds more than one event's bytes."""

    def __init__(self, *, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._buffer = bytearray()
        self._scanned = 0
        """Up to where the buffer holds no end of a line: what drips in is looked at once."""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that end in `chunk`. Raises BadStream where one is too large."""
        self._buffer += chunk
        events: list[bytes] = []
        at, scan = 0, self._scanned
        while match := _LINE_END.search(self._buffer, scan):
            if match.group() == b"\r" and match.end() == len(self._buffer):
                break  # perhaps the first half of \r\n
            self._take(bytes(self._buffer[at : match.start()]), events)
            at = scan = match.end()
        del self._buffer[:at]
        self._scanned = max(0, len(self._buffer) - 1)
        self._bound(len(self._buffer))
        return events

    def end(self) -> list[bytes]:
        """The event that the end of the stream cut off before its empty line."""
        events: list[bytes] = []
        for line in (bytes(self._buffer).removesuffix(b"\r"), b""):
            self._take(line, events)
        self._buffer.clear()
        self._scanned = 0
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._data_bytes = 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._bound(len(value))
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(value) + 1

    def _bound(self, more: int) -> None:
        if self._data_bytes + more > self._max_event_bytes:
            raise BadStream(f"an event of more than {self._max_event_bytes} bytes")
