"""Requests as the API shows them: one query, and a pure function that names the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexer.database import Connection
from inferd.inputs.rows import NO_ROOM
from inferd.node.api_models import CallbackState, CheckState, RequestState, RequestView
from inferd.protocol.private import HEAD_BYTES, KEY_BYTES, is_private
from inferd.protocol.request import Delivery
from inferd.settlement.decisions import DECISION_COLUMNS, decision_of
from inferd.settlement.postable import POSTABLE
from inferd.settlement.quorum import TALLY
from scheduler.decision import NUMBER_NAMES
from scheduler.explain import sentence as explain
from scheduler.model import Numbers, Reason

_DECISION = ", ".join(f'd."{name}" AS "decision_{name}"' for name in DECISION_COLUMNS)
_SELECT = f"""
    SELECT r.id, r.commitment, r.requester, r.model_id, r.fee_wei, r.deadline_s, r.cancel_requested,
           r.created_at_s, r.created_block, r.created_tx_hash, r.status, r.worker, r.digest,
           r.settled_block, r.settled_tx_hash,
           r.delivery, r.callback_delivered_block, r.callback_failures, r.callback_failure,
           c.block_number AS head_number, c.timestamp_s AS head_timestamp_s,
           r.quorum, tally.agreeing,
           CASE WHEN r.quorum > 1 THEN (
               SELECT count(*) FROM node.result n
               WHERE n.request_id = r.id AND n.commitment = r.commitment) ELSE 0 END AS answers,
           res.worker AS result_worker, res.digest AS result_digest,
           lease.worker AS lease_worker, tries.attempts,
           refusal.reason AS refusal_reason, decision.*,
           hold.state AS payment, wrong.id AS disagreement,
           named.tries AS input_tries, named.trouble AS input_trouble,
           substr(CASE WHEN r.input_kind = 0 THEN r.input ELSE named.content END, 1, {HEAD_BYTES})
               AS input_head,
           checked.undecided AS check_undecided,
           live.kind AS live_kind, live.hash AS live_hash, live.items AS live_items,
           (SELECT count(*) FROM chain.request same
            WHERE same.settled_tx_hash = r.settled_tx_hash AND same.status = 'fulfilled')
               AS batch_size
    FROM chain.request r
    CROSS JOIN chain.cursor c
    CROSS JOIN LATERAL ({TALLY}) tally
    LEFT JOIN LATERAL (
        SELECT n.worker, n.digest FROM node.result n
        WHERE n.request_id = r.id AND n.commitment = r.commitment AND {POSTABLE}
          AND (r.quorum = 1 OR (tally.agreed AND n.digest = tally.digest))
        ORDER BY n.computed_at LIMIT 1
    ) res ON true
    LEFT JOIN node.lease lease
        ON lease.request_id = r.id AND lease.commitment = r.commitment AND lease.state = 'active'
    CROSS JOIN LATERAL (
        SELECT count(*) AS attempts FROM node.lease
        WHERE request_id = r.id AND commitment = r.commitment
    ) tries
    LEFT JOIN node.refusal refusal
        ON refusal.request_id = r.id AND refusal.commitment = r.commitment
           AND refusal.deadline_s = r.deadline_s
    LEFT JOIN chain.hold hold ON hold.request_id = r.id AND hold.commitment = r.commitment
    LEFT JOIN LATERAL (
        SELECT id FROM node.disagreement d
        WHERE d.request_id = r.id AND d.commitment = r.commitment AND d.digest = r.digest
          AND d.decided
        ORDER BY d.id LIMIT 1
    ) wrong ON true
    LEFT JOIN node.spot_check checked
        ON checked.request_id = r.id AND checked.commitment = r.commitment
           AND (checked.undecided OR checked.held_until > clock_timestamp())
    LEFT JOIN node.input named
        ON named.key = CASE WHEN r.input_kind = 1 THEN sha256(r.input) END
    LEFT JOIN LATERAL (
        SELECT kind AS decision_kind, {_DECISION} FROM node.decision d
        WHERE request_id = r.id AND commitment = r.commitment ORDER BY d.id DESC LIMIT 1
    ) decision ON true
    LEFT JOIN LATERAL (
        SELECT (SELECT kind FROM node.tx_intent WHERE id = item.intent_id) AS kind,
               (SELECT hash FROM node.tx_attempt WHERE intent_id = item.intent_id
                ORDER BY created_at DESC LIMIT 1) AS hash,
               (SELECT count(*) FROM node.tx_item WHERE intent_id = item.intent_id) AS items
        FROM node.tx_item item
        WHERE item.request_id = r.id AND item.commitment = r.commitment AND item.live
    ) live ON true
