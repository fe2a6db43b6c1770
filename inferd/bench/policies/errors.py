"""What can be wrong with a comparison of policies."""

from __future__ import annotations

from typing import ClassVar

from indexer.errors import ExitCode, OperatorError


class BenchExtraMissing(OperatorError):
    """HiGHS or matplotlib is not installed."""

    code: ClassVar[str] = "bench_extra_missing"

    def __init__(self, message: str) -> None:
        super().__init__(message, help_text="pip install 'inferd[bench]'")


class PolicyTargetMissed(OperatorError):
    """The default policy earns less than it should, or dispatched or posted what it should not."""

    code: ClassVar[str] = "policy_target_missed"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED
