"""A small signer behind JSON-RPC, as web3signer is, which can be told to lie."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from eth_account import Account
from eth_account.signers.local import LocalAccount

Lie = Callable[[dict[str, Any]], Any]
"""From a transaction that is to be signed to what is signed or, if no dict, answered instead."""


@dataclass
class SignerServer:
    account: LocalAccount
    lie: Lie | None = None
    as_geth: bool = False
    """Answers with an object, as geth and clef do."""
    silent: bool = False
    status: int = 200
    accounts: Any = None
    """What eth_accounts answers; None for the account's address."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    site: web.TCPSite | None = None

    async def handle(self, request: web.Request) -> web.Response:
        call = await request.json()
        self.asked.append(call)
        if self.silent:
            await asyncio.Event().wait()
        if self.status != 200:
            return web.Response(status=self.status, text="no")
        answer = {"jsonrpc": "2.0", "id": call["id"]}
        if call["method"] == "eth_accounts":
            listed = [self.account.address] if self.accounts is None else self.accounts
            return web.json_response(answer | {"result": listed})
        if call["method"] != "eth_signTransaction":
            error = {"code": -32601, "message": "method not found"}
            return web.json_response(answer | {"error": error})
        return web.json_response(answer | self._signed(call["params"][0]))

    def signatures(self) -> int:
        """How often it was asked for one."""
        return sum(call["method"] == "eth_signTransaction" for call in self.asked)

    def _signed(self, asked: dict[str, str]) -> dict[str, Any]:
        if asked["from"] != self.account.address:
            return {"error": {"code": -32000, "message": "signer not found"}}
        transaction: dict[str, Any] = {
            name: value if name in {"to", "data"} else int(value, 16)
            for name, value in asked.items()
            if name != "from"
        }
        if "gasPrice" not in transaction:
            transaction["type"] = 2
        if self.lie is not None:
            told = self.lie(transaction)
            if not isinstance(told, dict) or "error" in told or "raw" in told:
                return told if isinstance(told, dict) and "error" in told else {"result": told}
            transaction = told
        signed = self.account.sign_transaction(transaction)
        raw = "0x" + bytes(signed.raw_transaction).hex()
        if self.as_geth:
            return {"result": {"raw": raw, "tx": {"hash": "0x" + bytes(signed.hash).hex()}}}
        return {"result": raw}


@contextlib.asynccontextmanager
async def signer_server(
    account: LocalAccount | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[SignerServer]:
    server = SignerServer(account or Account.create())
    app = web.Application()
    app.router.add_post("/{tail:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    server.site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await server.site.start()
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
