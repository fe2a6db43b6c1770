"""Where an agent listens: certificates, and metrics on a listener of their own."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from inferd.workers.service.agent import AgentFileUnwritable, NoOperators
from inferd.workers.service.listening import BadCertificate
from tests.settlement.certificates import make_certificates
from tests.workers.service.support import an_agent
from tests.workers.support import Scripted


async def test_it_serves_https_and_says_what_is_wrong_with_a_certificate(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    tls: dict[str, Any] = {"tls_certificate": files.server, "tls_key": files.server_key}
    async with an_agent(tmp_path / "a", Scripted(), **tls) as (agent, operator):
        assert agent.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=files.ca)
        connector = aiohttp.TCPConnector(ssl=trusting)
        async with aiohttp.ClientSession(connector=connector) as session:
            operator.session = session
            assert (await operator.send("GET", "/v1/health"))[0] == 200
    for wrong in (files.client_encrypted_key, files.client_key, tmp_path / "none"):
        with pytest.raises(BadCertificate):
            async with an_agent(tmp_path / "b", Scripted(), **tls | {"tls_key": wrong}):
                pass


async def test_an_agent_for_nobody_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(NoOperators):
        async with an_agent(tmp_path, Scripted(), operators=()):
            pass


async def test_metrics_are_apart(tmp_path: Path) -> None:
    async with an_agent(tmp_path, Scripted()) as (agent, operator):
        assert operator.session is not None
        await operator.send("GET", "/v1/health")
        async with operator.session.get(agent.metrics_url + "/metrics") as response:
            page = await response.text()
        assert 'inferd_agent_requests_total{kind="health",status="200"}' in page
        async with operator.session.get(agent.metrics_url + "/v1/health") as response:
            assert response.status == 404


async def test_an_agent_that_cannot_say_where_it_listens_does_not_start(tmp_path: Path) -> None:
    async with an_agent(tmp_path, Scripted()):
        (said,) = tmp_path.glob("*/agent.json")
    in_the_way = said.with_suffix(".new")
    in_the_way.mkdir()
    with pytest.raises(AgentFileUnwritable, match=r"agent\.json cannot be written"):
        async with an_agent(tmp_path, Scripted()):
            pass
    in_the_way.rmdir()
    async with an_agent(tmp_path, Scripted()):
        # The disk went away: the agent ends in order all the same.
        said.unlink()
        said.mkdir()
