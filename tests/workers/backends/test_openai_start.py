"""Finding a server: what it tells, what it does not take, and each way it can be wrong."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from indexer.errors import ExitCode, OperatorError
from inferd.chain.anvil import free_port
from inferd.workers.backends.choice import OpenAIOptions
from inferd.workers.backends.openai import errors
from inferd.workers.backends.openai.backend import OpenAIBackend
from tests.settlement.certificates import make_certificates
from tests.workers.backends.scripted_server import (
    HELLO,
    Answer,
    Asked,
    Scripted,
    refusal,
    serving,
)
from tests.workers.support import a_job


async def start(script: Scripted, **options: Any) -> OpenAIBackend:
    backend = OpenAIBackend(
        OpenAIOptions(**{"base_url": f"{script.url}/v1", "model": "m", **options}), name="n"
    )
    try:
        await backend.start()
    finally:
        await backend.close()
    return backend


async def refused(script: Scripted, **options: Any) -> OperatorError:
    with pytest.raises(OperatorError) as caught:
        await start(script, **options)
    error = caught.value
    assert "\n" not in error.message
    assert error.help_text
    return error


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://inference.invalid/v1", "its name is not known"),
        ("http://127.0.0.1:{free_port}/v1", "nothing listens there"),
    ],
)
async def test_nobody_is_there(url: str, words: str) -> None:
    error = await refused(Scripted(), base_url=url.format(free_port=free_port()))
    assert isinstance(error, errors.ServerUnreachable)
    assert error.exit_code is ExitCode.TRY_AGAIN
    assert words in error.message


async def test_somebody_else_is_there() -> None:
    async def page(_: Asked) -> web.Response:
        return web.Response(text="<h1>hello</h1>", content_type="text/html")

    for script in (
        Scripted(models=web.Response(text="<h1>hello</h1>", content_type="text/html")),
        Scripted(models={"data": "none"}),
        Scripted(page),
        Scripted(refusal(400, {"message": "no"})),
        Scripted(refusal(500)),
    ):
        async with serving(script):
            error = await refused(script)
            assert isinstance(error, errors.ServerUnusable)
            assert "hello" not in error.message


async def test_something_that_is_no_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        error = await refused(Scripted(), base_url=url, idle_timeout_s=0.2)
        assert isinstance(error, errors.ServerUnreachable)
        assert "no answer in time" in error.message


@pytest.mark.parametrize(
    ("answer", "kind", "exit_code"),
    [
        (refusal(401, {"message": "wrong key sk-1234"}), errors.ApiKeyRefused, 1),
        (refusal(403), errors.ApiKeyRefused, 1),
        (refusal(404, {"code": "model_not_found"}), errors.ModelMissing, 1),
        (refusal(404, {"message": "The model `m` does not exist."}), errors.ModelMissing, 1),
        (refusal(404, {"message": "Not Found"}), errors.ServerUnusable, 1),
        (refusal(429), errors.ServerBusy, 75),
        (refusal(503, {"message": "Loading model"}), errors.ServerBusy, 75),
    ],
)
async def test_it_does_not_want_us(
    answer: Answer, kind: type[OperatorError], exit_code: int
) -> None:
    async with serving(Scripted(answer)) as script:
        error = await refused(script)
    assert type(error) is kind
    assert error.exit_code == exit_code
    assert "sk-1234" not in error.message


async def test_the_model_must_be_in_its_list_where_it_has_one() -> None:
    many = {"data": [{"id": f"other-{n}"} for n in range(12)]}
    async with serving(Scripted(models=many)) as script:
        error = await refused(script)
        assert isinstance(error, errors.ModelMissing)
        assert "'other-9' and 2 more" in error.message
    tagged = {"data": [{"id": "m:latest", "owned_by": "library"}]}
    for models in (tagged, web.Response(status=404)):
        async with serving(Scripted(models=models)) as script:
            await start(script)


async def test_the_key_is_sent_and_never_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def locked(asked: Asked) -> web.StreamResponse:
        if asked.request.headers.get("Authorization") != "Bearer sk-secret":
            return web.Response(status=401)
        return await asked.stream(*HELLO)

    file = tmp_path / "key"
    file.write_text("sk-secret\n")
    monkeypatch.setenv("MY_KEY", "sk-secret")
    async with serving(Scripted(locked)) as script:
        await start(script, api_key_file=file)
        backend = await start(script, api_key_env="MY_KEY")
        assert "sk-secret" not in repr(vars(backend))
        monkeypatch.setenv("MY_KEY", "sk-other")
        error = await refused(script, api_key_env="MY_KEY")
        assert isinstance(error, errors.ApiKeyRefused)
        assert "sk-" not in error.message + error.help_text
    for text in ("", "sk-secret\nsk-more\n", "sk-sécret"):
        file.write_text(text)
        error = await refused(script, api_key_file=file)
        assert isinstance(error, errors.ApiKeyMissing)
        assert "sk-" not in error.message + error.help_text
    for options in ({"api_key_file": tmp_path / "none"}, {"api_key_env": "NOT_SET_AT_ALL"}):
        assert isinstance(await refused(script, **options), errors.ApiKeyMissing)


async def test_tls(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server, files.server_key)
    async with serving(Scripted(), context) as script:
        await start(script, ca_file=files.ca)
        error = await refused(script)
        assert isinstance(error, errors.ServerNotTrusted)
        assert "its certificate is not trusted" in error.message
        (tmp_path / "wrong.pem").write_text("no certificate")
        for wrong in ("none.pem", "wrong.pem"):
            error = await refused(script, ca_file=tmp_path / wrong)
            assert isinstance(error, errors.ServerNotTrusted)
    async with serving(Scripted()) as script:
        url = script.url.replace("http://", "https://") + "/v1"
        error = await refused(script, base_url=url)
        assert isinstance(error, errors.ServerNotTrusted)


def picky(*unknown: str, renamed: bool = False, named: bool = True) -> Answer:
    """A server that refuses some fields, with or without their name."""

    async def answer(asked: Asked) -> web.StreamResponse:
        wrong = [name for name in unknown if name in asked.body]
        if renamed and "max_tokens" in asked.body:
            wrong.append("max_tokens")
        if not wrong:
            return await asked.stream(*HELLO)
        words = f"Unsupported parameter: '{wrong[0]}'. Use 'max_completion_tokens' instead."
        return web.json_response({"error": {"message": words if named else "no"}}, status=400)

    return answer


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("unknown", "renamed"),
    [
        (("seed",), False),
        (("stream_options",), False),
        (("seed", "stream_options", "temperature"), False),
        (("temperature",), True),
        ((), True),
    ],
)
async def test_what_it_does_not_take_is_learnt_once(
    unknown: tuple[str, ...], *, renamed: bool, named: bool
) -> None:
    async with serving(Scripted(picky(*unknown, renamed=renamed, named=named))) as script:
        backend = OpenAIBackend(OpenAIOptions(base_url=f"{script.url}/v1", model="m"), name="n")
        await backend.start()
        script.asked.clear()
        completion = await backend.run(a_job())
        await backend.close()
    (asked,) = script.asked
    sampling = completion.manifest["sampling"]
    assert set(sampling) == asked.body.keys() & {
        "seed",
        "temperature",
        "max_tokens",
        "max_completion_tokens",
    }
    assert ("max_completion_tokens" in asked.body) is renamed
    if named:
        everything = {"seed", "stream_options", "temperature"}
        assert everything - asked.body.keys() == set(unknown), "nothing else was left out"


OWNERS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "llamacpp": (
        {"meta": {"size": 1000, "ftype": "Q8_0"}},
        {
            "/props": {
                "build_info": "b1",
                "total_slots": 3,
                "default_generation_settings": {"n_ctx": 512},
            }
        },
        {
            "software": "llama.cpp server",
            "version": "b1",
            "quantisation": "Q8_0",
            "context_tokens": 512,
            "memory_bytes": 1000,
            "slots": 3,
        },
    ),
    "library": (
        {},
        {
            "/api/version": {"version": "0.12"},
            "/api/show": {"details": {"quantization_level": "Q4_K_M"}},
            "/api/ps": {
                "models": [{"name": "m", "size": 9, "size_vram": 7, "context_length": 4096}]
            },
        },
        {
            "software": "Ollama",
            "version": "0.12",
            "quantisation": "Q4_K_M",
            "context_tokens": 4096,
            "memory_bytes": 9,
            "gpu_bytes": 7,
        },
    ),
    "sglang": (
        {"max_model_len": 8192},
        {"/get_server_info": {"version": "0.5"}},
        {"software": "SGLang", "version": "0.5", "context_tokens": 8192},
    ),
    "organization_owner": (
        {},
        {"/api/v0/models/m": {"quantization": "4bit", "loaded_context_length": 2048}},
        {"software": "LM Studio", "quantisation": "4bit", "context_tokens": 2048},
    ),
    "vllm": ({}, {"/version": ["odd"]}, {"software": "vLLM"}),
    "somebody": ({}, {}, {}),
}


@pytest.mark.parametrize("owner", OWNERS)
async def test_what_kinds_of_servers_tell(owner: str) -> None:
    entry, facts, told = OWNERS[owner]
    models = {"data": [{"id": "m", "owned_by": owner, **entry}]}
    async with serving(Scripted(models=models, facts=facts)) as script:
        backend = await start(script)
    known = {name: getattr(backend.facts, name) for name in type(backend.facts).__slots__}
    assert {name: value for name, value in known.items() if value} == told
