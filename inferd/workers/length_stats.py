"""How long outputs are, per model and per requester with it: the rows behind the predictions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import ModelId
from scheduler import predict_length
from scheduler.predict_length import BINS, LengthHistory, LengthLaw, TokensPrediction
from scheduler.predict_round import size_of

_WEIGHTS = np.dtype("<f4")
_ROWS_AT_ONCE = 500
"""Between which the event loop can do other things."""

ALL = Address(b"")
"""Stands for all requesters of a model."""


class Lengths:
    """What is known of some models and requesters; rows are parsed when they are asked for."""

    def __init__(self, rows: Mapping[tuple[ModelId, Address], Any]) -> None:
        self._rows = rows
        self._laws: dict[tuple[ModelId, Address], LengthLaw] = {}

    def law(self, model: ModelId, tenant: Address) -> LengthLaw:
        """The requester's law, else the model's, else the one assumed of any."""
        found = self._laws.get((model, tenant))
        if found is None:
            known = (self._rows.get((model, one)) for one in (ALL, tenant))
            found = predict_length.law([_history(row) for row in known if row is not None])
            self._laws[model, tenant] = found
        return found

    def predict(self, model: ModelId, tenant: Address, max_tokens: int) -> TokensPrediction:
        """The output of a request with this limit; 0 is no limit."""
        return self.law(model, tenant).predict(max_tokens)


async def load(connection: Connection, pairs: Collection[tuple[ModelId, Address]]) -> Lengths:
    """What is known of these models and requesters."""
    asked = sorted({*pairs, *((model, ALL) for model, _ in pairs)})
    found: dict[tuple[ModelId, Address], Any] = {}
    for first in range(0, len(asked), _ROWS_AT_ONCE):
        models, tenants = zip(*asked[first : first + _ROWS_AT_ONCE], strict=True)
        rows = await connection.fetch(
            """
            SELECT model_id, tenant, ended, cut, log_factor
            FROM unnest($1::bytea[], $2::bytea[]) AS asked (model_id, tenant)
            JOIN node.length_stat USING (model_id, tenant)
            """,
            models,
            tenants,
        )
        found |= {(ModelId(row["model_id"]), Address(row["tenant"])): row for row in rows}
    return Lengths(found)


async def record(
    connection: Connection, model: ModelId, tenant: Address | None, tokens: int, max_tokens: int
) -> None:
    """Takes one output in, within the caller's transaction, and judges what was predicted of it."""
    levels = (ALL,) if tenant is None else (ALL, tenant)
    known: list[LengthHistory] = []
    for level in levels:
        row = await connection.fetchrow(
            """
            INSERT INTO node.length_stat AS stat (model_id, tenant, log_factor) VALUES ($1, $2, $3)
            ON CONFLICT (model_id, tenant) DO UPDATE SET updated_at = now()
            RETURNING ended, cut, log_factor
            """,
            model,
            level,
            known[-1].log_factor if known else 0.0,
        )
        known.append(_history(row))
    laws = [predict_length.law(known[: depth + 1]) for depth in range(len(known))]
    p90_tokens = [size_of(*law.predict(max_tokens)).p90_tokens for law in laws]
    for level, history, predicted in zip(levels, known, p90_tokens, strict=True):
        learnt = predict_length.observed(
            history, tokens=tokens, max_tokens=max_tokens, p90_tokens=predicted
        )
        await connection.execute(
            """
            UPDATE node.length_stat SET ended = $3, cut = $4, log_factor = $5
            WHERE model_id = $1 AND tenant = $2
            """,
            model,
            level,
            learnt.ended.astype(_WEIGHTS).tobytes(),
            learnt.cut.astype(_WEIGHTS).tobytes(),
            learnt.log_factor,
        )


async def forget(connection: Connection, unseen_days: int) -> None:
    """Deletes requesters of whom no output came for so many days."""
    await connection.execute(
        "DELETE FROM node.length_stat"
        " WHERE tenant <> '' AND updated_at < now() - $1 * interval '1 day'",
        unseen_days,
    )


def _history(row: Any) -> LengthHistory:
    ended, cut = (np.frombuffer(row[name], _WEIGHTS).astype(float) for name in ("ended", "cut"))
    if len(ended) != BINS or len(cut) != BINS:  # new, or of other bins than now
        return LengthHistory.empty(row["log_factor"])
    return LengthHistory(ended, cut, row["log_factor"])
