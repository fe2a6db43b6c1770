"""Somebody else with a key and a worker of his own, who answers the same requests."""

from __future__ import annotations

from collections.abc import Sequence

from eth_account import Account
from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_canonical_address

from indexer.types import ZERO_HASH, Address
from inferd.chain.register import register_worker
from inferd.chain.signers import LocalSigner
from inferd.chain.transact import Sender
from inferd.protocol import calls
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import domain_separator, group_digest, sign_digest
from tests.settlement.world import GWEI, World

_POSTER, _OWNER = 3, 4


class Rival:
    """Its transactions are made here and mined where the test says."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._account = Account.from_key((99).to_bytes(32, "big"))
        self._key = PrivateKey(bytes(self._account.key))
        config = world.anvil.config
        self._signer = LocalSigner(config.account(_POSTER))
        self.poster = self._signer.address
        self.owner = Address(to_canonical_address(config.account(_OWNER).address))

    async def register(self) -> Rival:
        world = self._world
        owner = Sender(world.rpc, world.anvil.config.account(_OWNER), world.anvil.config.chain_id)
        await world.automine(True)
        await register_worker(owner, self._account, ["test-model"], 4, 0, None, world.contracts)
        await world.automine(False)
        await world.index()
        return self

    async def signed_post(self, request_ids: Sequence[int]) -> bytes:
        """A transaction with its own answers to these requests, ready to be mined."""
        world = self._world
        items = []
        for request_id in request_ids:
            commitment = await world.pool.fetchval(
                "SELECT commitment FROM chain.request WHERE id = $1", request_id
            )
            items.append(ResultItem(request_id, commitment, digest_of(b"a rival's answer")))
        packed = pack_items(items)
        domain = domain_separator(world.contracts.chain_id, world.contracts.results)
        signature = sign_digest(self._key, group_digest(domain, packed))
        signed = await self._signer.sign(
            {
                "type": 2,
                "chainId": world.contracts.chain_id,
                "nonce": await world.rpc.nonce(self.poster),
                "to": world.contracts.results,
                "value": 0,
                "data": calls.post([(packed, [signature])], ZERO_HASH),
                "gas": 500_000,
                "maxFeePerGas": 100 * GWEI,
                "maxPriorityFeePerGas": 50 * GWEI,
            }
        )
        return signed.raw

    async def credit(self) -> int:
        """Of its poster and its worker's owner together, in wei."""
        return await self._world.credit(self.poster) + await self._world.credit(self.owner)
