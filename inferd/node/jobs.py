"""The jobs of requests that are leased, from the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexer.database import Connection
from indexer.types import Address
from inferd.protocol.request import Commitment, ModelId
from inferd.workers.job import Job
from scheduler.model import RequestKey

_SERVABLE = """
    FROM chain.request r
    LEFT JOIN node.input i ON i.key = CASE WHEN r.input_kind = 1 THEN sha256(r.input) END
    WHERE id = ANY($1) AND status = 'pending'
      AND (input_kind = 0 OR i.state = 'here')
"""


async def load_jobs(
    connection: Connection, ids: Sequence[int], names: Mapping[bytes, str]
) -> dict[RequestKey, Job]:
    """Of the requests with these ids that are pending, whose input is here, and whose model has a
    name; `names` are these by the models' ids."""
    rows = await connection.fetch(
        f"""
        SELECT id, commitment, model_id, max_tokens, deadline_s, requester, quorum,
               CASE WHEN input_kind = 0 THEN input ELSE i.content END AS input
        {_SERVABLE}
        """,
        ids,
    )
    return {
        RequestKey(row["id"], row["commitment"]): Job(
            request_id=row["id"],
            commitment=Commitment(row["commitment"]),
            model_id=ModelId(row["model_id"]),
            model=names[row["model_id"]],
            input=row["input"],
            max_tokens=row["max_tokens"],
            deadline_s=row["deadline_s"],
            requester=Address(row["requester"]),
            quorum=row["quorum"],
        )
        for row in rows
        if row["model_id"] in names
    }


async def load_servable(connection: Connection, ids: Sequence[int]) -> set[RequestKey]:
    """Those of which there are jobs."""
    rows = await connection.fetch(f"SELECT id, commitment {_SERVABLE}", ids)
    return {RequestKey(row["id"], row["commitment"]) for row in rows}
