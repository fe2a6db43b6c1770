"""No result settles a request twice, wherever its bit stands in the bitmap's word."""

from __future__ import annotations

import pytest

from tests.contracts import cast
from tests.contracts.arena import Arena, signed_by
from tests.contracts.machine.base import DIGESTS
from tests.contracts.model.outcome import Tx
from tests.contracts.model.values import Delivery, Item, Params

_COUNT = 20


@pytest.mark.parametrize("delivery", [Delivery.EVENT, Delivery.STORED])
@pytest.mark.parametrize("next_id", [238, 246, 256, 506])
def test_a_word_full_of_results_posted_twice(
    arena: Arena, next_id: int, delivery: Delivery
) -> None:
    """A settled request's word may stay, and its bit may be one that means something there."""
    arena.start(0, next_id)
    model, now = arena.model, arena.model.now
    params = Params(cast.MODELS[0], 1, now + 100, 0, 0, 1, True, delivery, 0, b"ask")
    fees = [cast.GWEI] * _COUNT
    asked = Tx(cast.ALICE, sum(fees), now + 1)
    assert arena.act("requests", "submitMany", ([params] * _COUNT, fees), asked)

    for again, digest in enumerate(DIGESTS[:2]):
        items = [Item(r.id, r.commitment, digest) for r in model.requests.all.values()]
        packed = b"".join(item.packed() for item in items)
        group = (packed, [signed_by(model, cast.SIGNERS[0], packed)])
        post = ([group], bytes(32))
        assert arena.act("results", "post", post, Tx(cast.POSTER, 0, now + 2 + again))

    assert all(r.digest == DIGESTS[0] for r in model.requests.all.values())
    arena.compare_replay()
