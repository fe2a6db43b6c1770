"""The window against brute force on random trees of blocks."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.reorg.window import (
    Append,
    BlockLink,
    FillGap,
    Known,
    NeedParent,
    Replace,
    TooDeep,
    Window,
    linked_end,
    reconcile,
)
from indexer.types import Hash32


@dataclass
class Tree:
    """Block 0 is the root; every other hangs on an earlier one."""

    blocks: list[BlockLink] = field(default_factory=list)

    def chain_to(self, index: int) -> list[BlockLink]:
        by_hash = {block.hash: block for block in self.blocks}
        chain = [self.blocks[index]]
        while chain[-1].number > 0:
            chain.append(by_hash[chain[-1].parent_hash])
        return chain[::-1]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    tree = Tree([BlockLink(0, Hash32(bytes(32)), Hash32(b"\xff" * 32))])
    for index in range(1, draw(st.integers(2, 30))):
        near = draw(st.integers(max(0, index - 6), index - 1))
        parent = tree.blocks[near]
        block_hash = Hash32(index.to_bytes(32, "big"))
        tree.blocks.append(BlockLink(parent.number + 1, block_hash, parent.hash))
    return tree


def walk(window: Window, chain: list[BlockLink], keep_from: int) -> Window | None:
    """Follows the actions to the end, as the coordinator does; None where it is too deep."""
    branch = [chain[-1]]
    for _ in range(200):
        match reconcile(window, branch[-1]):
            case Known():
                return window
            case Append():
                ancestor = branch[-1].number - 1
                return window.extended(ancestor, branch[::-1], keep_from=keep_from)
            case Replace(ancestor=ancestor):
                return window.extended(ancestor, branch[::-1], keep_from=keep_from)
            case FillGap(first=first, last=last):
                branch += [chain[number] for number in range(last, first - 1, -1)]
            case NeedParent(number=number, hash=block_hash):
                assert chain[number].hash == block_hash, "asked for a block off the branch"
                branch.append(chain[number])
            case TooDeep(oldest=oldest):
                assert oldest == window.oldest
                return None
    raise AssertionError("it never ends")


@given(data=st.data())
def test_reconcile__random_heads_of_random_trees__window_is_the_head_s_chain(
    data: st.DataObject,
) -> None:
    tree = data.draw(trees())
    start = data.draw(st.integers(0, 3))
    width = data.draw(st.integers(1, 12))
    window = Window(start)
    for head in data.draw(st.lists(st.integers(0, len(tree.blocks) - 1), max_size=8)):
        chain = tree.chain_to(head)
        before = {number: window.hash_at(number) for number in range(40)}
        after = walk(window, chain, chain[-1].number - width)
        top = chain[-1].number
        remembered = [number for number in before if before[number] is not None]
        common = [n for n in remembered if n <= top and chain[n].hash == before[n]]
        if after is None:
            assert remembered
            assert not common, "a common ancestor was remembered"
            assert window.oldest is not None
            assert window.oldest > start
            continue
        if after is window:
            lagging = bool(remembered) and top < remembered[0]
            assert top < start or lagging or top in common
            continue
        assert after.tip == chain[-1]
        kept = [number for number in range(40) if after.hash_at(number) is not None]
        assert all(after.hash_at(number) == chain[number].hash for number in kept)
        assert kept == list(range(kept[0], top + 1))
        oldest_before = remembered[0] if remembered else start
        assert kept[0] == min(top, max(oldest_before, top - width))
        window = after


@given(data=st.data())
def test_reconcile__one_block_on_the_tip__is_appended(data: st.DataObject) -> None:
    chain = data.draw(trees().map(lambda tree: tree.chain_to(len(tree.blocks) - 1)))
    window = Window(0, chain[:-1])
    assert reconcile(window, chain[-1]) == Append()
    assert reconcile(Window(0, chain), chain[-1]) == Known()


def link(number: int, block_hash: int, parent: int) -> BlockLink:
    return BlockLink(
        number, Hash32(block_hash.to_bytes(32, "big")), Hash32(parent.to_bytes(32, "big"))
    )


def test_window__unlinked_blocks__refused() -> None:
    with pytest.raises(ValueError, match="does not follow"):
        Window(0, [link(1, 1, 0), link(2, 2, 9)])


def test_linked_end__blocks_with_a_gap__only_what_follows_it() -> None:
    blocks = [link(1, 1, 0), link(4, 4, 3), link(5, 5, 4), link(6, 6, 5)]
    assert linked_end(blocks) == blocks[1:]
    assert linked_end([]) == []
    assert linked_end(blocks[:1]) == blocks[:1]
