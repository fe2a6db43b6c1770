"""Logs -> events. A log is ours only where it comes from the contract that emits that event."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from eth_utils.crypto import keccak

from indexer import events as ev
from indexer.abi import (
    UndecodableLog,
    address,
    boolean,
    left_aligned,
    octets,
    unsigned,
    word_at,
    words,
)
from indexer.rpc.types import RawLog
from indexer.types import WEI_PER_GWEI, Address, Contracts, Hash32, Wei

_MAX_STORED_ID = 2**63 - 1
_MAX_DELIVERY = 2
_MAX_INPUT_KIND = 1
_UNUSED_LIMITS = bytes(19)
_REQUEST_HEAD = struct.Struct("!B20s5s6s19sBIII")
"""The record (flags, commitment, deadline, fee in gwei) and the limits."""
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
            "disputes": contracts.disputes,
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
    if len(data) < _REQUEST_HEAD.size:
        raise UndecodableLog(f"data ends before byte {_REQUEST_HEAD.size}")
    flags, commitment, deadline, fee, unused, input_kind, callback_gas, memory_mb, max_tokens = (
        _REQUEST_HEAD.unpack_from(data)
    )
    delivery = flags & 3
    if unused != _UNUSED_LIMITS:
        raise UndecodableLog("bits are set that mean nothing yet")
    if delivery > _MAX_DELIVERY or input_kind > _MAX_INPUT_KIND:
        raise UndecodableLog("the delivery or the kind of input is unknown")
    return ev.InferenceRequested(
        request_id=_stored_id(topics),
        requester=_address(topics[2]),
        model_id=Hash32(topics[3]),
        commitment=commitment,
        fee_wei=Wei(int.from_bytes(fee, "big") * WEI_PER_GWEI),
        deadline_s=int.from_bytes(deadline, "big"),
        delivery=delivery,
        quorum=flags >> 2 & 15,
        batchable=flags & 64 != 0,
        under_terms=flags & 128 != 0,
        max_tokens=max_tokens,
        memory_mb=memory_mb,
        callback_gas_limit=callback_gas,
        input_kind=input_kind,
        input=octets(data, 64, 96),
    )


def _fee_raised(topics: _Topics, data: bytes) -> ev.FeeRaised:
    return ev.FeeRaised(_stored_id(topics), _wei(data, 0))


def _cancel_requested(topics: _Topics, data: bytes) -> ev.CancelRequested:
    return ev.CancelRequested(_stored_id(topics), unsigned(data, 0, 40))


def _inference_fulfilled(topics: _Topics, data: bytes) -> ev.InferenceFulfilled:
    return ev.InferenceFulfilled(
        _stored_id(topics), _address(word_at(data, 0)), Hash32(word_at(data, 32))
    )


def _result_skipped(topics: _Topics, data: bytes) -> ev.ResultSkipped:
    return ev.ResultSkipped(_id(topics), unsigned(data, 0, 8))


def _request_refunded(topics: _Topics, data: bytes) -> ev.RequestRefunded:
    return ev.RequestRefunded(_stored_id(topics), _address(topics[2]), _wei(data, 0))


def _refund_skipped(topics: _Topics, data: bytes) -> ev.RefundSkipped:
    return ev.RefundSkipped(_id(topics), unsigned(data, 0, 8))


def _worker_paid(topics: _Topics, data: bytes) -> ev.WorkerPaid:
    return ev.WorkerPaid(
        _address(topics[1]), _address(word_at(data, 0)), unsigned(data, 32, 63), _wei(data, 64)
    )


def _poster_paid(topics: _Topics, data: bytes) -> ev.PosterPaid:
    return ev.PosterPaid(_address(word_at(data, 0)), _wei(data, 32))


def _withdrawn(topics: _Topics, data: bytes) -> ev.Withdrawn:
    return ev.Withdrawn(_address(topics[1]), _address(topics[2]), _wei(data, 0))


def _group_skipped(topics: _Topics, data: bytes) -> ev.GroupSkipped:
    return ev.GroupSkipped(_id(topics), unsigned(data, 0, 8))


def _decisions_anchored(topics: _Topics, data: bytes) -> ev.DecisionsAnchored:
    return ev.DecisionsAnchored(Hash32(topics[1]), _address(word_at(data, 0)))


def _callback_delivered(topics: _Topics, data: bytes) -> ev.CallbackDelivered:
    return ev.CallbackDelivered(_stored_id(topics), _address(topics[2]))


def _callback_failed(topics: _Topics, data: bytes) -> ev.CallbackFailed:
    return ev.CallbackFailed(_stored_id(topics), _address(topics[2]), octets(data, 0, 32))


def _callback_skipped(topics: _Topics, data: bytes) -> ev.CallbackSkipped:
    return ev.CallbackSkipped(_id(topics), unsigned(data, 0, 8))


def _proof_rejected(topics: _Topics, data: bytes) -> ev.ProofRejected:
    return ev.ProofRejected(_id(topics), _address(topics[2]))


def _credited(topics: _Topics, data: bytes) -> ev.Credited:
    return ev.Credited(_address(topics[1]), _address(topics[2]), _wei(data, 0))


def _credit_transferred(topics: _Topics, data: bytes) -> ev.CreditTransferred:
    return ev.CreditTransferred(_address(topics[1]), _address(topics[2]), _wei(data, 0))


def _paused_set(topics: _Topics, data: bytes) -> ev.PausedSet:
    return ev.PausedSet(boolean(data, 0))


def _ownership_offered(topics: _Topics, data: bytes) -> ev.OwnershipOffered:
    return ev.OwnershipOffered(_address(topics[1]), _address(topics[2]))


def _ownership_taken(topics: _Topics, data: bytes) -> ev.OwnershipTaken:
    return ev.OwnershipTaken(_address(topics[1]), _address(topics[2]))


def _model_terms_set(topics: _Topics, data: bytes) -> ev.ModelTermsSet:
    return ev.ModelTermsSet(
        terms_id=_id(topics),
        model_id=Hash32(topics[2]),
        verifier=_address(word_at(data, 0)),
        dispute_window_s=unsigned(data, 32, 32),
        bond_gwei=unsigned(data, 64, 56),
        min_quorum=unsigned(data, 96, 8),
    )


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


def _slashed(topics: _Topics, data: bytes) -> ev.Slashed:
    return ev.Slashed(
        _address(topics[1]), _address(topics[2]), _wei(data, 0), _wei(data, 32), _wei(data, 64)
    )


def _equivocated(topics: _Topics, data: bytes) -> ev.Equivocated:
    return ev.Equivocated(
        signer=_address(topics[1]),
        request_id=int.from_bytes(topics[2], "big"),
        commitment=left_aligned(data, 0, 20),
        digest=Hash32(word_at(data, 32)),
        other_digest=Hash32(word_at(data, 64)),
    )


def _payment_held(topics: _Topics, data: bytes) -> ev.PaymentHeld:
    return ev.PaymentHeld(
        request_id=_stored_id(topics),
        commitment=left_aligned(data, 0, 20),
        digest=Hash32(word_at(data, 32)),
        workers=tuple(_address(word) for word in words(data, 64, 288)),
        owners=tuple(_address(word) for word in words(data, 96, 288)),
        payment_wei=_wei(data, 128),
        poster=_address(word_at(data, 160)),
        poster_wei=_wei(data, 192),
        bond_wei=_wei(data, 224),
        disputable_until_s=unsigned(data, 256, 40),
    )


def _payment_released(topics: _Topics, data: bytes) -> ev.PaymentReleased:
    return ev.PaymentReleased(_stored_id(topics))


def _release_skipped(topics: _Topics, data: bytes) -> ev.ReleaseSkipped:
    return ev.ReleaseSkipped(_id(topics), unsigned(data, 0, 8))


def _dispute_opened(topics: _Topics, data: bytes) -> ev.DisputeOpened:
    return ev.DisputeOpened(_stored_id(topics), _address(topics[2]), unsigned(data, 0, 40))


def _dispute_ruled(topics: _Topics, data: bytes) -> ev.DisputeRuled:
    return ev.DisputeRuled(
        _stored_id(topics), _address(topics[2]), boolean(data, 0), _wei(data, 32)
    )


def _dispute_lapsed(topics: _Topics, data: bytes) -> ev.DisputeLapsed:
    return ev.DisputeLapsed(_stored_id(topics))


def _arbiter_set(topics: _Topics, data: bytes) -> ev.ArbiterSet:
    return ev.ArbiterSet(_address(topics[1]))


_EVENTS: Final[tuple[tuple[str, str, int, _Decode], ...]] = (
    (
        "requests",
        "InferenceRequested(uint256,address,bytes32,uint256,uint256,bytes)",
        4,
        _inference_requested,
    ),
    ("requests", "FeeRaised(uint256,uint256)", 2, _fee_raised),
    ("requests", "CancelRequested(uint256,uint40)", 2, _cancel_requested),
    ("requests", "InferenceFulfilled(uint256,address,bytes32)", 2, _inference_fulfilled),
    ("requests", "ResultSkipped(uint256,uint8)", 2, _result_skipped),
    ("requests", "RequestRefunded(uint256,address,uint256)", 3, _request_refunded),
    ("requests", "RefundSkipped(uint256,uint8)", 2, _refund_skipped),
    ("requests", "WorkerPaid(address,address,uint256,uint256)", 2, _worker_paid),
    ("requests", "PosterPaid(address,uint256)", 1, _poster_paid),
    ("requests", "Withdrawn(address,address,uint256)", 3, _withdrawn),
    ("results", "GroupSkipped(uint256,uint8)", 2, _group_skipped),
    ("requests", "Credited(address,address,uint256)", 3, _credited),
    ("requests", "CreditTransferred(address,address,uint256)", 3, _credit_transferred),
    ("requests", "PausedSet(bool)", 1, _paused_set),
    ("requests", "OwnershipOffered(address,address)", 3, _ownership_offered),
    ("requests", "OwnershipTaken(address,address)", 3, _ownership_taken),
    (
        "requests",
        "ModelTermsSet(uint256,bytes32,address,uint32,uint56,uint8)",
        3,
        _model_terms_set,
    ),
    ("results", "DecisionsAnchored(bytes32,address)", 2, _decisions_anchored),
    ("results", "CallbackDelivered(uint256,address)", 3, _callback_delivered),
    ("results", "CallbackFailed(uint256,address,bytes)", 3, _callback_failed),
    ("results", "CallbackSkipped(uint256,uint8)", 2, _callback_skipped),
    ("results", "ProofRejected(uint256,address)", 3, _proof_rejected),
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
    (
        "disputes",
        "PaymentHeld(uint256,bytes20,bytes32,address[],address[],uint256,address,uint256,uint256,uint40)",
        2,
        _payment_held,
    ),
    ("disputes", "PaymentReleased(uint256)", 2, _payment_released),
    ("disputes", "ReleaseSkipped(uint256,uint8)", 2, _release_skipped),
    ("disputes", "DisputeOpened(uint256,address,uint40)", 3, _dispute_opened),
    ("disputes", "DisputeRuled(uint256,bool,address,uint256)", 3, _dispute_ruled),
    ("disputes", "DisputeLapsed(uint256)", 2, _dispute_lapsed),
    ("disputes", "ArbiterSet(address)", 2, _arbiter_set),
    ("stakes", "Slashed(address,address,uint256,uint256,uint256)", 3, _slashed),
    ("stakes", "Equivocated(address,uint256,bytes20,bytes32,bytes32)", 3, _equivocated),
)