"""  # noqa: S608 - constants


async def latest_requests(
    connection: Connection, names: Mapping[bytes, str], *, limit: int, before: int | None
) -> list[RequestView]:
    """Newest first; `before` pages on from an id."""
    rows = await connection.fetch(
        _SELECT + " WHERE r.id < $1 ORDER BY r.id DESC LIMIT $2",
        2**63 - 1 if before is None else before,
        limit,
    )
    return [_view(row, names) for row in rows]


async def one_request(
    connection: Connection, names: Mapping[bytes, str], request_id: int
) -> RequestView | None:
    row = await connection.fetchrow(_SELECT + " WHERE r.id = $1", request_id)
    return None if row is None else _view(row, names)


def state_of(row: Mapping[str, Any]) -> RequestState:
    """Where a request is, from what the tables hold of it."""
    if row["status"] == "fulfilled":
        return RequestState.SETTLED
    if row["status"] == "refunded":
        return RequestState.REFUNDED
    if row["live_kind"] == "post":
        return RequestState.POSTING
    if row["head_timestamp_s"] > row["deadline_s"]:
        return RequestState.EXPIRED
    if row["result_digest"] is not None:
        return RequestState.COMPUTED
    if row["refusal_reason"] is not None:
        return RequestState.REFUSED
    if row["lease_worker"] is not None:
        return RequestState.ASSIGNED
    return RequestState.PENDING if row["decision_kind"] is None else RequestState.WAITING


def _view(row: Any, names: Mapping[bytes, str]) -> RequestView:
    state = state_of(row)
    reason = row["refusal_reason"]
    if reason is None and state is RequestState.WAITING:
        reason = row["decision_reason"]
    until = row["settled_block"] or row["head_number"]
    settled = state in {RequestState.SETTLED, RequestState.REFUNDED}
    return RequestView(
        id=row["id"],
        commitment=_hex(row["commitment"]),
        requester=_hex(row["requester"]),
        model=names.get(row["model_id"], _hex(row["model_id"])),
        fee_wei=str(row["fee_wei"]),
        deadline_s=row["deadline_s"],
        submitted_at_s=row["created_at_s"],
        created_block=row["created_block"],
        created_tx=_hex(row["created_tx_hash"]),
        cancel_requested=row["cancel_requested"],
        state=state,
        reason=reason,
        sentence=None if reason is None else _sentence(row, Reason(reason), names),
        attempts=row["attempts"],
        worker=_optional_hex(row["worker"] or row["result_worker"] or row["lease_worker"]),
        waited_blocks=max(0, until - row["created_block"]),
        batch_size=_batch_size(row, state),
        tx_hash=_optional_hex(row["settled_tx_hash"] if settled else row["live_hash"]),
        settled_block=row["settled_block"],
        digest=_optional_hex(row["digest"] or row["result_digest"]),
        quorum=row["quorum"],
        answers=row["answers"],
        agreeing=row["agreeing"],
        callback=callback_of(row),
        check=_check_of(row) if state is RequestState.COMPUTED else None,
        callback_failure=_optional_hex(row["callback_failure"]),
        payment=row["payment"],
        disagreement=row["disagreement"],
        numbers={
            name: str(value)
            for name in NUMBER_NAMES
            if (value := row[f"decision_{name}"]) is not None
        },
    )


def _sentence(row: Mapping[str, Any], reason: Reason, names: Mapping[bytes, str]) -> str:
    """In words, with the numbers of the newest decision if that is what it decided."""
    if reason is Reason.MODEL_UNKNOWN and is_private(row["input_head"] or b""):
        model = names.get(row["model_id"], _hex(row["model_id"]))
        key = _hex(row["input_head"][-KEY_BYTES:])
        return (
            f"Its input is encrypted to the key {key}, and no registered worker that holds this"
            f" key serves model {model}."
        )
    if row["decision_reason"] != reason:
        return explain(reason, Numbers())
    named = {name: row[f"decision_{name}"] for name in DECISION_COLUMNS}
    sentence = decision_of(named).sentence
    if reason is Reason.INPUT_AWAITED and row["input_trouble"] is not None:
        if row["input_trouble"] == NO_ROOM:
            sentence += f" It waits for room: {NO_ROOM}."
        else:
            sentence += f" Try {row['input_tries']} failed: {row['input_trouble']}."
    return sentence


def callback_of(row: Mapping[str, Any]) -> CallbackState | None:
    """Whether the contract that asked was called; None where nobody is to be."""
    if row["status"] != "fulfilled" or row["delivery"] != Delivery.CALLBACK:
        return None
    if row["callback_delivered_block"] is not None:
        return CallbackState.DELIVERED
    return CallbackState.FAILED if row["callback_failures"] else CallbackState.OWED


def _check_of(row: Mapping[str, Any]) -> CheckState | None:
    if row["check_undecided"] is None:
        return None
    return CheckState.UNDECIDED if row["check_undecided"] else CheckState.HELD


def _batch_size(row: Any, state: RequestState) -> int | None:
    if state is RequestState.SETTLED:
        return int(row["batch_size"])
    return int(row["live_items"]) if state is RequestState.POSTING else None


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def _optional_hex(value: bytes | None) -> str | None:
    return None if value is None else _hex(value)
