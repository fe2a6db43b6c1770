"""What an endpoint's refusal of eth_getLogs means: one table for all dialects.

Error codes are no help: -32000 and -32005 stand for anything. So the text decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

_COUNT = r"(\d[\d,._]*)\s*([km]?)\b"
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
_TOO_MANY_REQUESTS = 429
_REVERTED_CODE = 3


class Meaning(StrEnum):
    """What is to be done about a refusal."""

    TOO_LARGE = "too_large"
    """The range or its answer: ask for fewer blocks."""
    RATE_LIMITED = "rate_limited"
    """Too many calls, or the quota is used up: ask later, or somebody else."""
    TIMEOUT = "timeout"
    """The node gave up. It may be busy, or the range too much work for it."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal that was read."""

    meaning: Meaning
    blocks: int | None = None
    """How many blocks, both ends included, the endpoint says it would take; at least 1."""
    lasting: bool = False
    """Whether `blocks` is the endpoint's own limit; otherwise it fits the logs of this range."""


Hint = Callable[[re.Match[str], int], int | None]
"""From a match and the number of blocks asked for: the number of blocks to ask for instead."""


@dataclass(frozen=True, slots=True)
class _Row:
    pattern: re.Pattern[str]
    hint: Hint
    lasting: bool


def _count(match: re.Match[str]) -> int:
    digits, unit = match[match.re.groups - 1], match[match.re.groups]
    return int(re.sub(r"[,._]", "", digits)) * _UNITS[unit]


def _blocks(match: re.Match[str], _: int) -> int:
    return _count(match)


def _one_less(match: re.Match[str], _: int) -> int:
    # Some count the distance of the ends, some the blocks: one less is right with both.
    return max(1, _count(match) - 1)


def _width(match: re.Match[str], _: int) -> int:
    # Alchemy has been seen to name the ends in the wrong order.
    return abs(int(match[2], 16) - int(match[1], 16)) + 1


def _one_of(*limits: int) -> Hint:
    """The largest of the limits that would be smaller than what was asked for."""

    def hint(_: re.Match[str], asked: int) -> int | None:
        return max((limit for limit in limits if limit < asked), default=None)

    return hint


def _none(_: re.Match[str], __: int) -> None:
    return None


def _row(pattern: str, hint: Hint = _none, *, lasting: bool = True) -> _Row:
    filled = pattern.replace("<N>", _COUNT).replace("<range>", r"\[0x([0-9a-f]+),\s*0x([0-9a-f]+)]")
    return _Row(re.compile(filled), hint, lasting)


# Of lower-cased text; the first row that is found decides, so narrower ones come first.
_TOO_LARGE: tuple[_Row, ...] = (
    _row("this block range should work: <range>", _width, lasting=False),  # Alchemy
    _row("try with this block range <range>", _width, lasting=False),  # Infura, zkSync
    _row("requested too many blocks from .* maximum is set to <N>", _one_less),  # Avalanche
    _row("max range: <N>", _one_less),  # Cloudflare
    _row(r"limited to (?:a )?(?:0 ?- ?)?<N>[\s-]*(?:block|range)", _blocks),  # QuickNode, Blast,
    # 1rpc, BlockPI
    _row(r"exceeds the range allowed for your plan \(\d+ > <N>\)", _blocks),  # Blast, paid
    _row(r"block range is too wide \(maximum <N>\)", _blocks),  # Moonriver
    _row(r"maximum \[from, to] blocks distance: <N>", _blocks),  # Ankr
    _row("block range is too wide", _one_of(3_000)),  # Ankr
    _row("maximum allowed number of requested blocks is <N>", _blocks),  # thirdweb
    _row("maximum block range:? <N>", _blocks),  # publicnode, BSC
    _row("exceed max(?:imum)? block range:? <N>", _blocks),  # BSC, Tron
    _row("query exceeds max block range <N>", _blocks),  # Hyperliquid
    _row("block range greater than <N> max", _blocks),  # Swell
    _row("block range exceeds <N>", _blocks),  # Somnia
    _row("range is too large, max is <N>", _blocks),  # Merkle
    _row("query must be smaller than size <N>", _blocks),  # Harmony
    _row("up to an? <N> block range", _blocks),  # Aurora
    _row("at most <N> blocks", _blocks),  # Coinbase
    _row("block range limit exceeded", _one_of(100, 10_000)),  # Chainstack, by plan
    _row(r"block range too large, range: \d+, max: <N>", _blocks),  # Polygon
    _row("ranges over <N> blocks are not supported", _blocks),  # dRPC
    _row("block range (?:is )?too large"),  # Base, Optimism, Monad
    _row("backend response too large"),  # Optimism
    _row("no backend is currently healthy"),  # Base
    _row("query returned more than .* results"),  # Infura, zkEVM
    _row("query exceeds max results"),  # llama, Ankr
    _row("logs matched by query exceeds limit"),  # Arbitrum
    _row("response size should not (?:be )?greater than"),  # 1rpc
    _row("response size exceeded"),  # Alchemy
    _row("response (?:is )?too (?:big|large)"),
    _row("exceeded max allowed"),  # eRPC
    _row("range threshold exceeded"),  # eRPC
    _row("error decoding response body"),
    _row("content too large|entity too large"),
)

# What a provider says of calls per time or per plan; never of one call's size.
_RATE_LIMITED = re.compile(
    "too many requests?"  # Ankr, dRPC
    "|rate.?limit"  # BlockPI, llama, publicnode
    "|request rate exceeded"  # Infura
    "|request count exceeded"  # Infura
    "|request limit reached"  # QuickNode
    "|requests? per (?:second|minute|day)|calls? per second"
    "|rps limit"  # Chainstack
    "|compute units"  # Alchemy
    "|(?:throughput|usage|monthly|daily|capacity) (?:limit|quota)|usage limit"  # dRPC
    "|quota|out of credits|exceeded its (?:throughput|capacity)"
)
_TIMEOUT = re.compile("time-?d? ?-?out|deadline exceeded|took too long|context canceled")


def read_refusal(code: int, message: str, asked_blocks: int) -> Refusal:
    """Reads an error object of eth_getLogs; `asked_blocks` is how many blocks were asked for.

    What is in no row is UNKNOWN: never guessed.
    """
    text = message.lower()
    found = next(
        (row for row in (_read(row, text, asked_blocks) for row in _TOO_LARGE) if row), None
    )
    # A number of blocks leaves no doubt; without one, a text about both is about calls.
    if found is not None and found.blocks is not None:
        return found
    if is_rate_limit(code, message):
        return Refusal(Meaning.RATE_LIMITED)
    if found is not None:
        return found
    if _TIMEOUT.search(text):
        return Refusal(Meaning.TIMEOUT)
    return Refusal(Meaning.UNKNOWN)


def is_rate_limit(code: int, message: str) -> bool:
    """Whether an error object of any method is about too many calls."""
    text = message.lower()
    # What a contract says when it reverts is others' text: it may say anything.
    if code == _REVERTED_CODE or "revert" in text:
        return False
    return code == _TOO_MANY_REQUESTS or _RATE_LIMITED.search(text) is not None


def _read(row: _Row, text: str, asked_blocks: int) -> Refusal | None:
    match = row.pattern.search(text)
    if match is None:
        return None
    blocks = row.hint(match, asked_blocks)
    if blocks is None or blocks < 1:
        return Refusal(Meaning.TOO_LARGE)
    return Refusal(Meaning.TOO_LARGE, blocks, row.lasting)
