"""The chain as the rest of inferd asks it: typed methods over one or several endpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypeVar

import msgspec

from indexer.rpc import wire
from indexer.rpc.batches import BatchSize, batch_body, batch_parser
from indexer.rpc.exchange import call_object, parser
from indexer.rpc.member import ChainIdentity, Observer
from indexer.rpc.pool import EndpointPool
from indexer.rpc.refusals import lacks_method
from indexer.rpc.relays import RelayPool
from indexer.rpc.status import EndpointStatus
from indexer.rpc.types import (
    FeeHistory,
    Header,
    RawLog,
    Receipt,
    RpcAnswerTooLarge,
    RpcBatchRefused,
    RpcError,
)
from indexer.types import Address, BlockRef, Hash32, Wei

BlockTag = Literal["latest", "finalized", "safe", "earliest"]
StateTag = Literal["latest", "pending"]
T = TypeVar("T")


class Rpc:
    """Talks to the best endpoint, and to the next where that one fails.

    Every method raises RpcUnreachable (or one of its kinds in indexer.rpc.types) where no endpoint
    gave a usable answer, RpcError where the node answered with an error object, and WrongChain
    where every endpoint serves another chain than the one that is expected.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        send_urls: Sequence[str] = (),
        timeout_s: float = 10.0,
        observer: Observer | None = None,
    ) -> None:
        """Signed transactions go to `send_urls` only, where there are any; all questions to `urls`.
        `observer` is told of every exchange with an endpoint. Raises BadRpcUrl."""
        self._pool = EndpointPool(urls, timeout_s=timeout_s, observer=observer)
        self._relays = (
            RelayPool(send_urls, timeout_s=timeout_s, observer=observer) if send_urls else None
        )
        self._batch_sizes: dict[str, BatchSize] = {}
        self._last_id = 0

    async def __aenter__(self) -> Rpc:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._pool.close()
        if self._relays is not None:
            await self._relays.close()

    @property
    def endpoint(self) -> str:
        """The endpoint in use, as scheme://host:port."""
        return self._pool.current

    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """What is known of each, in the order they were given, those that are sent to last."""
        relays = self._relays.snapshot() if self._relays is not None else ()
        return self._pool.snapshot() + relays

    def expect(self, identity: ChainIdentity) -> None:
        """From now on each endpoint shows that it serves this chain before it is used, and again
        after every trouble; one that does not is put aside for a minute."""
        self._pool.expect(identity)
        if self._relays is not None:
            self._relays.expect(identity)

    async def check_relays(self) -> None:
        """Asks those that transactions are sent to for their chain, where there are any.

        Raises WrongChain where all of them serve another one; one that is away is only logged.
        """
        if self._relays is not None:
            await self._relays.check()

    def doubt(self) -> None:
        """What the endpoint in use said does not fit: its chain is checked before the next call."""
        self._pool.doubt()

    def pass_over(self, why: str) -> bool:
        """Leaves the endpoint in use alone for a minute: it answers, and cannot serve what is
        asked. False, with nothing changed, where no other is left."""
        return self._pool.pass_over(why)

    def elsewhere(self) -> Rpc | None:
        """The endpoints beside the one in use, for a second opinion; None where there are none.
        They are closed with this one."""
        others = self._pool.others()
        if others is None:
            return None
        second = copy(self)
        second._pool = others
        return second

    async def request(self, method: str, params: Sequence[Any] = ()) -> Any:
        """Any method; the result as plain JSON values."""
        return await self._call(method, params, msgspec.json.decode)

    async def chain_id(self) -> int:
        return await self._call("eth_chainId", (), wire.parse_quantity)

    async def header(self, block: int | Hash32 | BlockTag) -> Header | None:
        """By number, hash or tag; None where the node has no such block."""
        if isinstance(block, bytes):
            method, params = "eth_getBlockByHash", [wire.to_hex(block), False]
        else:
            method, params = _by_number(block)
        header = await self._call(method, params, lambda raw: _header(raw, block))
        if block == "latest" and header is not None:
            self._pool.saw_head(header.number)
        return header

    async def headers(self, numbers: Iterable[int]) -> list[Header | None]:
        """Several by number, in JSON-RPC batches as large as the endpoint takes; None for each that
        the node does not have."""
        wanted = list(numbers)
        found: list[Header | None] = []
        while len(found) < len(wanted):
            size = self._batch_sizes.setdefault(self.endpoint, BatchSize())
            chunk = wanted[len(found) : len(found) + size.calls]
            try:
                found += await self._headers(chunk)
            except (RpcBatchRefused, RpcAnswerTooLarge):
                if len(chunk) == 1:
                    raise
                self._batch_sizes.setdefault(self.endpoint, BatchSize()).refused(len(chunk))
            else:
                size.answered()
        return found

    async def logs_by_hash(self, block_hash: Hash32, addresses: Iterable[Address]) -> list[RawLog]:
        """The logs of one block, as given: the caller checks them."""
        criteria = {"blockHash": wire.to_hex(block_hash)}
        return await self._logs(criteria, addresses)

    async def logs_in_range(
        self, first: int, last: int, addresses: Iterable[Address]
    ) -> list[RawLog]:
        """The logs of blocks `first` to `last`, both included, as given: the caller checks them."""
        criteria = {"fromBlock": hex(first), "toBlock": hex(last)}
        return await self._logs(criteria, addresses)

    async def call(
        self,
        to: Address,
        data: bytes,
        block: BlockRef | Hash32 | StateTag = "latest",
        sender: Address | None = None,
        gas: int | None = None,
        value_wei: int = 0,
    ) -> bytes:
        """eth_call, pinned by hash (EIP-1898) to a block, with a gas limit or as much as the
        node allows. A revert is an RpcError with data."""
        message = {"to": wire.to_hex(to), "data": wire.to_hex(data)}
        if sender is not None:
            message["from"] = wire.to_hex(sender)
        if gas is not None:
            message["gas"] = hex(gas)
        if value_wei:
            message["value"] = hex(value_wei)
        block_hash = block.hash if isinstance(block, BlockRef) else block
        where = (
            {"blockHash": wire.to_hex(block_hash)} if isinstance(block_hash, bytes) else block_hash
        )
        return await self._call("eth_call", [message, where], wire.parse_octets)

    async def code(self, address: Address) -> bytes:
        return await self._call("eth_getCode", [wire.to_hex(address), "latest"], wire.parse_octets)

    async def balance(self, address: Address, tag: StateTag = "latest") -> Wei:
        params = [wire.to_hex(address), tag]
        return Wei(await self._call("eth_getBalance", params, wire.parse_quantity))

    async def nonce(self, address: Address, tag: StateTag = "latest") -> int:
        """The number of the account's next transaction."""
        params = [wire.to_hex(address), tag]
        return await self._call("eth_getTransactionCount", params, wire.parse_quantity)

    async def gas_price(self) -> Wei:
        return Wei(await self._call("eth_gasPrice", (), wire.parse_quantity))

    async def max_priority_fee(self) -> Wei | None:
        """The node's suggested tip; None where it has no such method."""
        try:
            return Wei(await self._call("eth_maxPriorityFeePerGas", (), wire.parse_quantity))
        except RpcError as error:
            if lacks_method(error):
                return None
            raise

    async def fee_history(
        self,
        blocks: int,
        percentiles: Sequence[float] = (),
        newest: int | Literal["latest"] = "latest",
    ) -> FeeHistory:
        """Base fees of the `blocks` blocks up to `newest`, and their tips at each percentile
        (0-100)."""
        last = newest if isinstance(newest, str) else hex(newest)
        params = [hex(blocks), last, list(percentiles)]
        return await self._call("eth_feeHistory", params, wire.parse_fee_history)

    async def estimate_gas(
        self, sender: Address, to: Address | None, data: bytes, value_wei: Wei | int = 0
    ) -> int:
        message = {
            "from": wire.to_hex(sender),
            "data": wire.to_hex(data),
            "value": hex(value_wei),
        }
        if to is not None:
            message["to"] = wire.to_hex(to)
        return await self._call("eth_estimateGas", [message], wire.parse_quantity)

    async def send_raw_transaction(self, raw: bytes) -> Hash32:
        """Sends signed bytes. After a failover the same bytes may reach two nodes: the second
        then answers with RpcError "already known", which is success."""
        method, params = "eth_sendRawTransaction", [wire.to_hex(raw)]
        if self._relays is None:
            return await self._call(method, params, wire.parse_hash)
        call_id = self._reserve_ids(1)
        body = msgspec.json.encode(call_object(call_id, method, params))
        return await self._relays.send(body, parser(call_id, wire.parse_hash))

    async def receipt(self, tx_hash: Hash32) -> Receipt | None:
        """None while the transaction is not mined."""
        params = [wire.to_hex(tx_hash)]
        return await self._call("eth_getTransactionReceipt", params, wire.parse_receipt)

    async def block_receipts(self, block_hash: Hash32) -> list[tuple[Hash32, list[RawLog]]] | None:
        """Per receipt of a block, the block it names and all its logs, as given: the caller checks
        them. None where the node has no such block; RpcError where it has no such method."""
        params = [wire.to_hex(block_hash)]
        return await self._call("eth_getBlockReceipts", params, wire.parse_block_receipts)

    async def receipt_logs(self, tx_hash: Hash32) -> tuple[Hash32, list[RawLog]] | None:
        """The same of one transaction; None while it is not mined."""
        params = [wire.to_hex(tx_hash)]
        return await self._call("eth_getTransactionReceipt", params, wire.parse_receipt_logs)

    async def transaction_hashes(self, block_hash: Hash32) -> list[Hash32] | None:
        """Of a block, in order; None where the node has no such block."""
        params = [wire.to_hex(block_hash), False]
        return await self._call("eth_getBlockByHash", params, wire.parse_transaction_hashes)

    async def transaction_exists(self, tx_hash: Hash32) -> bool:
        """Whether the node knows the transaction, mined or waiting."""
        params = [wire.to_hex(tx_hash)]
        return await self._call("eth_getTransactionByHash", params, wire.parse_presence)

    async def _logs(self, criteria: dict[str, Any], addresses: Iterable[Address]) -> list[RawLog]:
        criteria["address"] = [wire.to_hex(address) for address in addresses]
        return await self._call("eth_getLogs", [criteria], wire.parse_logs)

    async def _headers(self, numbers: Sequence[int]) -> list[Header | None]:
        if len(numbers) == 1:  # There are endpoints that take no batch at all.
            return [await self.header(numbers[0])]
        first_id = self._reserve_ids(len(numbers))
        body = batch_body(first_id, [_by_number(number) for number in numbers])
        parse = batch_parser(first_id, [partial(_header, asked=number) for number in numbers])
        return await self._pool.exchange("eth_getBlockByNumber", body, parse, calls=len(numbers))

    async def _call(
        self, method: str, params: Sequence[Any], parse: Callable[[msgspec.Raw], T]
    ) -> T:
        call_id = self._reserve_ids(1)
        body = msgspec.json.encode(call_object(call_id, method, params))
        return await self._pool.exchange(method, body, parser(call_id, parse))

    def _reserve_ids(self, count: int) -> int:
        first = self._last_id + 1
        self._last_id += count
        return first


def _by_number(block: int | BlockTag) -> tuple[str, list[Any]]:
    return "eth_getBlockByNumber", [hex(block) if isinstance(block, int) else block, False]


def _header(raw: msgspec.Raw, asked: int | Hash32 | BlockTag) -> Header | None:
    header = wire.parse_header(raw)
    if header is None or isinstance(asked, str):
        return header
    if asked != (header.number if isinstance(asked, int) else header.hash):
        raise ValueError("another block than the one asked for")
    return header
