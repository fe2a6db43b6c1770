"""Only the indexer, as a process that can be killed: `indexing_process.py RPC DATABASE WHAT`,
where WHAT is the JSON of the deployment's contracts and genesis."""

from __future__ import annotations

import asyncio
import json
import sys

from indexer.database import open_pool
from indexer.follow import Indexer
from indexer.rpc import Rpc
from indexer.types import Address, Contracts, Hash32


def described(contracts: Contracts, genesis_hash: Hash32) -> str:
    addresses = [address.hex() for address in contracts.addresses()]
    return json.dumps([contracts.chain_id, contracts.start_block, addresses, genesis_hash.hex()])


async def index(rpc_url: str, database_url: str, what: str) -> None:
    chain_id, start_block, addresses, genesis = json.loads(what)
    homes = [Address(bytes.fromhex(address)) for address in addresses]
    pool = await open_pool(database_url)
    async with Rpc([rpc_url]) as rpc:
        await Indexer(
            rpc,
            pool,
            Contracts(chain_id, start_block, *homes),
            genesis_hash=Hash32(bytes.fromhex(genesis)),
            poll_interval_s=0.001,
        ).run()


if __name__ == "__main__":
    asyncio.run(index(*sys.argv[1:]))
