"""Who is wrong: never the operator's own, never a majority, and nobody where it is not known."""

from __future__ import annotations

from collections import defaultdict
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address
from inferd.protocol.request import model_id
from inferd.workers.checks.comparators import Exact, Vectors
from inferd.workers.checks.rules import CheckRules, ModelRule, Use, chosen
from inferd.workers.checks.verdict import Answer, Verdict, verdict
from scheduler.model import RequestKey


def answer(worker: int, output: bytes, owner: int | None = None, trusted: bool = False) -> Answer:
    owned_by = worker if owner is None else owner
    return Answer(Address(bytes([worker]) * 20), Address(bytes([owned_by]) * 20), trusted, output)


def of(*workers: int) -> frozenset[Address]:
    return frozenset(Address(bytes([worker]) * 20) for worker in workers)


def test_two_strangers_that_differ_decide_nothing() -> None:
    assert not verdict([answer(1, b"a"), answer(2, b"b")], Exact()).decided


def test_two_strangers_that_agree_are_right() -> None:
    assert verdict([answer(1, b"a"), answer(2, b"a")], Exact()) == Verdict(of(1, 2), of())


def test_a_third_decides() -> None:
    found = verdict([answer(1, b"a"), answer(2, b"b"), answer(3, b"b")], Exact())
    assert found == Verdict(of(2, 3), of(1))


def test_workers_of_one_owner_have_one_vote() -> None:
    answers = [answer(1, b"a"), answer(2, b"b", owner=9), answer(3, b"b", owner=9)]
    assert not verdict(answers, Exact()).decided
    assert not verdict(answers[1:], Exact()).decided


def test_our_own_decides_at_once_against_any_majority() -> None:
    strangers = [answer(1, b"a"), answer(2, b"a"), answer(3, b"b")]
    found = verdict([*strangers, answer(4, b"b", trusted=True)], Exact())
    assert found == Verdict(of(3, 4), of(1, 2))


def test_our_own_that_contradict_each_other_decide_nothing() -> None:
    ours = [answer(1, b"a", trusted=True), answer(2, b"b", trusted=True)]
    assert not verdict([*ours, answer(3, b"b"), answer(4, b"b")], Exact()).decided


def test_vectors_between_two_others_do_not_make_them_agree() -> None:
    one, between, other = b"[1, 0]", b"[0.99, 0.1411]", b"[0.96, 0.28]"
    close = Vectors(0.985)
    found = verdict([answer(1, one), answer(2, between), answer(3, other)], close)
    assert found == Verdict(of(1, 2, 3), of()), "the one in the middle agrees with both"
    assert not verdict([answer(1, one), answer(3, other)], close).decided


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([b"a", b"b", b"c"]), st.booleans()),
        max_size=6,
    )
)
def test_it_holds_for_any_answers(given_answers: list[tuple[int, bytes, bool]]) -> None:
    answers = [
        answer(number + 10, output, owner, trusted and owner == 3)
        for number, (owner, output, trusted) in enumerate(given_answers)
    ]
    found = verdict(answers, Exact())
    everyone = frozenset(one.worker for one in answers)
    assert not found.right & found.wrong
    if not found.decided:
        assert not found.wrong, "nobody is wrong while it is open"
        return
    assert found.right | found.wrong == everyone
    outputs = {one.output for one in answers if one.worker in found.right}
    assert len(outputs) == 1
    trusted = {one.worker for one in answers if one.trusted}
    assert not trusted & found.wrong
    if not trusted:
        owners = defaultdict(set)
        for one in answers:
            owners[one.output].add(one.owner)
        (winner,) = outputs
        most = len(owners.pop(winner))
        assert most >= 2
        assert all(len(others) < most for others in owners.values())
    assert verdict(list(reversed(answers)), Exact()) == found


class Near:
    """Numbers that are one apart at most: not transitive."""

    def same(self, one: bytes, other: bytes) -> bool:
        return abs(one[0] - other[0]) <= 1


