"""The node's HTTP API, as commands ask it."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, TypeVar
from urllib.parse import urlsplit

import aiohttp
from pydantic import BaseModel, ValidationError

from indexer.errors import OperatorError, TemporaryError
from indexer.rpc.trouble import words_of
from inferd.node.api_models import (
    DecisionsView,
    EncryptionKeyView,
    RequestPage,
    RequestView,
    ResultView,
    StatusView,
    WhyView,
)
from inferd.node.pool_models import PoolView, PoolWorkerDetailView
from inferd.node.settings import without_credentials

_MAX_ANSWER_BYTES = 64 * 1024 * 1024
_TIMEOUT_S = 10.0
_LOOK_AT_THE_RELEASE = "run the same release on both sides: every node of this one has them"
_LOOK_AT_THE_ID = "look at the id; a request made just now may not be indexed yet"

M = TypeVar("M", bound=BaseModel)


class NodeUnreachable(TemporaryError):
    """The node's API does not answer, or not now."""

    code: ClassVar[str] = "node_unreachable"


class NotFound(OperatorError):
    """The node knows nothing of what was asked."""

    code: ClassVar[str] = "not_found"


class NotAnInferdNode(OperatorError):
    """What answers is not the API of a node of this release."""

    code: ClassVar[str] = "not_an_inferd_node"


class NodeClient:
    """Reads from one node. Every method raises NodeUnreachable and NotAnInferdNode."""

    def __init__(self, url: str) -> None:
        """Raises NotAnInferdNode for what is no URL."""
        self._url = url.rstrip("/")
        try:
            # Whoever looks the host up encodes it so.
            (urlsplit(url).hostname or "").encode("idna")
        except ValueError:
            raise _bad_url() from None
        self.shown = without_credentials(url)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> NodeClient:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def status(self) -> StatusView:
        return await self._get(
            "/v1/status", StatusView, missing="status", look=_LOOK_AT_THE_RELEASE
        )

    async def requests(self, limit: int) -> RequestPage:
        """The newest `limit` requests, newest first."""
        return await self._get(
            f"/v1/requests?limit={limit}",
            RequestPage,
            missing="requests",
            look=_LOOK_AT_THE_RELEASE,
        )

    async def request(self, request_id: int) -> RequestView:
        """Raises NotFound too."""
        return await self._get(
            f"/v1/requests/{request_id}", RequestView, missing=f"request {request_id}"
        )

    async def why(self, request_id: int) -> WhyView:
        """Raises NotFound too."""
        return await self._get(
            f"/v1/requests/{request_id}/why", WhyView, missing=f"request {request_id}"
        )

    async def decisions(self, request_id: int) -> DecisionsView:
        """Raises NotFound too."""
        return await self._get(
            f"/v1/requests/{request_id}/decisions",
            DecisionsView,
            missing=f"request {request_id}",
        )

    async def round_snapshot(self, round_id: int) -> bytes | None:
        """What a round saw, compressed; None where the node does not keep it."""
        status, body = await self._fetch(f"/v1/rounds/{round_id}/snapshot")
        if status == 404:
            return None
        self._check(status)
        return body

    async def result(self, request_id: int) -> ResultView:
        """Raises NotFound too: no such request, or no result of it here."""
        return await self._get(
            f"/v1/results/{request_id}", ResultView, missing=f"result of request {request_id}"
        )

    async def workers(self) -> PoolView:
        return await self._get(
            "/v1/workers", PoolView, missing="workers", look=_LOOK_AT_THE_RELEASE
        )

    async def worker(self, address: str) -> PoolWorkerDetailView:
        """Raises NotFound too."""
        return await self._get(
            f"/v1/workers/{address}",
            PoolWorkerDetailView,
            missing=f"worker {address}",
            look="`inferd workers` lists those it knows: its own, and all that are registered",
        )

    async def encryption_key(self) -> EncryptionKeyView:
        return await self._get(
            "/v1/encryption-key",
            EncryptionKeyView,
            missing="encryption key",
            look=_LOOK_AT_THE_RELEASE,
        )

    async def output(self, request_id: int) -> bytes:
        """The result's bytes. Raises NotFound too."""
        path, missing = f"/v1/results/{request_id}/output", f"output of request {request_id}"
        return await self._body(path, missing=missing)

    async def _get(
        self,
        path: str,
        model: type[M],
        *,
        missing: str,
        look: str = _LOOK_AT_THE_ID,
    ) -> M:
        body = await self._body(path, missing=missing, look=look)
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            raise self._foreign(f"{error.error_count()} field(s) do not fit") from None

    async def _body(self, path: str, *, missing: str, look: str = _LOOK_AT_THE_ID) -> bytes:
        """`missing` is what the node may not have; `look` says where to look then."""
        status, body = await self._fetch(path)
        if status == 404:
            raise NotFound(f"the node at {self.shown} has no {missing}", help_text=look)
        if status == 410:
            raise NotFound(
                f"the node at {self.shown} has deleted the {missing}: it was settled long ago",
                help_text="the chain keeps its digest; `retention.settled_days` and"
                " `retention.output_days` of the node say how long it keeps outputs",
            )
        self._check(status)
        return body

    def _check(self, status: int) -> None:
        if status >= 500:
            raise NodeUnreachable(
                f"the node at {self.shown} cannot answer now (HTTP {status})",
                help_text="try again; `inferd status` says what keeps it",
            )
        if status != 200:
            raise self._foreign(f"HTTP {status}")

    async def _fetch(self, path: str) -> tuple[int, bytes]:
        if self._session is None:
            raise RuntimeError("the client is not open")
        try:
            async with self._session.get(self._url + path, allow_redirects=False) as response:
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > _MAX_ANSWER_BYTES:
                        raise self._foreign(f"more than {_MAX_ANSWER_BYTES} bytes")
                return response.status, bytes(body)
        except aiohttp.InvalidURL:
            raise _bad_url() from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise NodeUnreachable(
                f"the node at {self.shown} does not answer: {words_of(error)}",
                help_text="start it with `inferd node`, or correct `node_url`",
            ) from None

    def _foreign(self, what: str) -> NotAnInferdNode:
        return NotAnInferdNode(
            f"what answers at {self.shown} is not an inferd node of this release: {what}",
            help_text="correct `node_url`, or run the same release on both sides",
        )


def _bad_url() -> NotAnInferdNode:
    return NotAnInferdNode(
        "`node_url` is no http:// or https:// URL",
        help_text="correct it, for example http://127.0.0.1:8700",
    )
