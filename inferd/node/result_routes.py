"""The routes of results: what proves an answer, and its bytes."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Response

from inferd.node.api_models import ResultView
from inferd.outputs.files import OutputFiles, OutputUnreadable
from inferd.outputs.rows import OutputDropped, output_of

RESULT = """
    SELECT x.*, r.settled_tx_hash, r.settled_block,
           coalesce(posted.workers, alike.workers) AS workers
    FROM chain.request r JOIN node.result x ON x.request_id = r.id AND x.commitment = r.commitment
    CROSS JOIN LATERAL (
        SELECT array_agg(n.worker ORDER BY n.worker) AS workers FROM node.result n
        WHERE n.request_id = r.id AND n.commitment = r.commitment AND n.digest = x.digest
          AND (r.quorum > 1 OR n.worker = x.worker)
    ) alike
    LEFT JOIN LATERAL (
        SELECT array_prepend(i.worker, i.others) AS workers FROM node.tx_item i
        WHERE i.request_id = r.id AND i.commitment = r.commitment AND i.worker IS NOT NULL
          AND i.outcome = 'settled' AND r.status = 'fulfilled'
        LIMIT 1
    ) posted ON true
    WHERE r.id = $1
    ORDER BY (x.digest = r.digest) DESC NULLS LAST, x.found_wrong,
             cardinality(alike.workers) DESC, x.computed_at
    LIMIT 1
"""

# The bytes are a stranger's, and their media type is what a worker says: no browser is to run them.
_INERT = {
    "content-security-policy": "default-src 'none'; sandbox",
    "content-disposition": "attachment",
    "x-content-type-options": "nosniff",
}


def result_routes(
    row_of: Callable[[int], Awaitable[Any]], files: Callable[[], OutputFiles | None]
) -> APIRouter:
    """`row_of` gives a request's row of `RESULT`, or raises HTTPException."""
    router = APIRouter()

    @router.get("/v1/results/{request_id}")
    async def result(request_id: int) -> ResultView:
        """The stored result; its digest is the one on chain once `tx_hash` is set."""
        return _view(await row_of(request_id))

    @router.get(
        "/v1/results/{request_id}/output",
        response_class=Response,
        responses={304: {"description": "the bytes are those of the given digest"}},
    )
    async def output(
        request_id: int, if_none_match: Annotated[str | None, Header()] = None
    ) -> Response:
        """The output's bytes; their keccak256 is the ETag."""
        row = await row_of(request_id)
        tag = f'"0x{row["digest"].hex()}"'
        headers = {"etag": tag, "cache-control": "no-cache", **_INERT}
        if tag in _tags(if_none_match):
            return Response(status_code=304, headers=headers)
        try:
            content = await output_of(row, files())
        except OutputDropped as error:
            raise HTTPException(
                410, f"the output of request {request_id}: {error.reason}"
            ) from None
        except OutputUnreadable as error:
            raise HTTPException(
                500, f"the output of request {request_id}: {error.reason}"
            ) from None
        return Response(content, headers={**headers, "content-type": _media_type(row)})

    return router


def _tags(header: str | None) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in (header or "").split(",")}


def _media_type(row: Any) -> str:
    """What the worker says, where it can stand in a header."""
    said: str = row["media_type"]
    fits = said.isascii() and said.isprintable() and "/" in said and len(said) <= 200
    return said if fits else "application/octet-stream"


def _view(row: Any) -> ResultView:
    settled_tx, output = row["settled_tx_hash"], row["output"]
    return ResultView(
        id=row["request_id"],
        commitment="0x" + row["commitment"].hex(),
        digest="0x" + row["digest"].hex(),
        output_base64=None if output is None else base64.b64encode(output).decode(),
        output_bytes=row["file_bytes"] if output is None else len(output),
        media_type=row["media_type"],
        worker="0x" + row["worker"].hex(),
        workers=["0x" + worker.hex() for worker in row["workers"]],
        signature="0x" + row["signature"].hex(),
        manifest=row["manifest"],
        compute_ms=row["compute_ms"],
        tx_hash=None if settled_tx is None else "0x" + settled_tx.hex(),
        settled_block=row["settled_block"],
    )