def near(*numbers: int, ours: int | None = None) -> list[Answer]:
    """The answers of workers 1, 2, ..., of an owner each."""
    return [
        answer(place, bytes([number]), trusted=place == ours)
        for place, number in enumerate(numbers, start=1)
    ]


def test_who_agrees_with_one_of_those_that_are_right_is_not_wrong() -> None:
    """Two who stand a step aside have an honest worker's vote, who stands between them and another
    honest one: that one was wrong or not by who was looked at first."""
    answers = near(0, 1, 2, 2)
    assert verdict(answers, Near()) == verdict(answers[::-1], Near()) == Verdict(of(1, 2, 3, 4))


def test_nor_is_who_agrees_with_one_of_our_own() -> None:
    ours = [answer(8, b"\1", trusted=True), answer(9, b"\2", trusted=True)]
    for both in (ours, ours[::-1]):
        found = verdict([*near(0, 3, 4), *both], Near())
        assert found == Verdict(of(1, 2, 8, 9), of(3))


def test_our_own_of_whom_only_the_first_agrees_with_all_decide_nothing() -> None:
    ours = [answer(place, bytes([place]), trusted=True) for place in (1, 0, 2)]
    for some in (ours, ours[::-1]):
        assert not verdict(some, Near()).decided


@given(st.lists(st.integers(0, 4), max_size=6), st.integers(1, 6), st.randoms())
def test_it_does_not_hang_on_the_order_of_answers(
    numbers: list[int], ours: int, random: Random
) -> None:
    for given_answers in (near(*numbers), near(*numbers, ours=ours)):
        found = verdict(given_answers, Near())
        mixed = random.sample(given_answers, len(given_answers))
        assert verdict(mixed, Near()) == found
        if found.decided:
            assert found.right | found.wrong == {one.worker for one in given_answers}
            assert not found.right & found.wrong


MODEL = model_id("m")


@given(st.binary(min_size=32, max_size=32), st.integers(1, 2**40), st.integers(0, 10**6))
def test_what_is_chosen_stays_chosen_at_higher_rates(key: bytes, number: int, ppm: int) -> None:
    request = RequestKey(number, number.to_bytes(20, "big"))
    assert not chosen(key, Use.SPOT, request, 0)
    assert chosen(key, Use.SPOT, request, 10**6)
    if chosen(key, Use.SPOT, request, ppm):
        assert chosen(key, Use.SPOT, request, min(10**6, 2 * ppm))


def test_rates_hold_and_depend_on_the_key() -> None:
    requests = [RequestKey(number, number.to_bytes(20, "big")) for number in range(4_000)]
    one, other = (
        {each.id for each in requests if chosen(bytes([n]) * 32, Use.SPOT, each, 250_000)}
        for n in (1, 2)
    )
    assert 900 < len(one) < 1_100
    assert 180 < len(one & other) < 320, "as of two keys that know nothing of each other"
    canaries = {each.id for each in requests if chosen(b"\x01" * 32, Use.CANARY, each, 250_000)}
    assert 180 < len(one & canaries) < 320


def test_only_deterministic_models_are_computed_once_more() -> None:
    rules = CheckRules({MODEL: ModelRule(deterministic=True)}, spot_ppm=5, probation_spot_ppm=7)
    assert rules.spot_rate_ppm(MODEL, on_probation=False) == 5
    assert rules.spot_rate_ppm(MODEL, on_probation=True) == 7
    assert rules.spot_rate_ppm(model_id("other"), on_probation=True) == 0


@given(st.floats(0, 1e6), st.integers(0, 2 * 10**6))
def test_a_result_is_never_held_for_more_than_half_of_its_time(now_s: float, deadline: int) -> None:
    until_s = CheckRules(hold_s=60.0).held_until_s(now_s, deadline)
    assert until_s is not None
    assert now_s <= until_s <= now_s + 60.0
    assert until_s - now_s <= max(0.0, (deadline - now_s) / 2) + 1e-6
    assert CheckRules(hold=False).held_until_s(now_s, deadline) is None
