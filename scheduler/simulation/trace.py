"""When requests arrive and how long they are: recorded traces, and a law fitted to them.

A trace is text in the format of the public Azure LLM inference traces (AzurePublicDataset,
November 2023): a header `TIMESTAMP,ContextTokens,GeneratedTokens`, then one request a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import log, sqrt

import numpy as np

HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOST_TOKENS = 10**9
_MICROSECOND_DIGITS = 26
"""Length of a timestamp down to microseconds; the traces have a digit more than Python reads."""


class TraceError(ValueError):
    """A line of a trace that is none; its text says which one and what it should be."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace."""

    arrival_s: float
    """Since the first request of the trace."""
    context_tokens: int
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class TraceLaw:
    """A law of arrivals and lengths: a gamma renewal process and two log-normals.

    Gaps between arrivals are gamma distributed with the mean 1 / rate and the coefficient of
    variation `gap_cv` (1 = Poisson, above = bursts). Context and generated tokens are independent
    log-normals, rounded and cut to 1 ... their maximum. Rates of day and night are not in it.
    """

    rate_per_s: float
    gap_cv: float
    context_log_mean: float
    context_log_sigma: float
    context_max: int
    generated_log_mean: float
    generated_log_sigma: float
    generated_max: int


CONVERSATION = TraceLaw(5.53, 1.09, 6.63, 0.985, 14_050, 5.02, 0.859, 1_000)
"""`fit` of the Azure conversation trace of 2023 (19,366 requests in 58 min), rounded."""
CODE = TraceLaw(2.57, 13.2, 7.00, 1.36, 7_437, 2.79, 0.847, 1_899)
"""`fit` of the Azure code trace of 2023 (8,819 requests in 57 min), rounded: long inputs, short
outputs, arrivals in bursts."""


def parse_azure(lines: Iterable[str]) -> tuple[TraceRow, ...]:
    """The rows of a trace, in order of arrival. Raises TraceError at the first bad line."""
    numbered = enumerate(lines, start=1)
    first = next(numbered, (1, ""))[1].strip()
    if tuple(first.split(",")) != HEADER:
        raise TraceError(f"line 1 is {first[:60]!r}, not the header {','.join(HEADER)}")
    parsed: list[tuple[float, int, int]] = []
    for number, line in numbered:
        text = line.strip()
        if text:
            parsed.append(_row(number, text))
    if not parsed:
        raise TraceError("the trace has no request")
    parsed.sort(key=lambda row: row[0])
    start_s = parsed[0][0]
    return tuple(TraceRow(at_s - start_s, context, output) for at_s, context, output in parsed)


def _row(number: int, text: str) -> tuple[float, int, int]:
    try:
        stamp, context, output = text.split(",")
        # Without a zone the local one would move the times: only differences count, so any will do.
        at = datetime.fromisoformat(f"{stamp[:_MICROSECOND_DIGITS]}+00:00")
        row = at.timestamp(), int(context), int(output)
    except ValueError as error:
        raise TraceError(
            f"line {number} is {text[:60]!r}, not a timestamp and two numbers of tokens"
        ) from error
    if not all(0 <= tokens <= MOST_TOKENS for tokens in row[1:]):
        raise TraceError(f"line {number} has a number of tokens that is not 0 to {MOST_TOKENS:,}")
    return row


def fit(rows: Sequence[TraceRow]) -> TraceLaw:
    """The law of a trace by moments: of the gaps, and of the logarithms of the lengths.

    Raises ValueError for fewer than three rows or for rows that all arrive at once.
    """
    gaps_s = [after.arrival_s - before.arrival_s for before, after in pairwise(rows)]
    if len(gaps_s) < 2 or sum(gaps_s) <= 0.0:
        raise ValueError("a law needs at least three requests at different times")
    gap_mean_s, gap_sd_s = _moments(gaps_s)
    context = [log(max(1, row.context_tokens)) for row in rows]
    generated = [log(max(1, row.generated_tokens)) for row in rows]
    return TraceLaw(
        1.0 / gap_mean_s,
        gap_sd_s / gap_mean_s,
        *_moments(context),
        max(row.context_tokens for row in rows),
        *_moments(generated),
        max(row.generated_tokens for row in rows),
    )


def drawn(law: TraceLaw, count: int, random: np.random.Generator) -> tuple[TraceRow, ...]:
    """That many requests of the law; the first arrives at 0."""
    shape = 1.0 / law.gap_cv**2
    gaps_s = random.gamma(shape, 1.0 / (law.rate_per_s * shape), size=count)
    arrivals_s = np.cumsum(gaps_s) - gaps_s[:1].sum()
    contexts = random.lognormal(law.context_log_mean, law.context_log_sigma, size=count)
    outputs = random.lognormal(law.generated_log_mean, law.generated_log_sigma, size=count)
    contexts = np.clip(np.rint(contexts), 1, law.context_max)
    outputs = np.clip(np.rint(outputs), 1, law.generated_max)
    return tuple(
        TraceRow(float(at_s), int(context), int(output))
        for at_s, context, output in zip(arrivals_s, contexts, outputs, strict=True)
    )


def window(rows: Sequence[TraceRow], count: int, start: int) -> tuple[TraceRow, ...]:
    """`count` rows from the `start`-th on, over the end of the trace back to its beginning.

    The seam counts as one mean gap. Raises ValueError for a trace without rows.
    """
    if not rows:
        raise ValueError("the trace has no request")
    size = len(rows)
    lap_s = rows[-1].arrival_s * size / max(1, size - 1)
    chosen = [(rows[(start + n) % size], (start + n) // size) for n in range(count)]
    begin_s = rows[start % size].arrival_s + (start // size) * lap_s
    return tuple(
        TraceRow(row.arrival_s + lap * lap_s - begin_s, row.context_tokens, row.generated_tokens)
        for row, lap in chosen
    )


def _moments(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
