"""Quorums in the tables: what was agreed on, and whose signatures a post takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from indexer.types import Address
from inferd.protocol.quorum import Answer, agreed
from inferd.settlement.postable import POSTABLE

TALLY = f"""
    SELECT coalesce(max(owners), 0) AS agreeing,
           coalesce(max(owners) >= r.quorum
                    AND count(*) FILTER (WHERE owners = most) = 1, false) AS agreed,
           (array_agg(digest ORDER BY owners DESC, digest))[1] AS digest
    FROM (
        SELECT digest, count(*) AS owners, max(count(*)) OVER () AS most
        FROM (
            SELECT DISTINCT ON (o.owner) n.digest
            FROM node.result n JOIN chain.worker o ON o.signer = n.worker
            WHERE r.quorum > 1 AND n.request_id = r.id AND n.commitment = r.commitment
              AND {POSTABLE}
            ORDER BY o.owner, n.computed_at, n.worker
        ) voice
        GROUP BY digest
    ) said
"""  # noqa: S608 - constants
"""SQL over a request `r` that asks for a quorum, as `inferd.protocol.quorum` has it: how many
voices the answer with most of them has, which that is, and whether it is agreed on. One row, also
of other requests, which have no voices."""


def signers(answers: Iterable[Answer], quorum: int, own: Collection[Address]) -> tuple[Answer, ...]:
    """Who signs a post of what was agreed on, by rising address; nobody where nothing was.

    Of more than are needed, those whose owners are `own` come first, then the lowest addresses: the
    same for all requests that the same workers have answered, so that they share a group.
    """
    found = agreed(answers, quorum)
    best = sorted(found, key=lambda one: (one.owner not in own, one.worker))[:quorum]
    return tuple(sorted(best, key=lambda one: one.worker))
