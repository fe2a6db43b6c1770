"""Workers as several dispatchers know them together."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.workers.standings import Offered, Presence, merged

_MODELS = st.dictionaries(
    st.sampled_from([ModelId(bytes([n]) * 32) for n in range(3)]),
    st.builds(
        Offered,
        name=st.sampled_from(["a", "b"]),
        prior_ms=st.sampled_from([1.0, 50.0, 900.0]),
        loaded=st.booleans(),
        load_ms=st.sampled_from([0.0, 10.0]),
    ),
    max_size=3,
)
_PRESENCE = st.builds(
    Presence,
    address=st.sampled_from([Address(bytes([n]) * 20) for n in range(3)]),
    slots=st.integers(0, 8),
    most_at_once=st.integers(0, 8),
    in_flight=st.integers(0, 8),
    memory_mb=st.integers(0, 8),
    available=st.booleans(),
    models=_MODELS,
)
_POOLS = st.lists(
    st.lists(_PRESENCE, max_size=3, unique_by=lambda presence: presence.address), max_size=4
)


@given(_POOLS, st.randoms(use_true_random=False))
def test_the_order_of_dispatchers_does_not_matter(
    pools: list[list[Presence]], dice: random.Random
) -> None:
    other = [dice.sample(pool, len(pool)) for pool in dice.sample(pools, len(pools))]
    assert merged(other) == merged(pools)


@given(_POOLS, _POOLS)
def test_together_is_together_whatever_was_joined_first(
    some: list[list[Presence]], others: list[list[Presence]]
) -> None:
    assert merged([merged(some), merged(others)]) == merged([*some, *others])


@given(_POOLS)
def test_a_worker_is_what_the_best_of_its_dispatchers_can_do_with_it(
    pools: list[list[Presence]],
) -> None:
    everywhere = [presence for pool in pools for presence in pool]
    found = merged(pools)
    assert {one.address for one in found} == {one.address for one in everywhere}
    for one in found:
        known = [each for each in everywhere if each.address == one.address]
        usable = [each for each in known if each.available]
        assert one.available is bool(usable)
        assert one.in_flight == sum(each.in_flight for each in known)
        best = usable or known
        assert one.most_at_once == max(each.most_at_once for each in best)
        assert one.slots == max(each.slots for each in best)
        assert set(one.models) == {model for each in best for model in each.models}
        for model, offer in one.models.items():
            offers = [each.models[model] for each in best if model in each.models]
            assert offer.loaded is any(each.loaded for each in offers)
            assert offer.prior_ms == min(each.prior_ms for each in offers)
