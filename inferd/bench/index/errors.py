"""What can go wrong with a measurement."""

from __future__ import annotations

from typing import ClassVar

from indexer.errors import ExitCode, OperatorError


class BenchFailed(OperatorError):
    """A way of a benchmark did not end, or its rows are not those of the chain."""

    code: ClassVar[str] = "bench_failed"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED
