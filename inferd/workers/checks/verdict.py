"""Who of several workers that computed one request is wrong. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    """
    trusted = [one for one in answers if one.trusted]
    if trusted:
        if not all(comparator.same(trusted[0].output, one.output) for one in trusted):
            return Verdict()
        return _by(trusted[0], answers, comparator)
    voting = [one for one in answers if one.counts]
    same = {
        (one.worker, other.worker): comparator.same(one.output, other.output)
        for one in voting
        for other in voting
    }
    votes = {
        one.worker: len({each.owner for each in voting if same[one.worker, each.worker]})
        for one in voting
    }
    for one in voting:
        against = [votes[each.worker] for each in voting if not same[one.worker, each.worker]]
        if votes[one.worker] >= 2 and votes[one.worker] > max(against, default=0):
            return _by(one, answers, comparator)
    return Verdict()


def _by(right: Answer, answers: Sequence[Answer], comparator: Comparator) -> Verdict:
    agree = frozenset(one.worker for one in answers if comparator.same(right.output, one.output))
    return Verdict(agree, frozenset(one.worker for one in answers) - agree)
