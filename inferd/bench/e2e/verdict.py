"""What a run must never show, however fast or slow it was: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferd.bench.index.errors import BenchFailed


def check(found: Mapping[str, Any]) -> None:
    """Raises BenchFailed where a request was lost, ended twice or was not paid to the wei."""
    wrong = [
        f"{found[name]} {words}"
        for name, words in (
            ("lost", "requests sent and not settled"),
            ("doubled", "requests settled more than once"),
            ("credit_error_wei", "wei credited beside the fees of what was settled"),
        )
        if int(found[name])
    ]
    if wrong:
        raise BenchFailed(
            "; ".join(wrong),
            help_text="run it with `--folder`, and look into node.log there; a rate that is too"
            " high for the machine leaves requests behind",
        )
