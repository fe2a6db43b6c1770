"""One question and what is made of its answer on the way back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Call = dict[str, Any]
Ask = Callable[[Any], Awaitable[Any]]
NEWS = "eth_subscription"
"""The method of what a node says unasked, over a websocket."""


@dataclass
class Exchange:
    """Faults change `answer` and how it is sent; an answer nobody set is the node's own."""

    body: Any
    ask: Ask
    """Asks the node itself; raises where it cannot be reached."""
    transport: Literal["http", "websocket"] = "http"
    answer: Any = None
    text: str | None = None
    """Sent in place of the answer where set."""
    http_status: int = 200
    http_headers: dict[str, str] = field(default_factory=dict)
    cut: float | None = None
    """The share of the bytes that are sent, as if they were all."""
    hang_up_after: float | None = None
    """The share of the bytes that are sent before the connection is closed."""
    copies: int = 1
    """How often a websocket message is sent."""

    @property
    def calls(self) -> list[Call]:
        return self.body if isinstance(self.body, list) else [self.body]

    @property
    def is_batch(self) -> bool:
        return isinstance(self.body, list)

    @property
    def methods(self) -> frozenset[str]:
        return frozenset(call["method"] for call in self.calls)

    async def answers(self) -> list[dict[str, Any]]:
        """The node's answers, one per call unless an earlier fault removed some."""
        if self.answer is None:
            self.answer = await self.ask(self.body)
        return self.answer if isinstance(self.answer, list) else [self.answer]

    async def change_results(self, change: Callable[[Call, Any], Any]) -> None:
        """Replaces each call's result by what `change` makes of it."""
        by_id = {call.get("id"): call for call in self.calls}
        for answer in await self.answers():
            if answer.get("id") in by_id and "result" in answer:
                answer["result"] = change(by_id[answer["id"]], answer["result"])

    async def result_of(self, method: str, *params: Any) -> Any:
        """Asks the node something on the side."""
        body = {"jsonrpc": "2.0", "id": 0, "method": method, "params": list(params)}
        return (await self.ask(body)).get("result")

    def fail_all(self, error: dict[str, Any]) -> None:
        """Every call is answered with this error object."""
        failed = [{"jsonrpc": "2.0", "id": call.get("id"), "error": error} for call in self.calls]
        self.answer = failed if self.is_batch else failed[0]
