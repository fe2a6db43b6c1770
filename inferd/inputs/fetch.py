"""Content from where a request says it is, within limits, and only if it has the right hash."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urljoin

from inferd.inputs.source import NeverHad, NotNow, Source, data_of, source_of, url_of
from inferd.net.guarded import (
    Answer,
    ExchangeError,
    Forbidden,
    GuardedClient,
    Limits,
    TooLarge,
    checked_url,
)
from inferd.net.reach import Reach

_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_REDIRECTS = 3
_ANYWHERE = Reach.of(("0.0.0.0/0", "::/0"))


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What one fetch may take."""

    max_bytes: int
    timeout_s: float
    """From the first look-up of a name to the last byte, redirects included."""


class Fetcher:
    """Fetches from where strangers say, and from the operator's own gateway. `close` it at the
    end."""

    def __init__(
        self, reach: Reach, limits: FetchLimits, *, connections: int = 16, ipfs_gateway: str = ""
    ) -> None:
        """`reach` is for strangers' URIs, not for the gateway; without that no ipfs:// is had."""
        self._client = GuardedClient(reach, connections=connections, per_host=connections)
        self._own_client = GuardedClient(_ANYWHERE, connections=connections, per_host=connections)
        self._limits = limits
        self._gateway = ipfs_gateway

    async def close(self) -> None:
        await self._client.close()
        await self._own_client.close()

    async def fetch(self, request_input: bytes) -> bytes:
        """The content that a request's input of kind URI names. Raises NeverHad and NotNow."""
        source = source_of(request_input)
        if source.scheme == "data":
            return source.checked(data_of(source, self._limits.max_bytes))
        url = url_of(source, self._gateway)
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                content = await self._get(source, url)
        except TimeoutError:
            raise NotNow(f"it did not come within {self._limits.timeout_s:g} s") from None
        except (Forbidden, TooLarge) as error:
            raise NeverHad(error.reason) from None
        except ExchangeError as error:
            raise NotNow(error.reason) from None
        return await asyncio.to_thread(source.checked, content)

    async def _get(self, source: Source, url: str) -> bytes:
        client = self._own_client if source.scheme == "ipfs" else self._client
        timeout_s = self._limits.timeout_s
        limits = Limits(self._limits.max_bytes, timeout_s, timeout_s, timeout_s)
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await client.get(url, limits)
            if answer.status == 200:
                return answer.body
            if answer.status not in _REDIRECTS:
                raise NotNow(f"the answer was HTTP {answer.status}")
            url = _target(url, answer)
            # Where a gateway sends us is no longer the operator's word.
            client = self._client
        raise NeverHad(f"it was redirected more than {_MOST_REDIRECTS} times")


def _target(url: str, answer: Answer) -> str:
    """Raises Forbidden for what is no http(s) URL."""
    try:
        target = urljoin(url, answer.headers.get("location", ""))
    except ValueError:
        raise Forbidden("the redirect's URL cannot be read") from None
    checked_url(target)
    return target
