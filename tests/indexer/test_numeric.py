"""Whole numbers in PostgreSQL's binary form: the server and we mean the same."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from indexer.database import Connection
from indexer.numeric import decode_numeric, encode_numeric

EDGES = (
    *(0, 1, -1, 9_999, 10_000, 10_001, 10**15, 10**16 - 1, 10**16, 10**18, 12 * 10**20),
    *(2**63 - 1, 2**63, 2**256 - 1, -(2**256), 10**77),
)


@given(st.integers(-(2**300), 2**300))
@example(10**16)
@example(0)
def test_any_whole_number__there_and_back__is_itself(value: int) -> None:
    assert decode_numeric(encode_numeric(value)) == value


async def test_the_server_reads_what_we_write(connection: Connection) -> None:
    written = await connection.fetch("SELECT unnest($1::numeric[])::text AS said", EDGES)
    assert [row["said"] for row in written] == [str(value) for value in EDGES]


async def test_we_read_what_the_server_writes(connection: Connection) -> None:
    texts = [str(value) for value in EDGES]
    rows = await connection.fetch("SELECT unnest($1::text[])::numeric AS value", texts)
    assert [row["value"] for row in rows] == list(EDGES)


@pytest.mark.parametrize("text", ["0.5", "-1.0001", "1e-20", "NaN", "Infinity"])
async def test_what_is_no_whole_number__refused(connection: Connection, text: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        await connection.fetchval("SELECT $1::text::numeric", text)


async def test_a_whole_number_with_zeros_after_the_point__read(connection: Connection) -> None:
    assert await connection.fetchval("SELECT '7.000'::numeric") == 7


def test_more_digits_than_a_numeric_has__refused() -> None:
    with pytest.raises(ValueError, match="so many digits"):
        encode_numeric(10 ** (4 * 2**15))


def test_cut_off_data__refused() -> None:
    with pytest.raises(struct.error):
        decode_numeric(encode_numeric(10**20 + 1)[:-1])
