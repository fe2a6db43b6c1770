"""Who of several workers that computed one request is wrong. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from indexer.types import Address
from inferd.workers.checks.comparators import Comparator

MOST_ANSWERS = 5
"""Of which no two agree, and the model is not as deterministic as the operator says."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one worker made of the request."""

    worker: Address
    owner: Address
    """Workers of one owner have one vote."""
    trusted: bool
    """Whether it is the operator's own: it is right."""
    output: bytes = field(repr=False)
    counts: bool = True
    """False of a worker that was found wrong elsewhere: it has no vote."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Nobody is right or wrong while it is open."""

    right: frozenset[Address] = frozenset()
    wrong: frozenset[Address] = frozenset()

    @property
    def decided(self) -> bool:
        return bool(self.right)


def verdict(answers: Sequence[Answer], comparator: Comparator) -> Verdict:
    """An answer of the operator's own decides, where such answers do not contradict each other;
    else the answer that most owners support, two at least and more than any that contradicts it.

    Of comparators that are not transitive there may be several such answers: who agrees with one of
    them is not wrong.
    """
    trusted = [one for one in answers if one.trusted]
    if trusted:
        if not all(_same(one, other, comparator) for one, other in combinations(trusted, 2)):
            return Verdict()
        return _by(trusted, answers, comparator)
    voting = [one for one in answers if one.counts]
    same = {
        (one.worker, other.worker): _same(one, other, comparator)
        for one in voting
        for other in voting
    }
    votes = {
        one.worker: len({each.owner for each in voting if same[one.worker, each.worker]})
        for one in voting
    }
    leading = []
    for one in voting:
        against = [votes[each.worker] for each in voting if not same[one.worker, each.worker]]
        if votes[one.worker] >= 2 and votes[one.worker] > max(against, default=0):
            leading.append(one)
    return _by(leading, answers, comparator)


def _by(right: Sequence[Answer], answers: Sequence[Answer], comparator: Comparator) -> Verdict:
    agree = frozenset(
        one.worker for one in answers if any(_same(each, one, comparator) for each in right)
    )
    return Verdict(agree, frozenset(one.worker for one in answers) - agree) if agree else Verdict()


def _same(one: Answer, other: Answer, comparator: Comparator) -> bool:
    return comparator.same(one.output, other.output)
