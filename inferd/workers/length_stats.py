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
from scheduler.predict_round import Size, size_of

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
            parent = predict_length.PRIOR if tenant == ALL else self.law(model, ALL)
            row = self._rows.get((model, tenant))
            found = parent if row is None else parent.leaning(_history(row))
            self._laws[model, tenant] = found
        return found

    def size(self, model: ModelId, tenant: Address, max_tokens: int) -> Size:
        """The size class of a request with this limit; 0 is no limit."""
        return size_of(*self.predict(model, tenant, max_tokens))

    def predict(self, model: ModelId, tenant: Address, max_tokens: int) -> TokensPrediction:
        """The output of a request with this limit; 0 is no limit."""
        return self.law(model, tenant).predict(max_tokens)


class Learning:
    """Rows that are held until the transaction's end, and what outputs make of them."""

    def __init__(self, rows: Mapping[tuple[ModelId, Address], Any]) -> None:
        self._known = {pair: _history(row) for pair, row in rows.items()}
        self._new = {pair for pair, row in rows.items() if not row["ended"]}
        self._laws: dict[tuple[ModelId, Address], LengthLaw] = {}
        self._sizes: dict[tuple[ModelId, Address, int], Size] = {}

    def size(self, model: ModelId, tenant: Address, max_tokens: int) -> Size:
        """As `Lengths.size`, by what is known so far."""
        found = self._sizes.get((model, tenant, max_tokens))
        if found is None:
            found = size_of(*self._law(model, tenant).predict(max_tokens))
            self._sizes[model, tenant, max_tokens] = found
        return found

    def add(self, model: ModelId, tenant: Address | None, tokens: int, max_tokens: int) -> None:
        """Takes one output in, and judges what was predicted of it. Both its rows must be held."""
        levels = _levels(model, ALL if tenant is None else tenant)
        predicted = [self.size(*level, max_tokens).p90_tokens for level in levels]
        if levels[-1] in self._new:
            # A requester that is new is off by as much as its model.
            self._known[levels[-1]] = LengthHistory.empty(self._known[levels[0]].log_factor)
        for level, p90_tokens in zip(levels, predicted, strict=True):
            self._known[level] = predict_length.observed(
                self._known[level], tokens=tokens, max_tokens=max_tokens, p90_tokens=p90_tokens
            )
            self._new.discard(level)
        # Other requesters' lean on the model's, too.
        self._laws.clear()
        self._sizes.clear()

    def _law(self, model: ModelId, tenant: Address) -> LengthLaw:
        found = self._laws.get((model, tenant))
        if found is None:
            parent = predict_length.PRIOR if tenant == ALL else self._law(model, ALL)
            is_new = (model, tenant) in self._new
            found = parent if is_new else parent.leaning(self._known[model, tenant])
            self._laws[model, tenant] = found
        return found

    async def store(self, connection: Connection) -> None:
        """Writes all that is held."""
        if not self._known:
            return
        await connection.execute(
            """
            UPDATE node.length_stat stat
            SET ended = learnt.ended, cut = learnt.cut, log_factor = learnt.log_factor
            FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::float8[])
                 AS learnt (model_id, tenant, ended, cut, log_factor)
            WHERE stat.model_id = learnt.model_id AND stat.tenant = learnt.tenant
            """,
            [model for model, _ in self._known],
            [tenant for _, tenant in self._known],
            [history.ended.astype(_WEIGHTS).tobytes() for history in self._known.values()],
            [history.cut.astype(_WEIGHTS).tobytes() for history in self._known.values()],
            [history.log_factor for history in self._known.values()],
        )


async def load(connection: Connection, pairs: Collection[tuple[ModelId, Address]]) -> Lengths:
    """What is known of these models and requesters."""
    asked = _with_models(pairs)
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
        found |= _by_pair(rows)
    return Lengths(found)


async def hold(connection: Connection, pairs: Collection[tuple[ModelId, Address]]) -> Learning:
    """The rows of these models and requesters, made where there are none, until the transaction's
    end."""
    asked = _with_models(pairs)
    if not asked:
        return Learning({})
    rows = await connection.fetch(
        """
        INSERT INTO node.length_stat AS stat (model_id, tenant)
        SELECT * FROM unnest($1::bytea[], $2::bytea[])
        ON CONFLICT (model_id, tenant) DO UPDATE SET updated_at = now()
        RETURNING model_id, tenant, ended, cut, log_factor
        """,
        [model for model, _ in asked],
        [tenant for _, tenant in asked],
    )
    return Learning(_by_pair(rows))


def _levels(model: ModelId, tenant: Address) -> list[tuple[ModelId, Address]]:
    """The model, then the requester where there is one."""
    return [(model, ALL)] if tenant == ALL else [(model, ALL), (model, tenant)]


def _with_models(
    pairs: Collection[tuple[ModelId, Address]],
) -> list[tuple[ModelId, Address]]:
    """In one order for all, so that nobody waits for whoever waits for him."""
    return sorted({*pairs, *((model, ALL) for model, _ in pairs)})


def _by_pair(rows: Collection[Any]) -> dict[tuple[ModelId, Address], Any]:
    return {(ModelId(row["model_id"]), Address(row["tenant"])): row for row in rows}


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
