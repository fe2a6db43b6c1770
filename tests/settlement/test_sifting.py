"""Those that spoil a batch are found in few calls, and none is held back for another's fault."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.errors import RpcUnreachable
from indexer.rpc import RpcError
from inferd.settlement.sifting import Sifted, Sifter
from tests.settlement.scripted import unreachable

DEAD, REVERTS, FAILS, ALIVE = "dead", "reverts", "fails", "alive"
KINDS = st.lists(st.sampled_from([DEAD, REVERTS, FAILS, *[ALIVE] * 5]), max_size=60)


class Node:
    """Counts as the contracts do: a sum, unless one item reverts the call or the node fails."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.kinds = kinds
        self.calls = self.controls = 0
        self.away_after: int | None = None

    async def ask(self, items: Sequence[int]) -> int | None:
        self.calls += 1
        self._may_be_away()
        found = [self.kinds[item] for item in items]
        if FAILS in found:
            raise RpcError(-32603, "internal error: index out of range")
        return None if REVERTS in found else found.count(ALIVE)

    async def control(self) -> int:
        self.controls += 1
        self._may_be_away()
        return 0

    def _may_be_away(self) -> None:
        if self.away_after is not None and self.calls > self.away_after:
            raise unreachable()

    async def sift(self) -> Sifted[int]:
        return await Sifter(self.ask, self.control).sift(range(len(self.kinds)))


@given(KINDS)
async def test_just_those_are_found(kinds: list[str]) -> None:
    node = Node(kinds)
    found = await node.sift()
    assert sorted(found.dead) == [n for n, kind in enumerate(kinds) if kind in (DEAD, REVERTS)]
    assert [item for item, _ in found.failing] == [n for n, k in enumerate(kinds) if k == FAILS]
    assert node.calls <= 2 * len(kinds)
    assert found.any == bool(set(kinds) - {ALIVE})


@given(st.integers(1, 300), st.data())
async def test_the_dead_are_found_in_calls_as_their_number_times_a_logarithm(
    size: int, data: Any
) -> None:
    dead = data.draw(st.sets(st.integers(0, size - 1), max_size=min(8, size)))
    node = Node([DEAD if n in dead else ALIVE for n in range(size)])
    assert set((await node.sift()).dead) == dead
    assert node.calls <= 1 + len(dead) * ceil(log2(size)) if size > 1 else 1
    assert node.controls == 0


@pytest.mark.parametrize("kind", [DEAD, ALIVE])
async def test_where_all_are_alike_one_call_tells(kind: str) -> None:
    node = Node([kind] * 240)
    assert len((await node.sift()).dead) == (240 if kind is DEAD else 0)
    assert node.calls == 1


@given(KINDS.filter(lambda kinds: FAILS in kinds), st.integers(0, 10))
async def test_no_item_is_to_blame_for_an_endpoint_that_is_away(
    kinds: list[str], after: int
) -> None:
    node = Node(kinds)
    whole = Node(kinds)
    await whole.sift()
    node.away_after = after
    if whole.calls > after:
        with pytest.raises(RpcUnreachable):
            await node.sift()
