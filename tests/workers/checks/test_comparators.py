"""What counts as the same answer, of honest outputs and of any bytes."""

from __future__ import annotations

import json
import math
import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.workers.backends.embeddings import encode_embeddings, unit
from inferd.workers.checks.comparators import Exact, Json, Text, Vectors, comparator_of

ALL = (Exact(), Json(), Text(), Vectors(0.99))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=20,
)  # fmt: skip
BYTES = st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode())


@given(BYTES, BYTES)
def test_all_are_reflexive_and_symmetric_and_never_raise(one: bytes, other: bytes) -> None:
    for comparator in ALL:
        assert comparator.same(one, one)
        assert comparator.same(one, other) == comparator.same(other, one)


def shuffled(value: object, dice: random.Random) -> object:
    if isinstance(value, dict):
        items = [(name, shuffled(inner, dice)) for name, inner in value.items()]
        dice.shuffle(items)
        return dict(items)
    return [shuffled(inner, dice) for inner in value] if isinstance(value, list) else value


@given(JSON, st.integers())
def test_json_is_the_same_however_it_is_written(value: object, seed: int) -> None:
    one = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    plain = json.loads(one)
    other = json.dumps(shuffled(plain, random.Random(seed)), indent=2).encode()
    assert Json().same(one, other)


@given(JSON, JSON)
def test_other_json_is_another(one: object, other: object) -> None:
    same = Json().same(json.dumps(one).encode(), json.dumps(other).encode())
    # Python takes True for 1; repr tells them apart, and 1 from 1.0, which are the same here.
    if same:
        assert one == other
    if repr(one) == repr(other):
        assert same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"[1]", b"[1.0]", True),
        (b"[1]", b"[true]", False),
        (b"[0]", b"[null]", False),
        (b'{"a":1,"a":2}', b'{"a":2}', False),
        (b"[NaN]", b"[ NaN]", False),
        (b"[" * 50_000 + b"]" * 50_000, b" " + b"[" * 50_000 + b"]" * 50_000, False),
        (b"[" + b"9" * 100_000 + b"]", b"[ " + b"9" * 100_000 + b"]", False),
        (b"[" + b"[]," * 1_000_000 + b"1]", b"[ " + b"[]," * 1_000_000 + b"1]", False),
        (b"\xff\xfe[\x001\x00]\x00", b"[1]", False),
    ],
)  # fmt: skip
def test_json_at_its_edges(one: bytes, other: bytes, same: bool) -> None:
    assert Json().same(one, other) is same


WORDS = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8), max_size=6)


@given(WORDS, st.integers())
def test_text_is_the_same_however_it_is_spaced_and_composed(words: list[str], seed: int) -> None:
    dice = random.Random(seed)
    one = " ".join(words)
    other = "".join(word + " \n\t"[dice.randrange(3)] * dice.randint(1, 3) for word in words)
    assert Text().same(one.encode(), unicodedata.normalize("NFD", other).encode())


def test_other_text_is_another() -> None:
    assert not Text().same(b"a man", b"aman")
    assert not Text().same(b"A", b"a")
    assert Text().same("\u00e9".encode(), "e\u0301 ".encode())


def test_text_that_takes_long_to_normalise_is_compared_by_its_bytes() -> None:
    marks = ("a" + "\u0315\u0300\u0327" * 200_000).encode()
    assert Text().same(marks, marks)
    assert not Text().same(marks, marks + b" ")


VECTOR = st.lists(st.floats(-1, 1), min_size=3, max_size=3).filter(
    lambda vector: math.hypot(*vector) > 0.1
)


@given(st.lists(VECTOR, min_size=1, max_size=4), st.floats(0.9, 0.9999))
def test_vectors_are_the_same_up_to_their_angle(vectors: list[list[float]], least: float) -> None:
    one = encode_embeddings("m", 3, map(unit, vectors))
    nudged = [[value + 1e-6 for value in unit(vector)] for vector in vectors]
    assert Vectors(least).same(one, encode_embeddings("m", 3, map(unit, nudged)))
    away = [[-value for value in vector] for vector in vectors]
    assert not Vectors(least).same(one, encode_embeddings("m", 3, map(unit, away)))
    assert not Vectors(least).same(one, encode_embeddings("other", 3, map(unit, nudged)))
    assert not Vectors(least).same(one, encode_embeddings("m", 3, map(unit, [*nudged, nudged[0]])))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"[1, 0]", b"[0.9999, 0.001]", True),
        (b"[[1, 0], [0, 1]]", b"[[1.0, 0], [0.0001, 1]]", True),
        (b"[[1, 0], [0, 1]]", b"[[1.0, 0], [1, 0.0001]]", False),
        (b"[1, 0]", b"[2, 0]", False),
        (b"[1, 0]", b"[[1, 0]]", True),
        (b"[0, 0]", b"[0.0, 0]", False),
        (b"[1e308, 1e308]", b"[1e308, 1.0e308]", False),
        (b"[1, [2]]", b"[1,[2]]", False),
        (b"[]", b"[ ]", False),
        (b"[" + b"1," * 1_500_000 + b"1]", b"[ " + b"1," * 1_500_000 + b"1]", False),
    ],
)
def test_vectors_at_their_edges(one: bytes, other: bytes, same: bool) -> None:
    assert Vectors(0.99).same(one, other) is same


def test_what_an_operator_writes() -> None:
    assert [comparator_of(name) for name in ("exact", "json", "text")] == [Exact(), Json(), Text()]
    assert comparator_of("vectors:0.999") == Vectors(0.999)
    for wrong in ("", "Exact", "vectors", "vectors:", "vectors:0", "vectors:nan", "vectors:1.1"):
        with pytest.raises(ValueError, match=r"none of|no number"):
            comparator_of(wrong)
