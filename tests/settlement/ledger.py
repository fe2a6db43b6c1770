"""What the chain itself says of its whole history, without any table of ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from eth_utils.crypto import keccak
from eth_utils.hexadecimal import decode_hex

from indexer.types import Address
from tests.settlement.world import World

_FULFILLED = "0x" + keccak(text="InferenceFulfilled(uint256,address,bytes32)").hex()


@dataclass
class Ledger:
    fulfilled: list[int] = field(default_factory=list)
    """Ids, in order, as often as the contract said it."""
    nonces: dict[Address, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """Hashes of mined transactions."""
    cost_wei: dict[bytes, int] = field(default_factory=dict)
    """Gas of each, as its receipt says."""


async def read_ledger(world: World, senders: Collection[Address], first_block: int) -> Ledger:
    """Transactions of the senders, from that block on; fulfilments of all time."""
    found = Ledger()
    logs: list[dict[str, Any]] = await world.rpc.request(
        "eth_getLogs",
        [
            {
                "fromBlock": "0x0",
                "toBlock": "latest",
                "address": "0x" + world.contracts.requests.hex(),
                "topics": [_FULFILLED],
            }
        ],
    )
    found.fulfilled = sorted(int(entry["topics"][1], 16) for entry in logs)
    head = await world.rpc.header("latest")
    assert head is not None
    for number in range(first_block, head.number + 1):
        receipts: list[dict[str, Any]] = await world.rpc.request(
            "eth_getBlockReceipts", [hex(number)]
        )
        for receipt in receipts:
            sender = Address(decode_hex(receipt["from"]))
            if sender in senders:
                tx_hash = decode_hex(receipt["transactionHash"])
                transaction = await world.rpc.request(
                    "eth_getTransactionByHash", [receipt["transactionHash"]]
                )
                found.nonces[sender][int(transaction["nonce"], 16)] = tx_hash
                price_wei = int(receipt["effectiveGasPrice"], 16)
                found.cost_wei[tx_hash] = int(receipt["gasUsed"], 16) * price_wei
    return found
