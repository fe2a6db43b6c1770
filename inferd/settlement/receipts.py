"""What became of each item of a transaction, read from the logs of its receipt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eth_abi.abi import decode
from eth_utils.crypto import keccak

from indexer.rpc import RawLog
from indexer.types import Contracts
from inferd.protocol.request import Commitment
from inferd.protocol.result import ResultItem, unpack_items
from inferd.settlement.records import Intent

FULFILLED = keccak(text="InferenceFulfilled(uint256,address,bytes32)")
RESULT_SKIPPED = keccak(text="ResultSkipped(uint256,uint8)")
GROUP_SKIPPED = keccak(text="GroupSkipped(uint256,uint8)")
REFUNDED = keccak(text="RequestRefunded(uint256,address,uint256)")
REFUND_SKIPPED = keccak(text="RefundSkipped(uint256,uint8)")
CALLBACK_DELIVERED = keccak(text="CallbackDelivered(uint256,address)")
CALLBACK_FAILED = keccak(text="CallbackFailed(uint256,address,bytes)")
CALLBACK_SKIPPED = keccak(text="CallbackSkipped(uint256,uint8)")
PAYMENT_RELEASED = keccak(text="PaymentReleased(uint256)")
RELEASE_SKIPPED = keccak(text="ReleaseSkipped(uint256,uint8)")
DISPUTE_OPENED = keccak(text="DisputeOpened(uint256,address,uint40)")
DISPUTE_LAPSED = keccak(text="DisputeLapsed(uint256)")

# The order of the contracts' enums SkipReason and GroupSkipReason.
SKIP_REASONS = (
    "unknown_id",
    "commitment_mismatch",
    "already_settled",
    "expired",
    "not_expired",
    "quorum_mismatch",
    "terms_apply",
)
_GROUPS, _PROVEN_GROUPS = "(bytes,(bytes32,bytes32)[])[]", "(bytes,(bytes32,bytes32)[],bytes[])[]"
_POST_SELECTOR = keccak(text=f"post({_GROUPS},bytes32)")[:4]

GROUP_SKIP_REASONS = (
    "bad_length",
    "bad_signature",
    "bad_signer_count",
    "inactive_worker",
    "signers_not_ascending",
    "bad_proof_count",
)

CALLBACK_SKIP_REASONS = ("not_owed", "not_callback")
HOLD_SKIP_REASONS = ("not_held", "still_disputable")

SETTLED = "settled"
ALREADY_SETTLED = "skipped:already_settled"
"""Another transaction was first."""
REFUNDED_OUTCOME = "refunded"
DELIVERED = "delivered"
CALLBACK_FAILED_OUTCOME = "callback_failed"
"""The consumer reverted or ran out of the gas it asked for. Nobody's fault here."""
NOT_OWED = f"skipped:{CALLBACK_SKIP_REASONS[0]}"
"""The consumer was called by another transaction before."""
RELEASED = "released"
NOT_HELD = f"skipped:{HOLD_SKIP_REASONS[0]}"
"""It was paid by another transaction before, or is disputed."""
OPENED = "opened"
LAPSED = "lapsed"
REVERTED = "reverted"
OUT_OF_GAS = "out_of_gas"
"""Reverted, and its gas limit is why. No item's fault: the next limit is higher."""
REFUSED = "refused"
"""No endpoint took the transaction, in many blocks; one without effect took its nonce."""
NOT_WANTED = "not_wanted"
"""Outcome of an intent whose items were all settled or past their time before it was sent."""
PRICED_OUT = "priced_out"
"""Outcome of an intent that was in the way of others and cost more than its items were worth."""
CANCELLED_BY_OPERATOR = "cancelled_by_operator"
"""Outcome of an intent whose nonce was spent on nothing by `inferd settlement cancel`."""
RETRIED = "retried"
"""An item that was given up, and put back by `inferd settlement retry`: it goes alone."""
MISSING = "missing"
"""No event tells of it, though the transaction succeeded."""
NO_CONTRACT = "no_contract_code"
"""There is no contract where it was called. No item's fault."""
FAULTS = (REVERTED, REFUSED, MISSING, *(f"skipped:group_{reason}" for reason in GROUP_SKIP_REASONS))
"""Outcomes that are the item's own fault, or may be: they count against it."""

_OUTCOME_OF = {
    FULFILLED: SETTLED,
    REFUNDED: REFUNDED_OUTCOME,
    CALLBACK_DELIVERED: DELIVERED,
    CALLBACK_FAILED: CALLBACK_FAILED_OUTCOME,
    PAYMENT_RELEASED: RELEASED,
    DISPUTE_OPENED: OPENED,
    DISPUTE_LAPSED: LAPSED,
}


def item_outcomes(
    intent: Intent, logs: Sequence[RawLog], contracts: Contracts
) -> dict[tuple[int, Commitment], str]:
    """One of the outcomes above, or 'skipped:<reason>' or 'skipped:group_<reason>', per item."""
    addresses = {contracts.requests, contracts.results, contracts.disputes}
    by_id: dict[int, str] = {}
    skipped_groups: dict[int, str] = {}
    for log in logs:
        if log.address not in addresses or len(log.topics) < 2:
            continue
        topic, subject = log.topics[0], int.from_bytes(log.topics[1], "big")
        if topic in {RESULT_SKIPPED, REFUND_SKIPPED}:
            by_id[subject] = f"skipped:{_name(SKIP_REASONS, log.data)}"
        elif topic in _OUTCOME_OF:
            by_id[subject] = _OUTCOME_OF[topic]
        elif topic == RELEASE_SKIPPED:
            by_id[subject] = f"skipped:{_name(HOLD_SKIP_REASONS, log.data)}"
        elif topic == CALLBACK_SKIPPED:
            by_id[subject] = f"skipped:{_name(CALLBACK_SKIP_REASONS, log.data)}"
        elif topic == GROUP_SKIPPED:
            skipped_groups[subject] = f"skipped:group_{_name(GROUP_SKIP_REASONS, log.data)}"
    if skipped_groups:
        groups = posted_groups(intent.calldata)
        for index, outcome in skipped_groups.items():
            for item in groups[index] if index < len(groups) else ():
                by_id[item.request_id] = outcome
    return {
        (item.request_id, item.commitment): by_id.get(item.request_id, MISSING)
        for item in intent.items
    }


def ran_out_of_gas(gas_used: int, limit: int) -> bool:
    """Of a reverted transaction: a call gets at most 63/64 of the gas, so up to a 64th is left."""
    return gas_used * 32 >= limit * 31


def posted_groups(calldata: bytes) -> list[tuple[ResultItem, ...]]:
    """The items of each group in the calldata of a post, with proofs or without."""
    return [unpack_items(group[0]) for group in _groups_of(calldata)]


def is_plain_post(calldata: bytes) -> bool:
    """Whether it is a `post`, and no `postProven`, which takes more gas."""
    return calldata[:4] == _POST_SELECTOR


def posted_signatures(calldata: bytes) -> int:
    """How many are in the calldata of a plain post: those of a quorum's group take as much gas as
    groups of one each."""
    return sum(len(group[1]) for group in _groups_of(calldata))


def _groups_of(calldata: bytes) -> Sequence[Sequence[Any]]:
    """Items, signatures and, of groups with proofs, these."""
    types = _GROUPS if is_plain_post(calldata) else _PROVEN_GROUPS
    groups: Sequence[Sequence[Any]] = decode((types, "bytes32"), calldata[4:])[0]
    return groups


def _name(names: Sequence[str], data: bytes) -> str:
    number = int.from_bytes(data[:32], "big")
    return names[number] if number < len(names) else str(number)
