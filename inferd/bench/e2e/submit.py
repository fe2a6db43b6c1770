"""The submitter, in a process of its own: `python -m inferd.bench.e2e.submit LOAD`.

The load is JSON, and so is what was sent, on stdout.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

import msgspec

from indexer.rpc.endpoint import Endpoint
from indexer.types import Hash32
from inferd.bench.e2e.load import Load, Sent, shares, ticks
from inferd.bench.e2e.world import FEE_WEI, MODEL, address_of
from inferd.protocol import calls
from inferd.protocol.request import RequestParams, model_id

_INPUT_BYTES = 48
_MAX_TOKENS = 8
_VARIANTS = 4
"""Different calldata for transactions of one size: to encode each anew would take longer than to
execute it."""
_GAS_FIXED, _GAS_EACH = 150_000, 80_000
_MAX_FEE_WEI = 20 * 10**9
_MOST_UNANSWERED = 200
"""Transactions that the chain has not taken yet; more, and it is the chain that is measured."""


class _Submitter:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._endpoint = Endpoint(load.rpc_url, timeout_s=60)
        self._random = random.Random(7)  # noqa: S311 - no secret
        self._calldata: dict[int, list[str]] = {}
        self._nonces = dict.fromkeys(load.accounts, 0)
        self._made = 0
        self.sent: list[Sent] = []

    async def run(self) -> None:
        """Raises RuntimeError where the chain refuses a transaction or falls far behind."""
        started_s = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as tasks:
                unanswered: set[asyncio.Task[None]] = set()
                for tick in ticks(self._load.rate, self._load.seconds):
                    await asyncio.sleep(started_s + tick.at_s - time.perf_counter())
                    if len(unanswered) > _MOST_UNANSWERED:
                        raise RuntimeError("the chain takes transactions slower than they come")
                    for requests in shares(tick.requests):
                        task = tasks.create_task(self._send(requests))
                        unanswered.add(task)
                        task.add_done_callback(unanswered.discard)
        finally:
            await self._endpoint.close()

    async def _send(self, requests: int) -> None:
        sent_s = time.time()
        body = msgspec.json.encode(self._call(requests))
        answer = msgspec.json.decode(await self._endpoint.post(body))
        if "error" in answer:
            raise RuntimeError(f"a transaction was refused: {answer['error']['message']}")
        tx_hash = Hash32(bytes.fromhex(answer["result"].removeprefix("0x")))
        self.sent.append(Sent(tx_hash, sent_s, requests))

    def _call(self, requests: int) -> dict[str, Any]:
        account = self._load.accounts[self._made % len(self._load.accounts)]
        self._made += 1
        nonce = self._nonces[account]
        self._nonces[account] += 1
        transaction = {
            "from": "0x" + address_of(account).hex(),
            "to": "0x" + self._load.contracts.requests.hex(),
            "nonce": hex(nonce),
            "data": self._data(requests),
            "value": hex(FEE_WEI * requests),
            "gas": hex(_GAS_FIXED + _GAS_EACH * requests),
            "maxFeePerGas": hex(_MAX_FEE_WEI),
            "maxPriorityFeePerGas": "0x0",
        }
        return {
            "jsonrpc": "2.0",
            "id": self._made,
            "method": "eth_sendTransaction",
            "params": [transaction],
        }

    def _data(self, requests: int) -> str:
        variants = self._calldata.setdefault(requests, [])
        if len(variants) == _VARIANTS:
            return variants[self._made % _VARIANTS]
        model = model_id(MODEL)
        params = [
            RequestParams(model, _MAX_TOKENS, self._load.deadline_s, 0, self._prompt())
            for _ in range(requests)
        ]
        variants.append("0x" + calls.submit_many(params, [FEE_WEI] * requests).hex())
        return variants[-1]

    def _prompt(self) -> bytes:
        return self._random.randbytes(_INPUT_BYTES // 2).hex().encode()


def main() -> None:
    submitter = _Submitter(msgspec.json.decode(sys.argv[1], type=Load))
    try:
        asyncio.run(submitter.run())
    except BaseExceptionGroup as group:
        sys.exit(str(group.exceptions[0]))
    sys.stdout.buffer.write(msgspec.json.encode(submitter.sent))


if __name__ == "__main__":
    main()
