"""From settings to a back end that answers, for each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexer.types import Address, Contracts
from inferd.node.crew import hired
from inferd.node.settings import BadSettings, load_settings
from inferd.protocol.request import model_id
from inferd.workers.backends.base import Backend
from inferd.workers.backends.manifest import encode_manifest
from inferd.workers.backends.markov import MarkovBackend
from inferd.workers.backends.memory import ModelTooLarge
from inferd.workers.backends.opening import opened
from inferd.workers.backends.resting import Resting
from tests.workers.backends.scripted_server import Scripted, serving
from tests.workers.support import a_job

CONTRACTS = Contracts(31337, 0, *(Address(bytes([n]) * 20) for n in range(1, 6)))

SETTINGS = """
[[workers]]
name = "server"
backend = "openai"
model = "on-chain"
slots = 4
key = {{ dev_account = 5 }}
[workers.openai]
base_url = "{url}/v1"
model = "m"

[[workers]]
name = "program"
backend = "command"
model = "program"
key = {{ dev_account = 6 }}
[workers.command]
argv = ["cat"]

[[workers]]
name = "toy"
backend = "markov"
model = "toy"
unload_after_s = 60
key = {{ dev_account = 7 }}

[[workers]]
name = "vectors"
backend = "wordllama"
model = "vectors"
key = {{ dev_account = 8 }}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "inferd.toml"
    path.write_text(text)
    return path


async def test_the_daemons_workers_have_them_by_its_settings(tmp_path: Path) -> None:
    async with serving(Scripted()) as script:
        settings = load_settings(written(tmp_path, SETTINGS.format(url=script.url)))
        async with hired(settings, CONTRACTS, ()) as crew:
            backends: list[Backend] = [member.stock.backends[0] for member in crew.members]
            assert [backend.loaded for backend in backends] == [True] * 4
            for backend in backends:
                completion = await backend.run(a_job(1, b"hello"))
                assert 0 < len(completion.output) <= backend.max_output_bytes
                assert completion.manifest["model"] == backend.name
                assert encode_manifest(completion.manifest)
            assert isinstance(backends[2], Resting)


SEVERAL = """
[[workers]]
name = "both"
backend = "wordllama"
model = "vectors"
memory_mb = 100
slots = 3
key = {{ dev_account = 5 }}
[[workers.models]]
backend = "openai"
model = "on-chain"
[workers.models.openai]
base_url = "{url}/v1"
model = "m"
[[workers.models]]
backend = "markov"
model = "toy"
resident_mb = {toy_mb}
unload_after_s = 60
"""


async def test_a_worker_of_the_daemon_has_several_models_too(tmp_path: Path) -> None:
    async with serving(Scripted()) as script:
        text = SEVERAL.format(url=script.url, toy_mb=90)
        settings = load_settings(written(tmp_path, text))
        async with hired(settings, CONTRACTS, ()) as crew:
            (member,) = crew.members
            names = ["vectors", "on-chain", "toy"]
            assert list(member.models) == [model_id(name) for name in names]
            assert crew.names == {model_id(name): name for name in names}
            vectors, _, toy = member.stock.backends
            assert vectors.loaded
            async with member.stock.memory.holding(toy):
                assert not vectors.loaded, "90 MB of 100 leave no room for it"
    too_large = load_settings(written(tmp_path, SEVERAL.format(url=script.url, toy_mb=101)))
    with pytest.raises(ModelTooLarge, match="the model"):
        async with hired(too_large, CONTRACTS, ()):
            pass


def test_a_key_has_no_place_in_the_settings(tmp_path: Path) -> None:
    text = SETTINGS.format(url="http://127.0.0.1") + '[workers.openai]\napi_key = "sk-1234"\n'
    with pytest.raises(BadSettings) as caught:
        load_settings(written(tmp_path, text))
    assert "sk-1234" not in caught.value.message


async def test_what_cannot_start_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    async def fails(_: MarkovBackend) -> None:
        raise RuntimeError("no")

    async def close(backend: MarkovBackend) -> None:
        closed.append(backend)

    monkeypatch.setattr(MarkovBackend, "start", fails)
    monkeypatch.setattr(MarkovBackend, "close", close)
    settings = load_settings(written(tmp_path, SETTINGS.format(url="http://127.0.0.1")))
    with pytest.raises(RuntimeError, match="no"):
        async with opened(settings.workers[2], cache_dir=tmp_path):
            pass
    assert len(closed) == 1
