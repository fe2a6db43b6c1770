"""What happened, by the chain's own logs and receipts; the daemon's tables are not asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eth_utils.address import to_checksum_address

from indexer.decode import Decoder, topic_of
from indexer.events import InferenceFulfilled, InferenceRequested, RequestRefunded
from indexer.rpc import Receipt, Rpc
from indexer.together import together
from indexer.types import Address, Contracts, Hash32, Wei
from inferd.bench.index.errors import BenchFailed
from inferd.chain.connect import read_view
from inferd.chain.logs import search_logs

_REQUESTED = topic_of("InferenceRequested(uint256,address,bytes32,uint256,uint256,bytes)")
_FULFILLED = topic_of("InferenceFulfilled(uint256,address,bytes32)")
_REFUNDED = topic_of("RequestRefunded(uint256,address,uint256)")
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is on the chain."""

    block: int
    tx_hash: Hash32


@dataclass(frozen=True, slots=True)
class Chain:
    """All that was asked and answered."""

    asked: Mapping[int, Place]
    """By the request's id."""
    settled: Mapping[int, Place]
    """The first result of each."""
    endings: Mapping[int, int]
    """How often each was fulfilled or refunded."""
    posts: Sequence[Receipt]
    """Of the transactions with results."""
    results_of: Mapping[Hash32, int]
    """By those transactions."""
    credited_wei: Wei
    """What the contract owes all whom results pay."""

    @property
    def doubled(self) -> int:
        """Requests that ended more than once."""
        return sum(times > 1 for times in self.endings.values())


async def read_chain(rpc: Rpc, contracts: Contracts, last: int, paid: Sequence[Address]) -> Chain:
    """Up to block `last`; `paid` are the accounts that results pay. Raises what the endpoint
    raises."""
    decode = Decoder(contracts).decode
    asked, settled = {}, {}
    endings: Counter[int] = Counter()
    results_of: Counter[Hash32] = Counter()
    for topic in (_REQUESTED, _FULFILLED, _REFUNDED):
        logs = search_logs(rpc, contracts.requests, [topic], contracts.start_block, last)
        async for log in logs:
            event, place = decode(log), Place(log.block_number, log.tx_hash)
            if isinstance(event, InferenceRequested):
                asked[event.request_id] = place
            elif isinstance(event, InferenceFulfilled):
                settled[event.request_id] = place  # The newest comes first, the oldest stays.
                endings[event.request_id] += 1
                results_of[log.tx_hash] += 1
            elif isinstance(event, RequestRefunded):
                endings[event.request_id] += 1
    posts = await together(lambda tx_hash: _receipt(rpc, tx_hash), results_of, at_once=_AT_ONCE)
    credits_wei = [await _credit(rpc, contracts, account) for account in paid]
    return Chain(asked, settled, endings, posts, results_of, Wei(sum(credits_wei)))


async def _receipt(rpc: Rpc, tx_hash: Hash32) -> Receipt:
    receipt = await rpc.receipt(tx_hash)
    if receipt is None:
        raise BenchFailed(
            f"the chain has logs of 0x{tx_hash.hex()} and no receipt", help_text="run it again"
        )
    return receipt


async def _credit(rpc: Rpc, contracts: Contracts, account: Address) -> int:
    (amount_wei,) = await read_view(
        rpc, contracts.requests, "InferenceRequests", "credits", [to_checksum_address(account)]
    )
    return int(amount_wei)
