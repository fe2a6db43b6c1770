"""The intent of a post, and the most that its gas may cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from inferd.settlement.batch import DecisionsToAnchor, Group, StoredResult
from inferd.settlement.chain import Sight
from inferd.settlement.earning import Earning
from inferd.settlement.fees import Fees, within
from inferd.settlement.launch import Call, fresh_slots, gas_limit
from inferd.settlement.records import Draft
from scheduler.gas import calldata_floor
from scheduler.model import GasModel
from scheduler.posting_model import PostingDecision


def drafted(
    decision: PostingDecision,
    chosen: Sequence[StoredResult],
    groups: Sequence[Group],
    anchored: DecisionsToAnchor,
    call: Call,
    gas: GasModel,
    estimate: int,
    cap: int,
    fees: Fees,
    sight: Sight,
) -> tuple[Draft, Fees]:
    """`estimate` is the node's, `cap` the most gas a transaction may have; the fees are bounded by
    what the post earns."""
    earning = Earning(
        decision.revenue_wei,
        estimate,
        # At a higher price the calls of contracts that follow from it cost more, too.
        later_gas=sum(result.ready.later_gas for result in chosen),
        later_bytes=sum(result.later_bytes for result in chosen),
        later_calls=sum(result.later_bytes > 0 for result in chosen),
    )
    break_even_wei = earning.break_even_wei(len(call.calldata), sight.data)
    data_wei = sight.data.of(len(call.calldata), estimate)
    cost_wei = estimate * (sight.next_base_fee_wei + fees.priority_fee_wei) + data_wei
    fees = within(fees, break_even_wei)
    # Signatures that there are more of than was reckoned with, as some did not sign for all.
    signed = sum(len(group.workers) for group in groups)
    unsigned = signed - sum(map(len, {result.workers for result in chosen}))
    draft = Draft(
        kind="post",
        target=call.target,
        calldata=call.calldata,
        gas_limit=gas_limit(
            estimate,
            decision.gas_limit_estimate + gas.per_group_gas * unsigned,
            cap,
            slots=fresh_slots(signed + 1, (r.item.request_id for r in chosen)),
            floor=calldata_floor(call.calldata),
        ),
        items=tuple(result.outbox_item() for result in chosen),
        reason=decision.reason.value,
        inputs={
            **decision.inputs,
            "estimated_gas": estimate,
            "cost_wei": cost_wei,
            "data_fee_wei": data_wei,
            "revenue_wei": decision.revenue_wei,
            "later_cost_wei": decision.later_cost_wei,
            "later_gas": earning.later_gas,
            "later_bytes": earning.later_bytes,
            "later_calls": earning.later_calls,
            "break_even_wei": break_even_wei,
            "fee_cap_wei": fees.max_fee_wei,
            "next_base_fee_wei": sight.next_base_fee_wei,
            "groups": len(groups),
        },
        decisions_root=anchored.root if anchored.decisions else None,
        decisions=anchored.decisions,
    )
    return draft, fees
