"""The window over long histories: any order of growth, reorganisations, lagging heads, ranges and
restarts, against a table of rows as the store keeps it and against the tree itself."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from indexer.reorg.window import BlockLink, Known, Window, linked_end, reconcile
from indexer.types import Hash32
from tests.indexer.test_window import Tree, walk


class Histories(RuleBasedStateMachine):
    """A tree of blocks that grows, a window that follows some head of it, and the rows."""

    @initialize(start=st.integers(0, 4), width=st.integers(0, 10))
    def begin(self, start: int, width: int) -> None:
        self.tree = Tree([BlockLink(0, Hash32(bytes(32)), Hash32(b"\xff" * 32))])
        self.start, self.width = start, width
        self.window = Window(start)
        self.rows: dict[int, BlockLink] = {}
        self.chain: list[BlockLink] = []
        """That of the tip, as the tree has it."""
        self.final = -1

    def _grow(self, parent: BlockLink) -> None:
        block_hash = Hash32(len(self.tree.blocks).to_bytes(32, "big"))
        self.tree.blocks.append(BlockLink(parent.number + 1, block_hash, parent.hash))

    @rule(back=st.integers(0, 15), blocks=st.integers(1, 8))
    def branch_off(self, back: int, blocks: int) -> None:
        """Some of the newest blocks gets children, whatever stands beside them."""
        self._grow(self.tree.blocks[max(0, len(self.tree.blocks) - 1 - back)])
        for _ in range(blocks - 1):
            self._grow(self.tree.blocks[-1])

    @rule(back=st.integers(0, 25), finality=st.integers(0, 6))
    def look_at_a_head(self, back: int, finality: int) -> None:
        """Of any branch: the newest, an older one, one that lags, one that was left long ago."""
        self._follow(max(0, len(self.tree.blocks) - 1 - back), finality)

    @rule(backs=st.lists(st.integers(0, 25), min_size=2, max_size=4), finality=st.integers(0, 6))
    def change_its_mind(self, backs: list[int], finality: int) -> None:
        """One head after the other with nothing between."""
        for back in backs:
            self._follow(max(0, len(self.tree.blocks) - 1 - back), finality)

    def _follow(self, index: int, finality: int) -> None:
        chain = self.tree.chain_to(index)
        head = chain[-1]
        final = head.number - finality
        before = self.window
        replaces = before.tip is not None and head.number < before.next_number
        known = final if replaces else max(final, self.final)
        keep_from = min(known, head.number) - self.width
        after = walk(before, chain, keep_from)
        if after is None:
            assert before.oldest is not None
            assert before.oldest > self.start, "all there is may be replaced"
            assert self._fork_point(chain) < before.oldest, "a shared block is remembered"
            assert head.number >= before.oldest, "it only lags"
            return
        if after is before:
            return
        assert after.tip == head
        self._write(self._fork_point(chain), chain, keep_from)
        self.window, self.chain, self.final = after, chain, known

    def _fork_point(self, chain: list[BlockLink]) -> int:
        """Number of the newest block that is on both chains; one below the start where none is."""
        shared = [
            ours.number for ours, theirs in zip(self.chain, chain, strict=False) if ours == theirs
        ]
        return max([self.start - 1, *shared])

    def _write(self, ancestor: int, blocks: list[BlockLink], keep_from: int) -> None:
        """As the store does: delete above, insert, prune."""
        above = [block for block in blocks if block.number > ancestor]
        kept = {number: row for number, row in self.rows.items() if number <= ancestor}
        kept |= {block.number: block for block in above if block.number >= self.start}
        self.rows = {number: row for number, row in kept.items() if number >= keep_from}

    @rule(back=st.integers(0, 10), finality=st.integers(0, 4))
    def read_a_range(self, back: int, finality: int) -> None:
        """Final blocks of the tip's own chain, of which only the newest headers are kept."""
        chain = self.tree.chain_to(max(0, len(self.tree.blocks) - 1 - back))
        last = chain[-1].number - finality
        if last < self.window.next_number:
            return
        if self.window.tip is not None and chain[self.window.tip.number] != self.window.tip:
            return
        keep_from = last - self.width
        first = self.window.next_number
        headers = [chain[n] for n in range(first, last + 1) if n >= keep_from or n == last]
        self.window = self.window.extended(headers[-1].number, headers, keep_from=keep_from)
        self._write(first - 1, headers, keep_from)
        self.chain, self.final = chain[: last + 1], last

    @rule()
    def restart(self) -> None:
        links = [self.rows[number] for number in sorted(self.rows)]
        self.window = Window(self.start, linked_end(links))

    @invariant()
    def window_is_the_end_of_the_tip_s_chain(self) -> None:
        tip = self.window.tip
        if tip is None:
            assert not self.rows
            return
        oldest = self.window.oldest
        assert oldest is not None
        assert len(self.window) == tip.number - oldest + 1
        for number in range(oldest, tip.number + 1):
            assert self.window.hash_at(number) == self.chain[number].hash
        assert self.window.hash_at(oldest - 1) is None
        assert self.window.hash_at(tip.number + 1) is None

    @invariant()
    def rows_say_the_same_as_the_window(self) -> None:
        """So a restart at any moment changes nothing."""
        links = linked_end([self.rows[number] for number in sorted(self.rows)])
        assert [(link.number, link.hash) for link in links] == [
            (number, self.window.hash_at(number))
            for number in range(self.window.next_number - len(self.window), self.window.next_number)
        ]

    @invariant()
    def all_that_is_indexed_is_known(self) -> None:
        for block in self.chain[self.start :]:
            if self.window.hash_at(block.number) is not None:
                assert reconcile(self.window, block) == Known()


TestHistories = Histories.TestCase
