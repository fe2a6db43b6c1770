"""Logs -> events. A log is ours only where it comes from the contract that emits that event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eth_utils.crypto import keccak

from indexer import events as ev
from indexer.abi import UndecodableLog, address, boolean, octets, unsigned, word_at, words
from indexer.rpc.types import RawLog
from indexer.types import WEI_PER_GWEI, Address, Contracts, Hash32, Wei

_MAX_STORED_ID = 2**63 - 1
_MAX_DELIVERY = 2
_MAX_INPUT_KIND = 1
_UNUSED_LIMITS_BYTES = 19
_Topics = tuple[bytes, ...]
_Decode = Callable[[_Topics, bytes], ev.Event]


class Decoder:
    """Reads the logs of one deployment."""

    def __init__(self, contracts: Contracts) -> None:
        homes = {
            "requests": contracts.requests,
            "results": contracts.results,
            "registry": contracts.registry,
            "stakes": contracts.stakes,
        }
        self._by_topic: dict[bytes, tuple[Address, int, _Decode]] = {
            topic_of(signature): (homes[home], topic_count, decode)
            for home, signature, topic_count, decode in _EVENTS
        }

    def decode(self, log: RawLog) -> ev.Event:
        """Raises UndecodableLog with the reason."""
        known = self._by_topic.get(log.topics[0]) if log.topics else None
        if known is None:
            raise UndecodableLog("no event of the interface has this topic")
        home, topic_count, decode = known
        if log.address != home:
            raise UndecodableLog("the event belongs to another contract of the deployment")
        if len(log.topics) != topic_count:
            raise UndecodableLog(f"{len(log.topics)} topics where {topic_count} belong")
        return decode(log.topics, log.data)


def topic_of(signature: str) -> bytes:
    """The first topic of the event with this canonical signature."""
    return keccak(text=signature)


def _id(topics: _Topics) -> int:
    return int.from_bytes(topics[1], "big")


def _stored_id(topics: _Topics) -> int:
    """An id the contract handed out, so one that counts up from 1."""
    value = _id(topics)
    if value > _MAX_STORED_ID:
        raise UndecodableLog("the request id does not fit 63 bits")
    return value


def _address(topic: bytes) -> Address:
    return Address(address(topic))


def _wei(data: bytes, at: int) -> Wei:
    return Wei(unsigned(data, at))


def _inference_requested(topics: _Topics, data: bytes) -> ev.InferenceRequested:
    record, limits = word_at(data, 0), word_at(data, 32)
    flags, delivery, input_kind = record[0], record[0] & 3, limits[19]
    if flags >> 7 or limits[:_UNUSED_LIMITS_BYTES].strip(b"\0"):
        raise UndecodableLog("bits are set that mean nothing yet")
    if delivery > _MAX_DELIVERY or input_kind > _MAX_INPUT_KIND:
        raise UndecodableLog("the delivery or the kind of input is unknown")
    return ev.InferenceRequested(
        request_id=_stored_id(topics),
        requester=_address(topics[2]),
        model_id=Hash32(topics[3]),
        commitment=record[1:21],
        fee_wei=Wei(int.from_bytes(record[26:], "big") * WEI_PER_GWEI),
        deadline_s=int.from_bytes(record[21:26], "big"),
        delivery=delivery,
        quorum=flags >> 2 & 15,
        batchable=bool(flags >> 6),
        max_tokens=int.from_bytes(limits[28:], "big"),
        memory_mb=int.from_bytes(limits[24:28], "big"),
        callback_gas_limit=int.from_bytes(limits[20:24], "big"),
        input_kind=input_kind,
        input=octets(data, 64, 96),
    )


def _fee_raised(topics: _Topics, data: bytes) -> ev.FeeRaised:
    return ev.FeeRaised(_stored_id(topics), _wei(data, 0))


def _cancel_requested(topics: _Topics, data: bytes) -> ev.CancelRequested:
    return ev.CancelRequested(_stored_id(topics), unsigned(data, 0, 40))


def _inference_fulfilled(topics: _Topics, data: bytes) -> ev.InferenceFulfilled:
    return ev.InferenceFulfilled(_stored_id(topics), _address(topics[2]), Hash32(word_at(data, 0)))


def _result_skipped(topics: _Topics, data: bytes) -> ev.ResultSkipped:
    return ev.ResultSkipped(_id(topics), unsigned(data, 0, 8))


def _request_refunded(topics: _Topics, data: bytes) -> ev.RequestRefunded:
    return ev.RequestRefunded(_stored_id(topics), _address(topics[2]), _wei(data, 0))


def _refund_skipped(topics: _Topics, data: bytes) -> ev.RefundSkipped:
    return ev.RefundSkipped(_id(topics), unsigned(data, 0, 8))


def _worker_paid(topics: _Topics, data: bytes) -> ev.WorkerPaid:
    return ev.WorkerPaid(
        _address(topics[1]), _address(topics[2]), unsigned(data, 0, 63), _wei(data, 32)
    )


def _poster_paid(topics: _Topics, data: bytes) -> ev.PosterPaid:
    return ev.PosterPaid(_address(topics[1]), _wei(data, 0))


def _withdrawn(topics: _Topics, data: bytes) -> ev.Withdrawn:
    return ev.Withdrawn(_address(topics[1]), _address(topics[2]), _wei(data, 0))


def _group_skipped(topics: _Topics, data: bytes) -> ev.GroupSkipped:
    return ev.GroupSkipped(_id(topics), unsigned(data, 0, 8))


def _decisions_anchored(topics: _Topics, data: bytes) -> ev.DecisionsAnchored:
    return ev.DecisionsAnchored(Hash32(topics[1]), _address(topics[2]))


def _worker_registered(topics: _Topics, data: bytes) -> ev.WorkerRegistered:
    return ev.WorkerRegistered(_address(topics[1]), _address(topics[2]), *_offer(data))


def _worker_updated(topics: _Topics, data: bytes) -> ev.WorkerUpdated:
    return ev.WorkerUpdated(_address(topics[1]), _address(topics[2]), *_offer(data))


def _offer(data: bytes) -> tuple[tuple[Hash32, ...], bytes, int, int]:
    models = tuple(Hash32(model) for model in words(data, 0, 128))
    return models, octets(data, 32, 128), unsigned(data, 64, 32), unsigned(data, 96, 32)


def _worker_enabled(topics: _Topics, data: bytes) -> ev.WorkerEnabled:
    return ev.WorkerEnabled(_address(topics[1]), boolean(data, 0))


def _worker_staked(topics: _Topics, data: bytes) -> ev.WorkerStaked:
    return ev.WorkerStaked(_address(topics[1]), boolean(data, 0))


def _staked(topics: _Topics, data: bytes) -> ev.Staked:
    return ev.Staked(_address(topics[1]), _address(topics[2]), _wei(data, 0), _wei(data, 32))


def _unstake_started(topics: _Topics, data: bytes) -> ev.UnstakeStarted:
    return ev.UnstakeStarted(
        _address(topics[1]),
        _wei(data, 0),
        _wei(data, 32),
        _wei(data, 64),
        unsigned(data, 96, 40),
    )


def _stake_withdrawn(topics: _Topics, data: bytes) -> ev.StakeWithdrawn:
    return ev.StakeWithdrawn(_address(topics[1]), _address(topics[2]), _wei(data, 0))


_EVENTS: Final[tuple[tuple[str, str, int, _Decode], ...]] = (
    (
        "requests",
        "InferenceRequested(uint256,address,bytes32,uint256,uint256,bytes)",
        4,
        _inference_requested,
    ),
    ("requests", "FeeRaised(uint256,uint256)", 2, _fee_raised),
    ("requests", "CancelRequested(uint256,uint40)", 2, _cancel_requested),
    ("requests", "InferenceFulfilled(uint256,address,bytes32)", 3, _inference_fulfilled),
    ("requests", "ResultSkipped(uint256,uint8)", 2, _result_skipped),
    ("requests", "RequestRefunded(uint256,address,uint256)", 3, _request_refunded),
    ("requests", "RefundSkipped(uint256,uint8)", 2, _refund_skipped),
    ("requests", "WorkerPaid(address,address,uint256,uint256)", 3, _worker_paid),
    ("requests", "PosterPaid(address,uint256)", 2, _poster_paid),
    ("requests", "Withdrawn(address,address,uint256)", 3, _withdrawn),
    ("results", "GroupSkipped(uint256,uint8)", 2, _group_skipped),
    ("results", "DecisionsAnchored(bytes32,address)", 3, _decisions_anchored),
    (
        "registry",
        "WorkerRegistered(address,address,bytes32[],string,uint32,uint32)",
        3,
        _worker_registered,
    ),
    (
        "registry",
        "WorkerUpdated(address,address,bytes32[],string,uint32,uint32)",
        3,
        _worker_updated,
    ),
    ("registry", "WorkerEnabled(address,bool)", 2, _worker_enabled),
    ("registry", "WorkerStaked(address,bool)", 2, _worker_staked),
    ("stakes", "Staked(address,address,uint256,uint256)", 3, _staked),
    ("stakes", "UnstakeStarted(address,uint256,uint256,uint256,uint40)", 2, _unstake_started),
    ("stakes", "StakeWithdrawn(address,address,uint256)", 3, _stake_withdrawn),
)
