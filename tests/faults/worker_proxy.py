"""Between an operator and a worker's agent: a proxy that does to each call what a test says.

It reads whole calls, so that a fault can choose its place: before the worker hears of it, after it
has answered, in the middle of either. Each call goes to the agent on a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_RESET = struct.pack("ii", 1, 0)


@dataclass
class Call:
    """One call, and what can be done with it."""

    method: str
    target: str
    sent: bytes
    """As it came, head and body."""
    _agent: tuple[str, int]
    _writer: asyncio.StreamWriter
    over: bool = False
    """Whether the connection ends with it."""

    async def ask(self, sent: bytes | None = None) -> bytes:
        """The agent's answer as it came; `sent` in place of the call. Empty where there is none."""
        reader, writer = await asyncio.open_connection(*self._agent)
        try:
            writer.write(self.sent if sent is None else sent)
            return await _message(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        finally:
            writer.close()

    async def half_ask(self, size: int) -> None:
        """So many bytes of the call reach the agent, then the connection is reset."""
        _, writer = await asyncio.open_connection(*self._agent)
        writer.write(self.sent[:size])
        await writer.drain()
        _reset(writer)

    async def say(self, answer: bytes) -> None:
        self._writer.write(answer)
        await self._writer.drain()

    async def pass_on(self) -> None:
        """As if there were no proxy."""
        await self.say(await self.ask())

    def close(self) -> None:
        """The connection ends in order."""
        self.over = True
        self._writer.close()

    def reset(self) -> None:
        """The connection ends with RST."""
        self.over = True
        _reset(self._writer)

    async def silence(self) -> None:
        """No byte more, and no end: as a peer that has lost its power."""
        self.over = True
        await asyncio.Event().wait()


Fault = Callable[[Call], Awaitable[None]]


@dataclass
class WorkerProxy:
    """Passes on what no fault is set for."""

    agent_url: str
    url: str = ""
    jobs: list[Fault] = field(default_factory=list)
    """Each for one call that asks for a job or its answer, in turn."""
    drops: list[Fault] = field(default_factory=list)
    """The same for acknowledgements."""
    faulty: list[str] = field(default_factory=list)
    """Methods of the calls that met a fault."""
    passed: list[str] = field(default_factory=list)
    """Of those that did not."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(self.agent_url)
        agent = parts.hostname or "", parts.port or 0
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                sent = await _message(reader)
                method, target, _ = sent.partition(b"\r\n")[0].decode().split(" ")
                call = Call(method, target, sent, agent, writer)
                await self._fault_of(call)(call)
                if call.over:
                    return

    def _fault_of(self, call: Call) -> Fault:
        faults = self.drops if call.method == "DELETE" else self.jobs
        if not faults or not call.target.startswith("/v1/jobs"):
            self.passed.append(call.method)
            return Call.pass_on
        self.faulty.append(call.method)
        return faults.pop(0)


@asynccontextmanager
async def between(agent_url: str) -> AsyncIterator[WorkerProxy]:
    """A proxy that listens; at the end whatever hangs in it is ended."""
    proxy = WorkerProxy(agent_url)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await proxy.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # asyncio would log it
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Head and body of an HTTP message with a content length, or without a body."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return head + await reader.readexactly(int(value))
    return head


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
