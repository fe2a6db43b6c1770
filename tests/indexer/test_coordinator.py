"""Branches out of a node that changes its mind between any two answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.errors import ReorgTooDeep
from indexer.reorg.coordinator import Branch, find_branch
from indexer.reorg.window import BlockLink, Window
from indexer.rpc import Header, RawLog, RpcError, RpcMalformed
from indexer.types import Address, Hash32, Wei
from tests.indexer.test_window import Tree, trees

OURS = Address(b"\1" * 20)
HASHES = [Hash32(b"\xff" * 32), *(Hash32(bytes([number]) * 32) for number in range(20))]


@dataclass
class FickleNode:
    """Its chain is that of the head it holds now; after each answer it may hold another. Every
    block has one log of ours.

    With `forgets` it no longer knows blocks off its chain, as nodes do after a while.
    """

    tree: Tree
    head: int
    heads_to_come: list[int]
    forgets: bool
    answers: int = 0
    told: set[bytes] = field(default_factory=set)
    endpoint: str = "http://fickle"

    def now(self) -> Header:
        return self._header(self.tree.blocks[self.head])

    async def header(self, block: Hash32) -> Header | None:
        known = self._chain() if self.forgets else self.tree.blocks
        found = [link for link in known if link.hash == block]
        self._next()
        return self._header(found[0]) if found else None

    async def headers(self, numbers: Iterable[int]) -> list[Header | None]:
        by_number = {link.number: link for link in self._chain()}
        found = [by_number.get(number) for number in numbers]
        self._next()
        return [None if link is None else self._header(link) for link in found]

    async def logs_by_hash(self, block_hash: Hash32, _: Iterable[Address]) -> list[RawLog]:
        """One log in every block that the node knows; none, and no error, for another."""
        known = self._chain() if self.forgets else self.tree.blocks
        there = [link for link in known if link.hash == block_hash]
        self._next()
        return [
            RawLog(OURS, (), link.hash, link.number, link.hash, link.hash, 0, 0) for link in there
        ]

    def elsewhere(self) -> None:
        """It is alone."""

    async def block_receipts(self, block_hash: Hash32) -> list[tuple[Hash32, list[RawLog]]] | None:
        found = await self.receipt_logs(block_hash)
        return None if found is None else [found]

    async def transaction_hashes(self, block_hash: Hash32) -> list[Hash32] | None:
        """A block's one transaction has its hash."""
        return None if await self.header(block_hash) is None else [block_hash]

    async def receipt_logs(self, tx_hash: Hash32) -> tuple[Hash32, list[RawLog]] | None:
        logs = await FickleNode.logs_by_hash(self, tx_hash, ())
        return (tx_hash, logs) if logs else None

    def _chain(self) -> list[BlockLink]:
        return self.tree.chain_to(self.head)

    def _next(self) -> None:
        self.answers += 1
        if self.heads_to_come:
            self.head = self.heads_to_come.pop(0)

    def _header(self, link: BlockLink) -> Header:
        return Header(
            link.number, link.hash, link.parent_hash, link.number, Wei(0), 0, 0, b"\xff" * 256
        )


def look(node: FickleNode, window: Window) -> Branch | None:
    """A step of the loop; None where nothing is new or it has to be begun anew."""
    try:
        return asyncio.run(find_branch(node, window, node.now(), [OURS]))  # type: ignore[arg-type]
    except RpcMalformed:
        return None


@given(data=st.data())
def test_branch__whatever_the_node_does_meanwhile__is_whole_and_of_one_chain(
    data: st.DataObject,
) -> None:
    tree = data.draw(trees())
    heads = st.integers(0, len(tree.blocks) - 1)
    start = data.draw(st.integers(0, 3))
    width = data.draw(st.integers(1, 12))
    window = Window(start)
    indexed: list[BlockLink] = []
    for _ in range(data.draw(st.integers(1, 4))):
        node = FickleNode(
            tree, data.draw(heads), data.draw(st.lists(heads, max_size=6)), data.draw(st.booleans())
        )
        try:
            branch = look(node, window)
        except ReorgTooDeep:
            assert window.oldest is not None
            assert window.oldest > start
            continue
        if branch is None:
            continue
        assert_whole(branch, tree, window, start)
        chain = tree.chain_to(tree.blocks.index(_link(branch.headers[-1])))
        indexed = chain
        window = window.extended(
            branch.ancestor, branch.headers, keep_from=branch.headers[-1].number - width
        )
        assert window.tip is not None
        assert window.tip.hash == indexed[-1].hash

    calm = FickleNode(tree, data.draw(heads), [], forgets=False)
    try:
        last = look(calm, window)
    except ReorgTooDeep:
        return
    if last is not None:
        assert_whole(last, tree, window, start)
        assert last.headers[-1].hash == calm.now().hash


