"""What several workers' answers to one request come to. Pure.

The chain takes a result that n workers signed, whoever owns them. Here an owner has one voice, that
of its first answer: it would agree with itself. What most voices say is agreed on where they are at
least n and no other answer has as many; a tie is no agreement, however many there are on each side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from indexer.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one worker that the chain would take."""

    worker: Address
    owner: Address
    digest: Hash32
    at_s: float
    """When it was stored."""


def voices(answers: Iterable[Answer]) -> list[Answer]:
    """The first answer of each owner, of two at one time that of the lower address."""
    first: dict[Address, Answer] = {}
    for answer in sorted(answers, key=lambda one: (one.at_s, one.worker)):
        first.setdefault(answer.owner, answer)
    return list(first.values())


def agreed(answers: Iterable[Answer], quorum: int) -> tuple[Answer, ...]:
    """The voices that say what was agreed on, by address; none where nothing was."""
    by_digest: dict[Hash32, list[Answer]] = {}
    for voice in voices(answers):
        by_digest.setdefault(voice.digest, []).append(voice)
    if not by_digest:
        return ()
    most = max(map(len, by_digest.values()))
    leading = [said for said in by_digest.values() if len(said) == most]
    if most < quorum or len(leading) > 1:
        return ()
    return tuple(sorted(leading[0], key=lambda one: one.worker))
