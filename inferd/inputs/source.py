"""What a request's input says where the content is, and what the content must be. Pure.

The input of kind URI is 32 bytes keccak256 of the content, then the URI in UTF-8.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from urllib.parse import unquote, unquote_to_bytes

from eth_utils.crypto import keccak

from indexer.types import Hash32

HASH_BYTES = 32
_IPFS_PATH = re.compile(r"[A-Za-z0-9]{20,128}(/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*/?")
"""A content identifier in base32, base36 or base58, and a path below it."""
_BASE64 = ";base64"


class InputError(Exception):
    """There is no content. `reason` is in words, for the requester."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NeverHad(InputError):
    """Another try would end the same."""


class NotNow(InputError):
    """Another try may end well."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the content is, and what is to come of it."""

    digest: Hash32
    """keccak256 of the content."""
    uri: str

    @property
    def scheme(self) -> str:
        return self.uri.partition(":")[0].lower()

    def checked(self, content: bytes) -> bytes:
        """The content, if it is what was committed to. Raises NeverHad."""
        if keccak(content) != self.digest:
            raise NeverHad("what is at its URI has another hash than it commits to")
        return content


def source_of(request_input: bytes) -> Source:
    """Raises NeverHad."""
    digest, uri = request_input[:HASH_BYTES], request_input[HASH_BYTES:]
    if len(digest) < HASH_BYTES or not uri:
        raise NeverHad("it is not 32 bytes of a hash and a URI")
    try:
        return Source(Hash32(digest), uri.decode())
    except UnicodeDecodeError:
        raise NeverHad("its URI is not UTF-8") from None


def input_of(content: bytes, uri: str) -> bytes:
    """The input of a request that names this content."""
    return keccak(content) + uri.encode()


def url_of(source: Source, ipfs_gateway: str) -> str:
    """Where to ask by HTTP. Raises NeverHad.

    Plain http:// is as good as https://: the hash tells whether the content is the right one.
    """
    if source.scheme in {"http", "https"}:
        return source.uri
    if source.scheme != "ipfs":
        raise NeverHad("its URI is none of https://, http://, ipfs:// and data:")
    path = source.uri.partition(":")[2].removeprefix("//")
    if not _IPFS_PATH.fullmatch(path) or _climbs(path):
        raise NeverHad("what follows ipfs:// is no content identifier with a path")
    if not ipfs_gateway:
        raise NeverHad("this node has no gateway for ipfs://")
    return f"{ipfs_gateway.rstrip('/')}/ipfs/{path}"


def _climbs(path: str) -> bool:
    """Whether it leaves its folder, also for a server that decodes it twice."""
    return ".." in re.split(r"[/\\]", unquote(unquote(path)))


def data_of(source: Source, max_bytes: int) -> bytes:
    """The content of a data: URI (RFC 2397). Raises NeverHad."""
    head, comma, body = source.uri.partition(":")[2].partition(",")
    if not comma:
        raise NeverHad("its data: URI has no comma")
    content = unquote_to_bytes(body)
    if head.lower().endswith(_BASE64):
        try:
            content = base64.b64decode(content, validate=True)
        except binascii.Error:
            raise NeverHad("its data: URI is not base64") from None
    if len(content) > max_bytes:
        raise NeverHad(f"it has more than {max_bytes} bytes")
    return content
