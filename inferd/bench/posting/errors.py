"""What can be wrong with the benchmark of posting."""

from __future__ import annotations

from typing import ClassVar

from indexer.errors import ExitCode, OperatorError


class PlotsMissing(OperatorError):
    """The library that draws plots is not installed."""

    code: ClassVar[str] = "plots_missing"


class PostingTargetMissed(OperatorError):
    """Posting costs more than it should, or a deadline was missed."""

    code: ClassVar[str] = "posting_target_missed"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED
