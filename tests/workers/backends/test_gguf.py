"""What is read from a GGUF file, and files that are none."""

from __future__ import annotations

import hashlib
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.workers.backends.choice import BackendChoice, LlamaCppOptions
from inferd.workers.backends.gguf import GgufFacts, NotGguf, read_gguf
from inferd.workers.backends.opening import opened
from inferd.workers.model_files import ModelFile, ModelFileUnusable, own_model_file
from tests.workers.support import a_job


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def a_file(*pairs: bytes, count: int | None = None, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs) if count is None else count)
    return head + b"".join(pairs)


NAME = text(b"general.name") + struct.pack("<I", 8) + text("Größe".encode())
TYPE = text(b"general.file_type") + struct.pack("<II", 4, 15)
WORDS = text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text(b"a") + text(b"")
NUMBERS = text(b"scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3)
FLAG = text(b"flag") + struct.pack("<I?", 7, True)
PARTS = text(b"split.count") + struct.pack("<IH", 2, 3)


def read(folder: Path, content: bytes) -> GgufFacts:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return read_gguf(path)


def test_facts_are_found_wherever_they_stand(tmp_path: Path) -> None:
    expected = GgufFacts(name="Größe", quantisation="Q4_K_M", parts=1)
    assert read(tmp_path, a_file(NAME, TYPE, WORDS)) == expected
    assert read(tmp_path, a_file(WORDS, NUMBERS, FLAG, TYPE, NAME, version=2)) == expected
    assert read(tmp_path, a_file()) == GgufFacts(name="", quantisation="unknown", parts=1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"PK\x03\x04" * 10, "does not begin"),
        (a_file(version=9), "version is 9"),
        (a_file(NAME)[:-1], "in the middle"),
        (a_file(count=2**60), "claims to have"),
        (a_file(text(b"a") + struct.pack("<I", 99)), "unknown kind 99"),
        (a_file(text(b"a") + struct.pack("<IIQ", 9, 8, 2**60)), "in the middle"),
        (a_file(text(b"a") + struct.pack("<IIQ", 9, 4, 2**62)), "in the middle"),
        (a_file(text(b"a") + struct.pack("<IIQ", 9, 9, 1)), "unknown kind 9"),
        (a_file(struct.pack("<Q", 2**62)), "claims to have"),
    ],
)
def test_what_is_none_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(NotGguf, match=reason):
        read(tmp_path, content)
    with pytest.raises(ModelFileUnusable, match=reason):
        own_model_file(tmp_path / "model.gguf", threading.Event())


@given(st.binary(max_size=200))
def test_any_bytes_end_in_facts_or_in_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp()
    for content in (tail, b"GGUF" + tail, a_file(tail, count=3)):
        try:
            read(folder, content)
        except NotGguf as refused:
            assert str(refused)


def test_a_part_a_missing_file_and_an_interruption_are_told(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    stop = threading.Event()
    with pytest.raises(ModelFileUnusable, match="No such file"):
        own_model_file(path, stop)
    path.write_bytes(a_file(PARTS))
    with pytest.raises(ModelFileUnusable, match="one of 3 parts"):
        own_model_file(path, stop)
    path.write_bytes(a_file(TYPE))
    found = own_model_file(path, stop)
    assert found.weights == "model", "by its file, where it has no name"
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    stop.set()
    with pytest.raises(ModelFileUnusable, match="interrupted"):
        own_model_file(path, stop)


async def test_a_file_of_ones_own_is_run_and_told_about(smollm2: ModelFile, tmp_path: Path) -> None:
    options = LlamaCppOptions(file=smollm2.path, context_tokens=256, max_tokens=4)
    choice = BackendChoice(backend="llamacpp", model="mine", llamacpp=options)
    async with opened(choice, cache_dir=tmp_path) as backend:
        completion = await backend.run(a_job(1, b"What is the capital of France?", max_tokens=9))
        assert len(completion.output) <= backend.max_output_bytes
    assert completion.manifest["quantisation"] == smollm2.quantisation
    assert completion.manifest["file_sha256"] == smollm2.sha256
    assert completion.manifest["weights"].startswith("Smollm2")
    assert completion.manifest["completion_tokens"] == 4
    assert list(tmp_path.iterdir()) == [], "nothing was fetched"
