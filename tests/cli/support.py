"""Runs commands in this process, and a node's API that says what a test wants."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from inferd.cli import run

ADDRESS = "0x" + "ab" * 20
OTHER_POSTER = "0x" + "ef" * 20
TX = "0x" + "cd" * 32


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    stdout: str
    stderr: str

    def refused(self, code: int, *words: str) -> None:
        """One line of what is wrong, one of what to do, and nothing else."""
        assert self.code == code, self.stderr
        assert self.stdout == ""
        lines = [
            line for line in self.stderr.splitlines() if line.startswith(("error: ", "help: "))
        ]
        assert [line.split(":")[0] for line in lines] == ["error", "help"]
        assert self.stderr.splitlines()[-2:] == lines
        for word in words:
            assert word in self.stderr
        assert "Traceback" not in self.stderr


@dataclass
class Cli:
    capture: pytest.CaptureFixture[bytes]

    def __call__(self, *arguments: str) -> Outcome:
        self.capture.readouterr()
        code = run(arguments)
        captured = self.capture.readouterr()
        return Outcome(int(code), captured.out.decode(), captured.err.decode())


@dataclass
class FakeNode:
    """Answers each path with a list of bodies, the last one for ever; else 404."""

    url: str = ""
    bodies: dict[str, list[Any]] = field(default_factory=dict)

    def says(self, path: str, *bodies: Any) -> None:
        self.bodies[path] = list(bodies)

    async def handle(self, request: web.Request) -> web.Response:
        waiting = self.bodies.get(request.path)
        if waiting is None:
            return web.json_response({"detail": "not found"}, status=404)
        body = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(body, int):
            return web.Response(status=body)
        if isinstance(body, bytes):
            return web.Response(body=body)
        return web.json_response(body)


@contextmanager
def serving(node: FakeNode) -> Iterator[None]:
    """Serves from a thread of its own: commands bring their own event loop."""
    loop = asyncio.new_event_loop()
    application = web.Application()
    application.router.add_get("/{path:.*}", node.handle)
    runner = web.AppRunner(application, access_log=None)

    async def start() -> str:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        return f"http://{host}:{port}"

    node.url = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def request_body(request_id: int = 7, state: str = "settled", **changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": request_id,
        "commitment": "0x" + "11" * 20,
        "requester": ADDRESS,
        "model": "markov",
        "fee_wei": str(10**16),
        "deadline_s": 1_800_000_600,
        "submitted_at_s": 1_800_000_000,
        "created_block": 12,
        "created_tx": TX,
        "cancel_requested": False,
        "state": state,
        "reason": None,
        "sentence": None,
        "attempts": 1,
        "worker": None,
        "waited_blocks": 3,
        "batch_size": None,
        "tx_hash": None,
        "settled_block": None,
        "digest": None,
        "quorum": 1,
        "answers": 0,
        "agreeing": 0,
        "callback": None,
        "callback_failure": None,
        "payment": None,
        "disagreement": None,
        "check": None,
    }
    if state == "settled":
        body |= {"worker": ADDRESS, "batch_size": 4, "tx_hash": TX, "settled_block": 15}
    return body | changes


def status_body(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "schema_version": 1,
        "version": "0.1.0",
        "chain_id": 31337,
        "role": "leader",
        "ready": True,
        "problems": [],
        "warnings": [],
        "index": {
            "head": 20,
            "indexed": 20,
            "finalized": 18,
            "lag_blocks": 0,
            "lag_s": 0.0,
            "reorgs": 1,
            "quarantined": 0,
            "left_s": None,
            "deepest_reorg": 2,
            "range_blocks": 64,
            "endpoints": [
                {
                    "endpoint": "https://one.test",
                    "state": "in_use",
                    "reason": None,
                    "latency_ms": 12.4,
                    "error_rate": 0.021,
                    "head": 20,
                    "lag_blocks": 0,
                    "calls_per_s": 18.0,
                },
                {
                    "endpoint": "https://two.test",
                    "state": "wrong_chain",
                    "reason": "https://two.test serves chain 1",
                    "latency_ms": None,
                    "error_rate": 0.0,
                    "head": 17,
                    "lag_blocks": 3,
                    "calls_per_s": None,
                },
            ],
            "rechecked": 18,
            "repaired_blocks": 0,
        },
        "requests": {"fulfilled": 3, "pending": 1},
        "workers": [
            {
                "address": ADDRESS,
                "name": "text",
                "model": "markov",
                "slots": 2,
                "in_flight": 1,
                "available": True,
                "completed": 3,
                "failed": 0,
            }
        ],
        "settlement": {
            "posters": [
                {
                    "address": ADDRESS,
                    "former": False,
                    "balance_wei": str(10**21 + 1),
                    "funds": {
                        "state": "enough",
                        "in_flight_wei": "0",
                        "waiting_wei": str(10**14),
                        "result_wei": str(10**14),
                        "runway_results": 10**7,
                        "spent_wei_per_day": str(10**20),
                        "runway_days": 10.04,
                    },
                    "in_flight": 0,
                    "confirmed": 2,
                    "paused_reason": None,
                    "error": None,
                },
                {
                    "address": OTHER_POSTER,
                    "former": False,
                    "balance_wei": "7",
                    "funds": None,
                    "in_flight": 0,
                    "confirmed": 0,
                    "paused_reason": "signer_unavailable",
                    "error": "the signer does not sign",
                },
                {
                    "address": ADDRESS,
                    "former": True,
                    "balance_wei": None,
                    "funds": None,
                    "in_flight": 1,
                    "confirmed": 0,
                    "paused_reason": None,
                    "error": None,
                },
            ],
            "in_flight": 0,
            "ready": 1,
            "paused_reason": None,
            "confirmed": 2,
            "callbacks_owed": 3,
            "delivering": "",
            "disputes_open": 0,
            "bonds_staked_wei": "0",
            "disputing": "",
            "releasing": "",
        },
        "processes": [
            {
                "holder": "far:7",
                "roles": ["index", "schedule"],
                "ready": False,
                "told_s": 0.5,
                "problems": [
                    {"code": "starting", "sentence": "It starts.", "next_action": "Wait."}
                ],
                "warnings": [],
            }
        ],
    }
    return body | changes
