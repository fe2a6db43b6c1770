"""Streams, manifests, vectors, refusals and choices: functions of values."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from inferd.workers.backends.choice import BackendChoice, CommandOptions, OpenAIOptions
from inferd.workers.backends.embeddings import encode_embeddings, most_bytes, unit
from inferd.workers.backends.manifest import (
    MAX_MANIFEST_BYTES,
    NotCanonical,
    encode_manifest,
    manifest_of,
)
from inferd.workers.backends.openai.dialect import Dialect, simpler
from inferd.workers.backends.openai.refusal import (
    Refusal,
    Refused,
    error_of,
    refusal_of,
    retry_after_s,
)
from inferd.workers.backends.openai.sse import BadStream, SseReader
from inferd.workers.job import WorkerBusy, WorkerFailed

# ---- streams

_line = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1, max_size=20)
_payloads = st.lists(st.lists(_line, min_size=1, max_size=3), max_size=6)
_line_end = st.sampled_from(["\n", "\r\n", "\r"])


@given(payloads=_payloads, end=_line_end, noise=st.booleans(), data=st.data())
def test_events_are_the_same_however_the_bytes_are_cut(
    payloads: list[list[str]], end: str, noise: bool, data: st.DataObject
) -> None:
    extra = f": comment{end}id: 1{end}" if noise else ""
    events = ["".join(f"data: {line}{end}" for line in lines) for lines in payloads]
    stream = "".join(f"{extra}{event}{end}" for event in events).encode()
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    reader = SseReader(max_event_bytes=1 << 20)
    found = []
    for first, last in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[first:last])
    found += reader.end()
    assert [event.decode() for event in found] == ["\n".join(lines) for lines in payloads]


def test_a_line_end_may_be_cut_in_two() -> None:
    reader = SseReader(max_event_bytes=100)
    assert reader.feed(b"data: a\r") == []
    assert reader.feed(b"\ndata: b\r") == []
    assert reader.feed(b"\n\r\n") == [b"a\nb"]


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_are_read_within_bounds(chunks: list[bytes]) -> None:
    reader = SseReader(max_event_bytes=300)
    held = 0
    try:
        for chunk in chunks:
            for event in reader.feed(chunk):
                assert len(event) <= 300
            held = len(reader._buffer) + reader._data_bytes
            assert held <= 300
    except BadStream:
        assert sum(map(len, chunks)) > 300


def test_lines_of_one_event_belong_together_and_the_last_needs_no_end() -> None:
    reader = SseReader(max_event_bytes=100)
    assert reader.feed(b"data: a\ndata:b\n\ndata: c") == [b"a\nb"]
    assert reader.end() == [b"c"]
    assert reader.end() == []


# ---- manifests

_leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), st.text(max_size=20)
)
_names = st.text("abcdefghij_", min_size=1, max_size=8)
_tables = st.dictionaries(_names, st.one_of(_leaves, st.lists(_leaves, max_size=3)), max_size=4)


def manifest(sampling: dict[str, Any], **more: Any) -> dict[str, Any]:
    return manifest_of(
        model="m",
        weights="w",
        backend="b",
        version="1",
        sampling=sampling,
        prompt_tokens=1,
        completion_tokens=None,
        finish_reason="stop",
        **more,
    )


@given(_tables, st.randoms(use_true_random=False))
def test_a_manifest_has_one_encoding(sampling: dict[str, Any], random: Any) -> None:
    made = manifest(sampling)
    encoded = encode_manifest(made)
    assert json.loads(encoded) == made, "nothing is lost"
    assert encode_manifest(json.loads(encoded)) == encoded, "and it comes back as the same bytes"
    shuffled = list(made.items())
    random.shuffle(shuffled)
    assert encode_manifest(dict(shuffled)) == encoded
    assert b"\\u0000" not in encoded
    assert b'": ' not in encoded.replace(b'\\"', b"")
    encoded.decode()


@pytest.mark.parametrize(
    "value", [0.5, math.nan, b"bytes", 2**53, -(2**53), {1: 2}, {"ä": 1}, [[[[[1]]]]], ("a",)]
)
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonical):
        manifest({"value": value})


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_foreign_text_is_made_to_fit_and_never_encoded_as_it_is(text: str) -> None:
    assert encode_manifest(manifest({"value": text}))
    with pytest.raises(NotCanonical):
        encode_manifest({"value": text})


def test_a_manifest_is_bounded() -> None:
    assert len(encode_manifest(manifest({"value": "x" * 10_000}))) < 1_000
    for letter in ("\x01", "ä", '"', "\\", "\U0001f600"):
        worst = letter * 10_000
        made = manifest_of(
            model=worst,
            weights=worst,
            quantisation=worst,
            backend=worst,
            version=worst,
            sampling={"seed": 2**31, "max_tokens": 2**32},
            prompt_tokens=2**31,
            completion_tokens=2**31,
            finish_reason=worst,
        )
        assert len(encode_manifest(made)) < MAX_MANIFEST_BYTES - 500, "room for what is added"
    with pytest.raises(NotCanonical, match="at most"):
        manifest({f"value_{n}": "x" * 200 for n in range(MAX_MANIFEST_BYTES // 200)})


# ---- vectors


@given(st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=8))
def test_a_vector_gets_length_one_or_has_no_direction(vector: list[float]) -> None:
    if not any(vector):
        with pytest.raises(ValueError, match="direction"):
            unit(vector)
        return
    assert math.fsum(value * value for value in unit(vector)) == pytest.approx(1)


@pytest.mark.parametrize("vector", [[math.nan, 1.0], [1.0, math.nan], [math.inf], []])
def test_what_is_no_vector_is_none(vector: list[float]) -> None:
    with pytest.raises(ValueError, match="direction"):
        unit(vector)


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=5))
def test_an_encoding_is_never_longer_than_was_promised(vectors: list[list[float]]) -> None:
    assert len(encode_embeddings("ä", 3, vectors)) <= most_bytes("ä", 3, len(vectors))


# ---- refusals


@given(st.binary(max_size=300), st.sampled_from([200, 400, 429, 500]))
def test_any_answer_has_a_meaning_and_is_not_repeated(body: bytes, status: int) -> None:
    refusal = refusal_of(status, body)
    error = error_of(Refused(refusal))
    assert isinstance(error, WorkerBusy if status == 429 else WorkerFailed)
    assert len(error.reason) < 150
    assert error.reason.isprintable()


@given(st.text(), st.text(), st.text())
def test_only_a_single_word_of_a_server_is_shown(code: str, kind: str, message: str) -> None:
    body = json.dumps({"error": {"code": code, "type": f"{kind} my prompt", "message": message}})
    words = error_of(Refused(refusal_of(500, body.encode()))).reason
    shown = words.removeprefix("its server answered with HTTP 500").strip(" ()")
    assert "my prompt" not in words
    assert not shown or (shown == code and len(shown) <= 64 and " " not in shown)


@pytest.mark.parametrize("code", ["said my prompt", "x" * 65, "line\nline", 7, None])
def test_what_is_more_than_a_word_is_left_out(code: object) -> None:
    body = json.dumps({"error": {"code": code}}).encode()
    assert error_of(Refused(refusal_of(500, body))).reason == "its server answered with HTTP 500"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "context_length_exceeded"}},
        {"error": {"code": 400, "type": "exceed_context_size_error"}},
        {"object": "error", "message": "This model's maximum context length is 4096 tokens."},
        {"error": {"message": "Input length (9) exceeds the model's context length."}},
        {"detail": "The prompt is too long: 9 tokens"},
    ],
)
def test_what_servers_say_of_long_prompts(body: Any) -> None:
    assert refusal_of(400, json.dumps(body).encode()).too_long
    assert not refusal_of(500, json.dumps({"message": "context length"}).encode()).too_long


def test_other_refusals_are_not_about_length() -> None:
    for text in ("invalid seed", "model not found", "hello"):
        assert not Refusal(400, text=text).too_long


@given(st.sampled_from([400, 422]), st.text(max_size=60), st.text(max_size=20))
def test_a_dialect_gets_simpler_until_nothing_is_left(status: int, text: str, param: str) -> None:
    dialect: Dialect | None = Dialect()
    steps = 0
    while dialect is not None:
        dialect, steps = simpler(dialect, Refusal(status, param=param, text=text)), steps + 1
        assert steps <= 5


def test_a_fault_teaches_nothing() -> None:
    assert simpler(Dialect(), Refusal(500, param="seed")) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *((nothing, None) for nothing in (None, "", "-1", "nan", "Wed, 21 Oct 2026 07:28:00 GMT")),
        ("3", 3.0),
        ("9e9", 60.0),
    ],
)
def test_when_to_come_back(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header) == seconds


# ---- choices

SERVER = {"base_url": "http://127.0.0.1:8000/v1/"}


def test_a_base_url_is_taken_without_its_last_slash() -> None:
    assert OpenAIOptions(**SERVER).base_url == "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a", "http://", "http://u:p@a/v1", "http://a?key=1", "http://a#b", "http://[", "a"],
)
def test_a_base_url_is_plain(url: str) -> None:
    with pytest.raises(ValidationError, match="base_url") as caught:
        OpenAIOptions(base_url=url)
    assert "u:p" not in str(caught.value.errors(include_input=False, include_url=False))


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": "openai"},
        {"backend": "command"},
        {"backend": "markov", "openai": SERVER},
        {"backend": "markov", "llamacpp": {"file": "/model.gguf"}},
        {"backend": "openai", "openai": SERVER, "unload_after_s": 5},
        {"backend": "openai", "openai": {**SERVER, "api_key": "sk-1"}},
        {"backend": "openai", "openai": {**SERVER, "api_key_file": "a", "api_key_env": "B"}},
        {"backend": "openai", "openai": {**SERVER, "ca_file": "a"}},
        {"backend": "command", "command": {"argv": []}},
        {"backend": "command", "command": {"argv": ["a\x00"]}},
        {"backend": "command", "command": {"argv": ["a"], "environment": ["INFERD_KEY"]}},
        {"backend": "elsewhere"},
    ],
)
def test_options_belong_to_their_kind(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BackendChoice(model="m", **wrong)


def test_a_choice_is_a_value() -> None:
    one = BackendChoice(backend="command", model="m", command=CommandOptions(argv=("cat",)))
    assert one == BackendChoice.model_validate(one.model_dump())
    assert hash(one) == hash(one.model_copy())
