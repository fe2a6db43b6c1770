"""Waits for a request's end, patient with a node that is away for a while."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from indexer.errors import ExitCode, OperatorError, TemporaryError
from inferd.cli.client import NodeClient, NodeUnreachable, NotFound
from inferd.cli.output import note
from inferd.node.api_models import RequestState, RequestView

POLL_S = 0.5

ENDS = frozenset({RequestState.SETTLED, RequestState.REFUSED, RequestState.REFUNDED})


class WaitedTooLong(TemporaryError):
    """A request has not ended within the time given."""

    code: ClassVar[str] = "waited_too_long"


class NotServed(OperatorError):
    """A request ended without a result."""

    code: ClassVar[str] = "not_served"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


async def wait_until_settled(client: NodeClient, request_id: int, timeout_s: float) -> RequestView:
    """Returns the settled request. Raises NotServed, WaitedTooLong."""
    try:
        async with asyncio.timeout(timeout_s):
            view = await _ended(client, request_id)
    except TimeoutError:
        raise WaitedTooLong(
            f"request {request_id} has not ended within {timeout_s:g} s",
            help_text=f"it goes on: look at it with `inferd watch {request_id}`",
        ) from None
    if view.state is not RequestState.SETTLED:
        why = f": {view.sentence}" if view.sentence else ""
        raise NotServed(
            f"request {request_id} is {view.state}{why}",
            help_text=f"`inferd why {request_id}` says what can be done",
        )
    return view


async def _ended(client: NodeClient, request_id: int) -> RequestView:
    told: object = None
    while True:
        try:
            view = await client.request(request_id)
        except NotFound:
            pass  # Submitted a moment ago: not indexed yet.
        except NodeUnreachable as error:
            if told != error.message:
                told = error.message
                note(f"waiting: {error.message}")
        else:
            # An expired request's fee comes back by a refund, which may take long: it has ended.
            if view.state in ENDS or view.state is RequestState.EXPIRED:
                return view
            if told != view.state:
                told = view.state
                note(f"request {request_id} is {view.state}")
        await asyncio.sleep(POLL_S)
