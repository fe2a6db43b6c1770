"""What can be wrong with the files that a comparison is asked to read."""

from __future__ import annotations

from typing import ClassVar

from indexer.errors import OperatorError


class BadSeries(OperatorError):
    """A trace or a series of base fees cannot be read."""

    code: ClassVar[str] = "bad_series"


class ExtraMissing(OperatorError):
    """A package of an optional extra is not installed."""

    code: ClassVar[str] = "extra_missing"
