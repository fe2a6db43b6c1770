"""What goes through the broker: requests stay what was signed, and answers are believed nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address
from inferd.net.guarded import ExchangeError, Malformed, TooLarge, Unreachable
from inferd.workers.pull import names
from inferd.workers.pull.messages import arguments, read_answer

WORKER, OTHER = Address(b"\x11" * 20), Address(b"\x12" * 20)


def told(**changes: Any) -> bytes:
    result = {"status": 200, "headers": {}, "body": "{}"} | changes
    return json.dumps({"status": "SUCCESS", "result": result, "task_id": "x-1"}).encode()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_body_arrives_as_it_was_signed(text: str) -> None:
    body = text.encode()
    kwargs = arguments("POST", "/v1/jobs", {"authorization": "Inferd x"}, body)
    arrived = json.loads(json.dumps(kwargs))
    assert arrived["body"].encode() == body
    assert (arrived["method"], arrived["target"]) == ("POST", "/v1/jobs")
    answer = read_answer(told(body=text), len(body))
    assert answer.body == body


def test_headers_are_found_in_any_case() -> None:
    answer = read_answer(told(headers={"Retry-After": "3"}), 100)
    assert answer.headers.get("retry-after") == answer.headers["RETRY-AFTER"] == "3"
    assert answer.headers.get("Date", "none") == "none"


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=20),
        lambda inner: st.dictionaries(
            st.sampled_from(["status", "result", "headers", "body"]) | st.text(max_size=3), inner
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_comes_is_an_answer_or_an_exchange_error(message: bytes) -> None:
    try:
        answer = read_answer(message, 1000)
    except ExchangeError:
        return
    assert 100 <= answer.status <= 599
    assert len(answer.body) <= 1000


def test_what_is_wrong_is_told_apart() -> None:
    with pytest.raises(TooLarge):
        read_answer(told(body="x" * 101), 100)
    with pytest.raises(TooLarge):
        read_answer(b"x" * 100_000, 100)
    with pytest.raises(Malformed):
        read_answer(told(status=7), 100)
    with pytest.raises(Malformed):
        read_answer(told(body="\ud800"), 100)
    with pytest.raises(Malformed):
        read_answer(b'{"status":"SUCCESS","result":' + b"[" * 4_000, 10_000)
    for status, words in (("REVOKED", "after its time"), ("FAILURE", "gave up")):
        with pytest.raises(Unreachable, match=words):
            read_answer(json.dumps({"status": status, "result": None}).encode(), 100)


def test_all_of_a_worker_begins_with_its_prefix() -> None:
    own = names.prefix(WORKER)
    named = [names.queue(WORKER), names.answer(WORKER, "a-1"), *names.taken(WORKER).values()]
    assert all(name.startswith(own) for name in named)
    assert not any(name.startswith(names.prefix(OTHER)) for name in named)
