"""Which fields of a request a server takes, learnt from what it refuses: pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from inferd.workers.backends.openai.refusal import Refusal

_LEARNT_FROM = (400, 422)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The fields beside model and prompt."""

    limit_name: str = "max_tokens"
    """Or `max_completion_tokens`, as OpenAI's newer models have it."""
    temperature: bool = True
    seed: bool = True
    usage: bool = True
    """Whether it counts tokens in a stream."""

    def sampling(self, seed: int, max_tokens: int) -> dict[str, Any]:
        """What is asked of the sampler, as it is sent."""
        fields: dict[str, Any] = {self.limit_name: max_tokens}
        if self.temperature:
            fields["temperature"] = 0
        if self.seed:
            fields["seed"] = seed
        return fields


def simpler(dialect: Dialect, refusal: Refusal) -> Dialect | None:
    """What to try after a refusal: without the field that it names, else without one that servers
    most often lack. None where nothing is left to leave out, or that was not the reason."""
    if refusal.status not in _LEARNT_FROM:
        return None
    other = "max_completion_tokens" if dialect.limit_name == "max_tokens" else "max_tokens"
    ways = {
        "seed": replace(dialect, seed=False),
        "stream_options": replace(dialect, usage=False),
        "temperature": replace(dialect, temperature=False),
        # The newer name is tried last: who refuses that too knows neither.
        dialect.limit_name: replace(dialect, limit_name=other),
    }
    untried = {
        name: way
        for name, way in ways.items()
        if way != dialect and name != "max_completion_tokens"
    }
    named = [name for name in untried if name == refusal.param] or [
        name for name in untried if re.search(rf"\b{name}\b", refusal.text)
    ]
    return untried[named[0]] if named else next(iter(untried.values()), None)
