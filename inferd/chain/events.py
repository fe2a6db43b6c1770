"""The deployment's events, found on the chain or in a receipt."""

from __future__ import annotations

from typing import TypeVar

from indexer.abi import UndecodableLog
from indexer.decode import Decoder
from indexer.rpc import RawLog, Receipt, Rpc, RpcMalformed
from indexer.types import Address, Contracts
from inferd.chain.logs import newest_log

E = TypeVar("E")


async def newest_event(
    rpc: Rpc, contracts: Contracts, at: Address, topics: tuple[bytes, ...], kind: type[E]
) -> tuple[E, RawLog] | None:
    """The newest log of the contract `at` whose first topics are these, read as `kind`.

    Raises RpcMalformed where it cannot be read, and what `newest_log` raises.
    """
    head = await rpc.header("latest")
    if head is None:
        return None
    log = await newest_log(rpc, at, topics, contracts.start_block, head.number)
    if log is None:
        return None
    try:
        event = Decoder(contracts).decode(log)
    except UndecodableLog as error:
        raise _malformed(rpc.endpoint, str(error)) from error
    if not isinstance(event, kind):
        raise _malformed(rpc.endpoint, f"not {kind.__name__}")
    return event, log


def events_in(receipt: Receipt, contracts: Contracts, at: Address, kind: type[E]) -> list[E]:
    """What the contract `at` said of this kind in a transaction."""
    decoder = Decoder(contracts)
    found = [decoder.decode(log) for log in receipt.logs if log.address == at]
    return [event for event in found if isinstance(event, kind)]


def expect_events(
    receipt: Receipt, contracts: Contracts, at: Address, kind: type[E], count: int = 1
) -> list[E]:
    """As `events_in`, and so many of them. Raises RpcMalformed."""
    found = events_in(receipt, contracts, at, kind)
    if len(found) != count:
        raise RpcMalformed(
            f"the receipt of 0x{receipt.tx_hash.hex()} has {len(found)} of {count} events",
            help_text="the transaction was mined: look it up before you send another",
        )
    return found


def id_topic(request_id: int) -> bytes:
    """An id as an indexed argument."""
    return request_id.to_bytes(32, "big")


def _malformed(endpoint: str, what: str) -> RpcMalformed:
    return RpcMalformed(
        f"{endpoint} gave an event that cannot be read: {what}", help_text="use another endpoint"
    )
