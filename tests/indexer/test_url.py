"""What of an endpoint's URL may be shown, and which URLs are none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from indexer.errors import BadRpcUrl, RpcUnreachable
from indexer.rpc import Rpc, RpcError
from indexer.rpc.url import EndpointUrl
from inferd.chain.anvil import free_port
from tests.indexer.scripted import scripted_node

SECRET_URLS = [
    "http://user:hunter2secret@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/v3/hunter2secret",
    "http://127.0.0.1:{port}/?apikey=hunter2secret",
    "http://127.0.0.1:{port}/?hunter2secret",
]


@pytest.mark.parametrize(
    "echoed",
    [
        "/v3/a%2Fb%2Fproject",
        "/V3/A%2fB%2fPROJECT",
        "a/b/project",
        "?keyalone&token=two%20words",
        "two words",
        "Basic dXNlcjpodW50ZXIy",
    ],
)
def test_credentials__however_they_are_written__never_shown(echoed: str) -> None:
    secret = "https://user:hunter2@host/v3/a%2Fb%2Fproject?keyalone&token=two%20words"
    url = EndpointUrl(secret, schemes=("https",), setting="rpc_urls")
    shown = url.without_secrets(f"no such project: {echoed}").lower()
    for word in ("keyalone", "two words", "two%20words", "b/proj", "fproject", "dxnlcjpodw50zxiy"):
        assert word not in shown


@pytest.mark.parametrize("url", SECRET_URLS)
@pytest.mark.parametrize("trouble", ["down", "500", "echo", "html", "slow"])
async def test_credentials__in_any_error__never_shown(
    url: str, trouble: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async def script(body: Any) -> Any:
        if trouble == "500":
            return web.Response(status=500, text="hunter2secret")
        if trouble == "echo":
            error = {"code": -32000, "message": "project hunter2secret is over its quota"}
            return {"id": body["id"], "error": error}
        if trouble == "slow":
            await asyncio.sleep(5)
        return web.Response(text="hunter2secret")

    async with scripted_node(script=script) as node:
        port = free_port() if trouble == "down" else int(node.url.rsplit(":", 1)[1])
        filled = url.format(port=port)
        async with Rpc([filled, filled + "#"], timeout_s=0.2) as rpc:
            with pytest.raises((RpcUnreachable, RpcError)) as caught:
                await rpc.chain_id()
            shown = rpc.endpoint
    captured = capsys.readouterr()
    everything = "".join(
        [
            caught.getrepr(style="native").reprcrash.message,  # type: ignore[union-attr]
            str(caught.value),
            repr(caught.value),
            repr(caught.value.__cause__),
            getattr(caught.value, "help_text", ""),
            shown,
            caplog.text,
            captured.out,
            captured.err,
        ]
    )
    assert "hunter2secret" not in everything
    assert f"127.0.0.1:{port}" in shown


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8545",
        "ftp://hunter2secret@h/",
        "http://",
        "http://[::1",
        "http://h:x",
        "http://hunter2..x",
    ],
)
def test_url__that_is_none__says_so_without_showing_it(url: str) -> None:
    with pytest.raises(BadRpcUrl) as caught:
        Rpc([url])
    assert "hunter2secret" not in str(caught.value)


def test_no_url__says_so() -> None:
    with pytest.raises(BadRpcUrl):
        Rpc([])
