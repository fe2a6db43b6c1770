"""Packed items: the inverse of one another for every value, and loud about what does not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.protocol.result import ITEM_BYTES, ResultItem, digest_of, pack_items, unpack_items

ITEMS = st.builds(
    ResultItem,
    request_id=st.integers(0, 2**64 - 1),
    commitment=st.binary(min_size=20, max_size=20),
    digest=st.binary(min_size=32, max_size=32),
)


@given(st.lists(ITEMS, max_size=20))
def test_unpacking_gives_back_what_was_packed(items: list[ResultItem]) -> None:
    packed = pack_items(items)

    assert len(packed) == ITEM_BYTES * len(items)
    assert unpack_items(packed) == tuple(items)


@given(st.binary(max_size=500).filter(lambda raw: len(raw) % ITEM_BYTES == 0))
def test_packing_gives_back_what_was_unpacked(raw: bytes) -> None:
    assert pack_items(unpack_items(raw)) == raw


@pytest.mark.parametrize("length", [1, ITEM_BYTES - 1, ITEM_BYTES + 1])
def test_a_part_of_an_item_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="whole number"):
        unpack_items(bytes(length))


@pytest.mark.parametrize(
    "item",
    [
        ResultItem(-1, bytes(20), bytes(32)),
        ResultItem(2**64, bytes(20), bytes(32)),
        ResultItem(1, bytes(19), bytes(32)),
        ResultItem(1, bytes(20), bytes(33)),
    ],
)
def test_what_does_not_fit_is_refused(item: ResultItem) -> None:
    with pytest.raises(ValueError, match=r"fit|bytes"):
        pack_items([item])


def test_the_digest_is_keccak256_of_the_bytes() -> None:
    assert digest_of(b"").hex() == (
        "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    )
