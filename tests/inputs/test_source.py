"""What the input of a request by URI says, whatever its bytes are."""

from __future__ import annotations

import base64
from urllib.parse import quote, urlsplit

import pytest
from eth_utils.crypto import keccak
from hypothesis import given
from hypothesis import strategies as st

from inferd.inputs.source import NeverHad, Source, data_of, input_of, source_of, url_of
from inferd.net.guarded import Forbidden, checked_url

_GATEWAY = "https://gateway.example"
_CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"


def _at(uri: str, content: bytes = b"prompt") -> Source:
    return source_of(input_of(content, uri))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_source_or_are_turned_away(given_bytes: bytes) -> None:
    try:
        source = source_of(given_bytes)
        url_of(source, _GATEWAY)
        data_of(source, 100)
    except NeverHad as error:
        assert error.reason


@given(st.binary(max_size=300), st.booleans())
def test_data_is_what_was_written(content: bytes, in_base64: bool) -> None:
    body = base64.b64encode(content).decode() if in_base64 else quote(content)
    source = _at(f"data:text/plain{';base64' if in_base64 else ''},{body}", content)
    assert source.checked(data_of(source, 300)) == content


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("data:text/plain", "no comma"),
        ("data:;base64,%%%", "not base64"),
        ("data:;base64,YQ", "not base64"),
        ("data:," + "x" * 11, "more than 10 bytes"),
    ],
)
def test_data_that_cannot_be_read_says_why(uri: str, words: str) -> None:
    with pytest.raises(NeverHad, match=words):
        data_of(_at(uri), 10)


def test_other_content_than_was_committed_to_is_refused() -> None:
    source = _at("https://example.test/", b"prompt")
    assert source.digest == keccak(b"prompt")
    with pytest.raises(NeverHad, match="another hash"):
        source.checked(b"prompt ")


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("https://example.test/a?b=c", "https://example.test/a?b=c"),
        ("http://example.test/", "http://example.test/"),
        (f"ipfs://{_CID}", f"{_GATEWAY}/ipfs/{_CID}"),
        (f"IPFS://{_CID}/a/b.txt", f"{_GATEWAY}/ipfs/{_CID}/a/b.txt"),
    ],
)
def test_where_it_is_asked_for(uri: str, url: str) -> None:
    assert url_of(_at(uri), _GATEWAY + "/") == url


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://example.test/a",
        "file:///etc/passwd",
        "gopher://x",
        "no uri",
        "ipfs://short",
        f"ipfs://{_CID}/../../admin",
        f"ipfs://{_CID}/%2e%2E/admin",
        f"ipfs://{_CID}/a%2f..%2fadmin",
        f"ipfs://{_CID}/%252e%252e/admin",
        f"ipfs://{_CID}/..%5cadmin",
        f"ipfs://{_CID}?a=b",
        f"ipfs://{_CID}/a#b",
        f"ipfs://{_CID}@evil.example/",
    ],
)
def test_what_is_not_fetched_at_all(uri: str) -> None:
    with pytest.raises(NeverHad):
        url_of(_at(uri), _GATEWAY)


def test_without_a_gateway_no_ipfs() -> None:
    with pytest.raises(NeverHad, match="no gateway"):
        url_of(_at(f"ipfs://{_CID}"), "")


@given(st.text(max_size=80))
def test_an_ipfs_uri_never_leaves_its_gateway(rest: str) -> None:
    try:
        url = url_of(_at(f"ipfs://{_CID}{rest}"), _GATEWAY)
        checked_url(url)
    except (NeverHad, Forbidden):
        return
    parts = urlsplit(url)
    assert parts.netloc == "gateway.example"
    assert parts.path.startswith("/ipfs/")
    assert ".." not in parts.path.split("/")
