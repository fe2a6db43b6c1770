"""Each reason for which a request is turned away, with its sentence and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from scheduler.cover import Cover
from scheduler.decision import Decision
from scheduler.model import GasModel, Moment, Reason, Rules
from scheduler.plan import plan
from scheduler.planner import KEPT
from scheduler.policies import OrderView
from scheduler.policies.orders import Fifo
from tests.scheduler.make import (
    ETH,
    GWEI,
    NOW_S,
    block,
    model,
    request,
    service,
    snapshot,
    worker,
    worker_id,
)


@dataclass(frozen=True, slots=True)
class _Looking(Fifo):
    """Keeps what it was shown."""

    seen: list[OrderView] = field(default_factory=list)

    def scores(self, view: OrderView) -> Any:
        self.seen.append(view)
        return -view.submitted_at_s


def _admitted(one, *workers, **changes) -> OrderView:
    """What a policy sees of the one request."""
    looking = _Looking()
    plan(snapshot((one,), workers or (worker(),), **changes), looking)
    (view,) = looking.seen
    assert len(view) == 1
    return view


def _turned_away(one, *workers, **changes) -> Decision:
    result = plan(snapshot((one,), workers or (worker(),), **changes))
    (decision,) = (*result.kept, *result.refused)
    assert decision.key == one.key
    assert decision.worker is None
    assert decision.score is None
    return decision


def _need_wei(moment: Moment, workers: int = 1, **how: Any) -> int:
    return Cover(moment, workers).need_wei(0, 0, **how)


def test_bad_input_says_what():
    decision = _turned_away(request(bad_input="the input is not UTF-8 at byte 3"))
    assert decision.reason is Reason.BAD_INPUT
    assert "not UTF-8 at byte 3" in decision.sentence


def test_an_input_that_is_not_here_is_waited_for_where_all_else_is_well():
    decision = _turned_away(request(input_awaited=True))
    assert decision.reason is Reason.INPUT_AWAITED
    assert Reason.INPUT_AWAITED in KEPT
    served_by_nobody = request(input_awaited=True, model=model(9))
    assert _turned_away(served_by_nobody).reason is Reason.MODEL_UNKNOWN
    too_cheap = request(input_awaited=True, fee_wei=1)
    assert _turned_away(too_cheap).reason is Reason.GAS_TOO_DEAR_NOW


def test_an_input_that_can_never_be_had_says_why():
    decision = _turned_away(request(input_lost="the answer was HTTP 404", input_awaited=True))
    assert decision.reason is Reason.INPUT_UNAVAILABLE
    assert Reason.INPUT_UNAVAILABLE not in KEPT
    assert decision.sentence == (
        "The input that its URI names cannot be had: the answer was HTTP 404."
    )


def test_unsupported_says_what():
    decision = _turned_away(request(unsupported="it asks for a quorum of 3", deadline_s=0))
    assert decision.reason is Reason.UNSUPPORTED
    assert decision.sentence == "This node cannot serve it: it asks for a quorum of 3."


def test_expired_by_the_block_not_by_the_wall_clock():
    one = request(deadline_s=NOW_S - 12, model=model(9))
    decision = _turned_away(one, now_s=float(NOW_S - 100))
    assert decision.reason is Reason.EXPIRED
    assert decision.sentence == (f"Its deadline {NOW_S - 12} passed 12 s before the head's time.")
    assert decision.numbers.now_s == NOW_S


def test_at_its_deadline_it_is_not_expired_but_infeasible():
    assert _turned_away(request(deadline_s=NOW_S)).reason is Reason.DEADLINE_INFEASIBLE


def test_a_wall_clock_ahead_of_the_chain_does_not_expire_it():
    decision = _turned_away(request(deadline_s=NOW_S + 2), now_s=NOW_S + 5.0)
    assert decision.reason is Reason.DEADLINE_INFEASIBLE


def test_model_unknown_only_if_no_registered_worker_serves_it():
    decision = _turned_away(request(model=model(0xAB << 248)))
    assert decision.reason is Reason.MODEL_UNKNOWN
    assert (
        decision.sentence
        == "No registered worker serves model 0xab" + "00" * 31 + " (1 worker registered)."
    )
    _admitted(request(), worker(available=False))


def test_memory_too_large_for_the_workers_of_its_model():
    other = worker(2, memory_mb=99_000, service={model(2): service()})
    decision = _turned_away(request(memory_mb=8_001), worker(memory_mb=8_000), other)
    assert decision.reason is Reason.MEMORY_TOO_LARGE
    assert "asks for 8001 MB" in decision.sentence
    assert "has 8000 MB" in decision.sentence
    _admitted(request(memory_mb=8_000), worker(memory_mb=8_000))


def test_attempts_exhausted():
    decision = _turned_away(request(attempts=3))
    assert decision.reason is Reason.ATTEMPTS_EXHAUSTED
    assert decision.sentence == "It was tried 3 times without a result; the limit is 3."
    _admitted(request(attempts=2))


def test_deadline_infeasible_at_the_best_p90_and_inclusion():
    slow, fast = worker(1), worker(2, available=False, service={model(): service(750, 1_500)})
    decision = _turned_away(request(deadline_s=NOW_S + 4), slow, fast)
    assert decision.reason is Reason.DEADLINE_INFEASIBLE
    assert decision.sentence == (
        "Its deadline is 4.0 s away; the fastest worker that serves it needs 1.5 s (p90), "
        "and the post 3.0 s more."
    )
    assert decision.numbers.p90_ms == 1_500


def test_it_is_kept_while_a_registered_worker_could_make_it():
    slow = worker(1, service={model(): service(4_000, 5_000)})
    fast = worker(2, available=False, service={model(): service(750, 1_500)})
    one = request(deadline_s=NOW_S + 5)
    assert _admitted(one, slow, fast).slack_s == pytest.approx([0.5])
    (kept,) = plan(snapshot((one,), (slow, fast))).kept
    assert kept.reason is Reason.NO_AVAILABLE_WORKER
    assert "none can finish within the 2.0 s left" in kept.sentence


def test_the_clock_is_the_later_of_wall_and_chain():
    one = request(deadline_s=NOW_S + 20)
    assert _admitted(one, now_s=NOW_S - 50.0).budget_ms == [17_000]
    assert _admitted(one, now_s=NOW_S + 5.0).budget_ms == [12_000]


def test_gas_too_dear_is_kept_with_the_numbers():
    # (50,000 + 1 * 10,000 + 8 * 5,000) / 8 gas * 10 gwei * 1.5 = 187,500 gwei
    round_ = snapshot((), (worker(),), block=block(base_fee_wei=9 * GWEI), rules=_tip(GWEI))
    assert _need_wei(round_.moment, batchable=True) == 187_500 * GWEI
    one = request(fee_wei=187_500 * GWEI - 1)
    decision = _turned_away(one, block=round_.block, rules=round_.rules)
    assert decision.reason is Reason.GAS_TOO_DEAR_NOW
    assert decision.sentence == (
        "Serving it earns 0.000187499999999999 ETH of its fee of 0.000187499999999999 ETH; at "
        "10000000000 wei per gas it would have to earn 0.0001875 ETH (1.5 times its share of "
        "the post's gas)."
    )
    assert decision in plan(replace(round_, requests=(one,))).kept
    enough = replace(one, fee_wei=187_500 * GWEI)
    _admitted(enough, block=round_.block, rules=round_.rules)


def test_a_share_of_gas_is_rounded_up():
    tiny = snapshot((), (worker(),), gas=GasModel(1, 0, 0), block=block(base_fee_wei=1))
    assert _need_wei(tiny.moment, batchable=True) == 1


def _tip(priority_fee_wei: int) -> Rules:
    return Rules(expected_batch=8, poster_bps=1_000, priority_fee_wei=priority_fee_wei)


def test_only_the_posters_share_counts_on_the_workers_of_others():
    need_wei = _need_wei(snapshot((), ()).moment, batchable=True)
    foreign = worker(owned=False)
    assert _turned_away(request(fee_wei=need_wei * 10 - 1), foreign).reason is (
        Reason.GAS_TOO_DEAR_NOW
    )
    (assigned,) = plan(snapshot((request(fee_wei=need_wei * 10),), (foreign,))).assigned
    assert assigned.numbers.owned_only is False


def test_a_fee_that_pays_only_on_own_workers_goes_to_no_other():
    own = worker(1, in_flight=1)
    foreign = worker(2, owned=False)
    one = request(fee_wei=_need_wei(snapshot((), ()).moment, 2, batchable=True))
    assert _admitted(one, own, foreign).revenue_wei == [float(one.fee_wei)]
    (kept,) = plan(snapshot((one,), (own, foreign))).kept
    assert kept.reason is Reason.NO_FREE_SLOT
    assert "operator's own" in kept.sentence
    (assigned,) = plan(snapshot((one,), (worker(1), foreign))).assigned
    assert assigned.worker == worker_id(1)


def test_a_result_that_travels_alone_bears_the_whole_post():
    round_ = snapshot((), (worker(),))
    assert _need_wei(round_.moment, batchable=False) == 65_000 * GWEI * 3 // 2
    one = request(fee_wei=50_000 * GWEI)
    _admitted(one)
    assert _turned_away(replace(one, batchable=False)).reason is Reason.GAS_TOO_DEAR_NOW


def test_money_stays_exact_beyond_floats():
    whale = request(fee_wei=2**256 - 1)
    rules = Rules(poster_bps=9_999, expected_batch=8)
    (assigned,) = plan(snapshot((whale,), (worker(owned=False),), rules=rules)).assigned
    assert assigned.numbers.revenue_wei == (2**256 - 1) * 9_999 // 10_000
    assert assigned.numbers.fee_wei == 2**256 - 1
    assert ETH == 10**18