def assert_whole(branch: Branch, tree: Tree, window: Window, start: int) -> None:
    """Linked, hung on a block of ours, without a gap, and every block with its own logs."""
    assert all(
        above.parent_hash == below.hash and above.number == below.number + 1
        for below, above in pairwise(branch.headers)
    )
    lowest = branch.headers[0]
    assert lowest.number == branch.ancestor + 1
    if branch.ancestor >= start:
        assert window.hash_at(branch.ancestor) == lowest.parent_hash
    else:
        assert branch.ancestor == start - 1
    assert all(_link(header) in tree.blocks for header in branch.headers)
    for header, logs in zip(branch.headers, branch.logs, strict=True):
        assert [log.data for log in logs] == [header.hash], "a block without its logs"


def _link(header: Header) -> BlockLink:
    return BlockLink(header.number, header.hash, header.parent_hash)


def test_logs__none_from_a_node_that_lost_the_block_twice__nothing_is_believed() -> None:
    """The shortest way in which two looks at the node agree, and both are wrong."""
    chain = [BlockLink(0, Hash32(bytes(32)), Hash32(b"\xff" * 32))]
    chain.append(BlockLink(1, Hash32(b"\1" * 32), chain[0].hash))
    for forgotten in ([0, 0, 1, 0], [0, 0, 0], [1, 0, 1]):
        node = FickleNode(Tree(chain), 1, forgotten, forgets=True)
        branch = look(node, Window(0))
        if branch is not None:
            assert_whole(branch, node.tree, Window(0), 0)


async def test_logs__none_and_no_method_for_a_blocks_receipts__found_one_by_one() -> None:
    class Old(FickleNode):
        async def logs_by_hash(self, block_hash: Hash32, _: Iterable[Address]) -> list[RawLog]:
            return []

        async def block_receipts(
            self, block_hash: Hash32
        ) -> list[tuple[Hash32, list[RawLog]]] | None:
            raise RpcError(-32601, "the method does not exist")

    chain = [BlockLink(0, Hash32(bytes(32)), Hash32(b"\xff" * 32))]
    node = Old(Tree(chain), 0, [], forgets=False)
    branch = await find_branch(node, Window(0), node.now(), [OURS])  # type: ignore[arg-type]
    assert branch is not None
    assert_whole(branch, node.tree, Window(0), 0)


async def test_stopped__in_the_moment_of_a_failure__stops() -> None:
    """A lost cancellation would leave a loop running that was told to end."""

    class Failing(FickleNode):
        async def logs_by_hash(self, block_hash: Hash32, _: Iterable[Address]) -> list[RawLog]:
            task.cancel()
            raise RpcMalformed("no", help_text="")

    chain = [BlockLink(0, Hash32(bytes(32)), Hash32(b"\xff" * 32))]
    node = Failing(Tree(chain), 0, [], forgets=False)
    branch = find_branch(node, Window(0), node.now(), [OURS])  # type: ignore[arg-type]
    task = asyncio.create_task(branch)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("number", [0, 2, 6, 8, 9, 20])
async def test_parent_with_another_number_than_the_one_below__not_believed(number: int) -> None:
    """It would be walked along for ever, or taken for a block that is known."""

    class Odd(FickleNode):
        async def header(self, block: Hash32) -> Header | None:
            await asyncio.sleep(0)
            return self._header(BlockLink(number, block, block))

    chain = [BlockLink(at, Hash32(bytes([at]) * 32), HASHES[at]) for at in range(9)]
    head = BlockLink(8, Hash32(b"\xaa" * 32), Hash32(b"\xbb" * 32))
    node = Odd(Tree([*chain, head]), 9, [], forgets=False)
    async with asyncio.timeout(5):
        with pytest.raises(RpcMalformed, match="the parent of its block"):
            await find_branch(node, Window(1, chain[1:]), node.now(), [OURS])  # type: ignore[arg-type]


@pytest.mark.parametrize("others", ["ours", "theirs", "away", "none"])
async def test_too_deep__only_where_no_other_endpoint_still_has_our_blocks(others: str) -> None:
    """An endpoint on a dead branch must not stop the index."""
    chain = [BlockLink(at, Hash32(bytes([at]) * 32), HASHES[at]) for at in range(9)]
    branch = chain[:2]
    for number in range(2, 9):
        branch.append(BlockLink(number, Hash32(bytes([100 + number]) * 32), branch[-1].hash))
    passed_over: list[str] = []

    class Away(FickleNode):
        async def headers(self, numbers: Iterable[int]) -> list[Header | None]:
            raise RpcMalformed("no", help_text="")

    class OneOfTwo(FickleNode):
        def elsewhere(self) -> FickleNode | None:  # type: ignore[override]
            if others == "none":
                return None
            tree = Tree(chain if others == "ours" else branch)
            kind = Away if others == "away" else FickleNode
            return kind(tree, 8, [], forgets=True)

        def pass_over(self, why: str) -> bool:
            passed_over.append(why)
            return True

    node = OneOfTwo(Tree(branch), 8, [], forgets=False)
    expected = RpcMalformed if others == "ours" else ReorgTooDeep
    with pytest.raises(expected, match="http://fickle"):
        await find_branch(node, Window(0, chain[4:]), node.now(), [OURS])  # type: ignore[arg-type]
    assert len(passed_over) == (others == "ours")
