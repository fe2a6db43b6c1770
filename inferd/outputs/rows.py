"""The output of a row of node.result, wherever it is."""

from __future__ import annotations

import asyncio
from typing import Any

from indexer.types import Hash32
from inferd.outputs.files import OutputFiles, OutputUnreadable


class OutputDropped(OutputUnreadable):
    """It was deleted after its time; its digest and signature are kept."""


async def output_of(row: Any, files: OutputFiles | None) -> bytes:
    """By its columns `digest`, `output` and `file_bytes`. Raises OutputUnreadable."""
    if row["output"] is not None:
        output: bytes = row["output"]
        return output
    if row["file_bytes"] is None:
        raise OutputDropped("it was deleted after its time")
    if files is None:
        raise OutputUnreadable("its file is not on this machine")
    return await asyncio.to_thread(files.read, Hash32(row["digest"]))
