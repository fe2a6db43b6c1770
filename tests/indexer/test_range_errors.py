"""Every dialect in which endpoints refuse eth_getLogs, in their own words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.rpc.ranges import Meaning, Refusal, is_rate_limit, read_refusal

ASKED = 50_000

# Who says it, the code it comes with, its words, how many blocks it would take, and whether that is
# its own limit.
NAMED = [
    (
        "Alchemy",
        -32602,
        "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range"
        " and no limit on the response size, or you can request any block range with a cap of 10K"
        " logs in the response. Based on your parameters and the response size limit, this block"
        " range should work: [0x100, 0x1ff]",
        256,
        False,
    ),
    (
        "Alchemy, inverted",
        -32600,
        "Under the Free tier plan, you can make eth_getLogs requests with up to a 10 block range."
        " Based on your parameters, this block range should work: [0x10a, 0x101]. Upgrade to PAYG",
        10,
        False,
    ),
    (
        "Infura",
        -32005,
        "query returned more than 10000 results. Try with this block range [0x5B8D80, 0x5B8DFF].",
        128,
        False,
    ),
    (
        "zkSync",
        -32602,
        "Query returned more than 10000 results. Try with this block range [0x1, 0x10].",
        16,
        False,
    ),
    (
        "Avalanche",
        -32000,
        "requested too many blocks from 1 to 50000, maximum is set to 2048",
        2_047,
        True,
    ),
    ("Cloudflare", -32047, "Invalid eth_getLogs request: Max range: 800", 799, True),
    (
        "QuickNode",
        -32614,
        "eth_getLogs and eth_newFilter are limited to a 10,000 blocks range",
        10_000,
        True,
    ),
    ("QuickNode, free", -32614, "eth_getLogs is limited to a 5 range", 5, True),
    ("1rpc", -32000, "eth_getLogs is limited to 0 - 10000 blocks range", 10_000, True),
    ("Blast", -32614, "eth_getLogs is limited to a 10,000 range", 10_000, True),
    (
        "BlockPI",
        -32602,
        "eth_getLogs is limited to 1024 block range. Please check the parameter requirements",
        1_024,
        True,
    ),
    (
        "Blast, paid",
        -32600,
        "block range exceeds the range allowed for your plan (50000 > 3000)",
        3_000,
        True,
    ),
    ("Ankr", -32600, "block range is too wide", 3_000, True),
    ("Moonriver", -32603, "block range is too wide (maximum 1024)", 1_024, True),
    ("Ankr on TAC", -32000, "maximum [from, to] blocks distance: 10000", 10_000, True),
    ("thirdweb", -32602, "Maximum allowed number of requested blocks is 1000", 1_000, True),
    ("publicnode", -32701, "maximum block range: 10,000", 10_000, True),
    ("BSC", -32000, "exceed maximum block range: 5000", 5_000, True),
    ("Tron", -32602, "exceed max block range: 5000", 5_000, True),
    ("Hyperliquid", -32602, "query exceeds max block range 1000", 1_000, True),
    ("Swell", -32000, "block range greater than 10000 max", 10_000, True),
    ("Somnia", -32000, "block range exceeds 1000", 1_000, True),
    ("Merkle", -32000, "eth_getLogs range is too large, max is 10k blocks", 10_000, True),
    ("Merkle, free", -32000, "eth_getLogs range is too large, max is 1k blocks", 1_000, True),
    ("Harmony", -32000, "query must be smaller than size 1024", 1_024, True),
    ("Aurora", -32000, "you can request up to a 10_000 block range", 10_000, True),
    ("Coinbase", -32602, "please limit the query to at most 1,000 blocks", 1_000, True),
    (
        "Chainstack",
        -32002,
        "Block range limit exceeded. See more details at the docs",
        10_000,
        True,
    ),
    ("Polygon", -32000, "eth_getLogs block range too large, range: 50000, max: 1000", 1_000, True),
    ("dRPC", 35, "ranges over 10000 blocks are not supported on freetier", 10_000, True),
]

UNNAMED = [
    ("Base", -32602, "block range too large"),
    ("Optimism", -32602, "Block range is too large"),
    ("Optimism", -32020, "backend response too large"),
    ("Base", -32011, "no backend is currently healthy to serve traffic"),
    ("zkEVM", -32005, "query returned more than 10000 results"),
    ("llama, Ankr", -32005, "query exceeds max results 20000"),
    ("Arbitrum", -32000, "logs matched by query exceeds limit of 10000"),
    ("1rpc", -32000, "response size should not greater than 10000000 bytes"),
    ("Alchemy", -32008, "Response size exceeded"),
    ("several", -32008, "Response is too big"),
    ("eRPC", -32012, "getLogs request exceeded max allowed range"),
    ("eRPC", -32012, "evm getLogs: range threshold exceeded"),
    ("reqwest in between", -32000, "error decoding response body"),
    ("nginx in between", 413, "413 Request Entity Too Large"),
]

ABOUT_CALLS = [
    ("Infura", -32005, "daily request count exceeded, request rate limited"),
    ("Infura", -32005, "project ID request rate exceeded"),
    (
        "Alchemy",
        429,
        "Your app has exceeded its compute units per second capacity. If you have retries enabled,"
        " you can safely ignore this message.",
    ),
    ("Alchemy", 429, "Monthly capacity limit exceeded."),
    ("QuickNode", -32007, "50/second request limit reached - reduce calls per second or upgrade"),
    ("Ankr", -32005, "Too many requests, reason: call rate limit exhausted, retry in 10s"),
    ("dRPC", 15, "Too many request, try again later"),
    ("dRPC", 30, "You've reached the usage limit for your current plan"),
    ("Chainstack", -32005, "You've exceeded the RPS limit available on the current plan."),
    ("BlockPI", -32005, "rate limit exceeded"),
    ("llama", -32029, "Rate-limited: please slow down"),
    ("some", 429, "no"),
]

TIMEOUTS = [
    ("geth", -32002, "request timed out"),
    ("geth", -32000, "context deadline exceeded"),
    ("Alchemy", -32603, "Query timeout exceeded. Consider reducing your block range."),
    ("several", -32000, "execution timeout"),
    ("several", -32000, "query took too long to execute"),
]


@pytest.mark.parametrize(("who", "code", "text", "blocks", "lasting"), NAMED)
def test_too_large__with_a_proposal__it_is_read(
    who: str, code: int, text: str, blocks: int, lasting: bool
) -> None:
    assert read_refusal(code, text, ASKED) == Refusal(Meaning.TOO_LARGE, blocks, lasting), who


@pytest.mark.parametrize(("who", "code", "text"), UNNAMED)
def test_too_large__without_a_proposal__only_that(who: str, code: int, text: str) -> None:
    assert read_refusal(code, text, ASKED) == Refusal(Meaning.TOO_LARGE), who


@pytest.mark.parametrize(("who", "code", "text"), ABOUT_CALLS)
def test_rate_or_quota__is_not_about_the_range(who: str, code: int, text: str) -> None:
    assert read_refusal(code, text, ASKED) == Refusal(Meaning.RATE_LIMITED), who
    assert is_rate_limit(code, text), who


@pytest.mark.parametrize(("who", "code", "text"), TIMEOUTS)
def test_timeout__is_its_own_kind(who: str, code: int, text: str) -> None:
    assert read_refusal(code, text, ASKED) == Refusal(Meaning.TIMEOUT), who


@pytest.mark.parametrize(
    ("code", "text"),
    [(-32000, "header not found"), (-32005, "limit exceeded"), (-32601, "no"), (0, "")],
)
def test_any_other_words__are_not_guessed_at(code: int, text: str) -> None:
    assert read_refusal(code, text, ASKED) == Refusal(Meaning.UNKNOWN)


@pytest.mark.parametrize(
    ("asked", "blocks"), [(50_000, 10_000), (10_000, 100), (101, 100), (100, None), (2, None)]
)
def test_limit_of_a_plan__the_largest_that_is_below_what_was_asked(
    asked: int, blocks: int | None
) -> None:
    found = read_refusal(-32002, "Block range limit exceeded.", asked)
    assert (found.meaning, found.blocks) == (Meaning.TOO_LARGE, blocks)


def test_a_proposal_of_no_blocks__is_none() -> None:
    found = read_refusal(-32000, "exceed maximum block range: 0", ASKED)
    assert found == Refusal(Meaning.TOO_LARGE)


@pytest.mark.parametrize(
    ("code", "text"), [(3, "rate limit"), (-32000, "execution reverted: quota")]
)
def test_words_of_a_contract__are_no_rate_limit(code: int, text: str) -> None:
    assert not is_rate_limit(code, text)


@given(st.integers(), st.text(max_size=400), st.integers(1, 10**6))
def test_any_text__is_read_without_a_fault(code: int, text: str, asked: int) -> None:
    found = read_refusal(code, text, asked)
    assert found.blocks is None or found.blocks >= 1


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_proposed_range__both_ends_count_in_either_order(first: int, last: int) -> None:
    text = f"this block range should work: [{hex(first)}, {hex(last)}]"
    assert read_refusal(-32602, text, ASKED).blocks == abs(last - first) + 1
