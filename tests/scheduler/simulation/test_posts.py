"""Posts in virtual time follow from the moment as those of the daemon do."""

from __future__ import annotations

from dataclasses import replace

from scheduler.simulation.leases import LeaseEnd, Verdict
from scheduler.simulation.posts import Posts, head_of
from tests.scheduler.simulation.worlds import world


def test_what_one_transaction_does_not_hold_goes_at_the_same_moment() -> None:
    drawn = world(requests=5, block_ms=12_000)
    one = replace(
        drawn,
        posting=replace(drawn.posting, max_results=2, delay_price_wei_per_s=10**15, lead_s=1.5),
    )
    posts, head = Posts(one), head_of(one, 1)
    for request in one.requests[:3]:
        asked = replace(request, deadline_s=request.deadline_s + 3_600, fee_wei=10**17)
        posts.add(LeaseEnd(asked, one.workers[0], 0, 12_000, Verdict.VALID))
    assert list(posts.decide(head, head.timestamp_s + 10.5)) == []
    assert len(list(posts.mine(2))) == 3
