"""Items of a transaction that failed are tried again apart, by bisection. Pure but for its SQL.

Which of them the failure is owed to is not known. So those of one failed transaction travel with
nobody else, and in pieces of half as many at most: one that spoils every transaction it is in is
alone after log2(n) failures, and all others are settled by then. Only one that failed alone is
given up, so that none is for the fault of another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from inferd.settlement.receipts import FAULTS, RETRIED

T = TypeVar("T")

SUSPECT = (*FAULTS, RETRIED)
"""Outcomes after which an item may spoil a transaction."""


@dataclass(frozen=True, slots=True)
class Cohort:
    """Those that failed together last."""

    intent_id: int
    size: int

    @property
    def most_together(self) -> int:
        """How many of them may share a transaction now."""
        return max(-(-self.size // 2), 1)


def companies(items: Sequence[T], cohort_of: Callable[[T], Cohort | None]) -> list[tuple[T, ...]]:
    """Who may share a transaction with whom: first all that nothing is known against, as far as
    there are any, then each cohort in pieces; in the order of the items."""
    groups: dict[Hashable, list[T]] = {None: []}
    for item in items:
        groups.setdefault(cohort_of(item), []).append(item)
    found = [tuple(groups.pop(None))]
    for group in groups.values():
        cohort = cohort_of(group[0])
        size = cohort.most_together if cohort is not None else len(group)
        found += [tuple(group[start : start + size]) for start in range(0, len(group), size)]
    return [company for company in found if company]


def last_failure(worker: str, outcomes: str) -> str:
    """SQL: `failed_intent` and `failed_size` of a request `r`, joined to its row; NULL where it is
    no suspect. `worker` is a condition on the row `f` of its item, `outcomes` the parameter that
    holds `SUSPECT`."""
    return f"""
        LEFT JOIN LATERAL (
            SELECT f.intent_id AS failed_intent,
                   (SELECT count(*) FROM node.tx_item c WHERE c.intent_id = f.intent_id
                    AND c.outcome = ANY({outcomes}::text[])) AS failed_size
            FROM node.tx_item f
            WHERE f.request_id = r.id AND f.commitment = r.commitment AND {worker}
              AND f.outcome = ANY({outcomes}::text[])
            ORDER BY f.intent_id DESC LIMIT 1
        ) failure ON true
    """  # noqa: S608 - constants


def cohort_of_row(failed_intent: int | None, failed_size: int | None) -> Cohort | None:
    """Of the columns of `last_failure`."""
    if failed_intent is None or failed_size is None:
        return None
    return Cohort(failed_intent, failed_size)
