"""Outcomes per item from logs; the topics and reasons are the contracts' own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from eth_utils.abi import event_abi_to_log_topic

from indexer.rpc import RawLog
from indexer.types import Address, Contracts, Hash32
from inferd.protocol.artifacts import load
from inferd.protocol.request import Commitment
from inferd.protocol.result import ResultItem
from inferd.protocol.typed_data import CompactSignature
from inferd.settlement import receipts
from inferd.settlement.batch import Group, post_calldata
from inferd.settlement.receipts import item_outcomes, posted_groups
from inferd.settlement.records import Intent, Item
from inferd.settlement.state import IntentState

REQUESTS, RESULTS = Address(b"\x01" * 20), Address(b"\x02" * 20)
CONTRACTS = Contracts(
    31337, 1, REQUESTS, RESULTS, *(Address(bytes([number]) * 20) for number in (3, 4, 5))
)
WORKERS = (Address(b"\x0a" * 20), Address(b"\x0b" * 20))


def commitment(number: int) -> Commitment:
    return Commitment(bytes([number]) * 20)


def group(worker: Address, *ids: int) -> Group:
    items = tuple(ResultItem(i, commitment(i), Hash32(b"\x05" * 32)) for i in ids)
    return Group((worker,), items, (CompactSignature(bytes(64)),))


GROUPS = (group(WORKERS[0], 1, 2), group(WORKERS[1], 3, 4))


def intent() -> Intent:
    items = tuple(Item(i, commitment(i), WORKERS[i > 2]) for i in (1, 2, 3, 4))
    calldata = post_calldata(GROUPS, Hash32(bytes(32)))
    return Intent(1, "post", IntentState.MINED, RESULTS, calldata, 1, items, ())


def log(topic: bytes, subject: int, data: int = 0, address: Address = REQUESTS) -> RawLog:
    return RawLog(
        address=address,
        topics=(topic, subject.to_bytes(32, "big")),
        data=data.to_bytes(32, "big"),
        block_number=1,
        block_hash=Hash32(bytes(32)),
        tx_hash=Hash32(bytes(32)),
        tx_index=0,
        log_index=0,
    )


def test_each_item_has_its_own_outcome() -> None:
    logs = [
        log(receipts.FULFILLED, 1),
        log(receipts.RESULT_SKIPPED, 2, 2),
        log(receipts.GROUP_SKIPPED, 1, 3, RESULTS),
        log(receipts.FULFILLED, 4, address=Address(b"\x77" * 20)),  # somebody else's contract
    ]
    assert item_outcomes(intent(), logs, CONTRACTS) == {
        (1, commitment(1)): "settled",
        (2, commitment(2)): "skipped:already_settled",
        (3, commitment(3)): "skipped:group_inactive_worker",
        (4, commitment(4)): "skipped:group_inactive_worker",
    }


def test_refunds_and_items_that_no_event_tells_of() -> None:
    logs = [log(receipts.REFUNDED, 1), log(receipts.REFUND_SKIPPED, 2, 4)]
    outcomes = item_outcomes(intent(), logs, CONTRACTS)
    assert list(outcomes.values()) == ["refunded", "skipped:not_expired", "missing", "missing"]


def test_groups_are_read_back_from_calldata() -> None:
    assert posted_groups(intent().calldata) == [one.items for one in GROUPS]


@pytest.mark.parametrize(
    ("contract", "event", "topic"),
    [
        ("InferenceRequests", "InferenceFulfilled", receipts.FULFILLED),
        ("InferenceRequests", "ResultSkipped", receipts.RESULT_SKIPPED),
        ("InferenceRequests", "RequestRefunded", receipts.REFUNDED),
        ("InferenceRequests", "RefundSkipped", receipts.REFUND_SKIPPED),
        ("InferenceResults", "GroupSkipped", receipts.GROUP_SKIPPED),
    ],
)
def test_topics_are_those_of_the_compiled_contracts(
    contract: str, event: str, topic: bytes
) -> None:
    (abi,) = [e for e in load(contract).abi if e["type"] == "event" and e["name"] == event]
    assert event_abi_to_log_topic(abi) == topic  # type: ignore[arg-type]


def test_reasons_are_in_the_order_of_the_contracts_enums() -> None:
    interfaces = Path(__file__).parents[2] / "contracts" / "src" / "interfaces"
    for file, enum, names in (
        ("IInferenceRequests.sol", "SkipReason", receipts.SKIP_REASONS),
        ("IInferenceResults.sol", "GroupSkipReason", receipts.GROUP_SKIP_REASONS),
    ):
        source = (interfaces / file).read_text()
        found = re.search(rf"enum {enum} {{(.*?)}}", source, re.DOTALL)
        assert found is not None
        assert tuple(found[1].lower().replace(",", " ").split()) == names
