"""Who answers something else than a quorum agreed on, and what follows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

import pytest

from indexer.types import Address
from inferd.protocol.request import ModelId, model_id
from inferd.protocol.result import pack_items
from inferd.protocol.typed_data import group_digest, recover
from inferd.workers.checks import evidence
from inferd.workers.checks.comparators import Comparator, Exact, comparator_of
from inferd.workers.checks.evidence import Kind, Recorded
from inferd.workers.checks.inspection import Inspection
from inferd.workers.checks.rules import CheckRules, ModelRule
from inferd.workers.dispatch import Dispatcher
from inferd.workers.reputation import suspend
from tests.node.house import House, house, no_fence
from tests.node.test_quorum_rounds import Crowd, says
from tests.workers.support import DOMAIN, MODEL

__all__ = ["house"]

THIS = ModelId(model_id(MODEL))


@pytest.fixture
async def crowd(house: House) -> AsyncIterator[Crowd]:
    made = Crowd(house, 5)
    await made.register()
    yield made
    await made.dispatcher.close()


class OfStrangers(Inspection):
    """Of workers that are in this process, and yet are not the operator's but for some."""

    own: frozenset[Address] = frozenset()

    def trusts(self, worker: Address, owner: Address | None = None) -> bool:
        return worker in self.own


async def inspect(
    crowd: Crowd,
    *,
    deterministic: bool = True,
    comparator: Comparator | None = None,
    own: Collection[int] = (),
) -> None:
    """`own` are the places of the operator's workers."""
    rule = ModelRule(deterministic, comparator or Exact())
    rules = CheckRules(models={THIS: rule}, spot_ppm=0, canary_ppm=0)
    inspection = OfStrangers(crowd.pool, rules)
    inspection.own = frozenset(crowd.workers[place].address for place in own)
    async with crowd.db.acquire() as connection, connection.transaction():
        await inspection.begin(connection)
    crowd.dispatcher = Dispatcher(
        crowd.pool,
        crowd.db,
        fence=no_fence,
        on_change=lambda outcome: None,
        inspection=inspection,
    )
    crowd.house.dispatcher = crowd.house.rounds.dispatcher = crowd.dispatcher


async def records(crowd: Crowd) -> list[Recorded]:
    async with crowd.db.acquire() as connection:
        return await evidence.of_worker(connection)


async def answered_by_four(crowd: Crowd, liar: int, said: bytes) -> None:
    """The first three at once, the fourth for what is missing then."""
    crowd.backends[liar].answer = says(said)
    for worker in crowd.workers[3:]:
        crowd.pool.reserve(worker.address)
    await crowd.house.request(1, quorum=3)
    await crowd.round()
    assert not await records(crowd), "nothing is agreed on yet"
    crowd.pool.release(crowd.workers[3].address)
    await crowd.round()
    assert len(await crowd.answers()) == 4


async def suspended(crowd: Crowd) -> list[bytes]:
    rows = await crowd.db.fetch("SELECT worker FROM node.worker_suspension WHERE distrusted")
    return [row["worker"] for row in rows]


async def test_a_minority_of_a_deterministic_model_is_accused_with_what_proves_it(
    crowd: Crowd,
) -> None:
    await inspect(crowd)
    await answered_by_four(crowd, 1, b"a lie")
    (found,) = await records(crowd)
    record, liar = found.disagreement, crowd.workers[1].address
    assert (record.kind, record.decided, record.accused.worker) == (Kind.QUORUM, True, liar)
    assert record.accused.output == b"a lie"
    assert record.accused.signature is not None
    signed = group_digest(DOMAIN, pack_items([record.item]))
    assert recover(signed, record.accused.signature) == liar
    right = {crowd.workers[number].address for number in (0, 2, 3)}
    assert {side.worker for side in record.others} == right
    assert {side.output for side in record.others} == {b"answer to prompt"}
    assert await suspended(crowd) == [liar]
    lies = await crowd.db.fetch("SELECT worker, lies FROM node.reputation WHERE lies > 0")
    assert [tuple(row) for row in lies] == [(liar, 1)]
    assert await crowd.pending() == 0


@pytest.mark.parametrize(
    ("deterministic", "comparator", "said", "recorded"),
    [
        (True, "text", b"answer  to\nprompt ", []),
        (True, "text", b"answer to another", [True]),
        (False, "exact", b"a lie", [False]),
    ],
)
async def test_other_bytes_may_say_the_same__and_of_some_models_nobody_need_be_wrong(
    crowd: Crowd, deterministic: bool, comparator: str, said: bytes, recorded: list[bool]
) -> None:
    await inspect(crowd, deterministic=deterministic, comparator=comparator_of(comparator))
    await answered_by_four(crowd, 2, said)
    assert [one.disagreement.decided for one in await records(crowd)] == recorded
    assert len(await suspended(crowd)) == sum(recorded)
    assert await crowd.pending() == 0, "what the chain needs are the same bytes of three"


async def test_liars_that_were_found_out_before_it_is_posted__accuse_nobody(crowd: Crowd) -> None:
    """Two agree on a lie, are suspended for another, and those who are asked next are honest."""
    await inspect(crowd)
    liars, honest = crowd.workers[:2], crowd.workers[2:4]
    for place in range(2):
        crowd.backends[place].answer = says(b"a lie")
    for worker in crowd.workers[2:]:
        crowd.pool.reserve(worker.address)
    await crowd.house.request(1, quorum=2)
    await crowd.round()
    assert len(await crowd.answers()) == 2
    async with crowd.db.acquire() as connection:
        for worker in liars:
            await suspend(connection, worker.address, "a canary", "inferd", distrusted=True)
    for worker in honest:
        crowd.pool.release(worker.address)
        await crowd.round()
    assert len(await crowd.answers()) == 4
    accused = {one.disagreement.accused.worker for one in await records(crowd)}
    assert accused == {worker.address for worker in liars}
    assert set(await suspended(crowd)) == accused


async def test_our_own_worker_is_right_against_any_majority__whose_answer_is_not_posted(
    crowd: Crowd,
) -> None:
    await inspect(crowd, own=[1])
    for place in (0, 2):
        crowd.backends[place].answer = says(b"a lie")
    for worker in crowd.workers[2:]:
        crowd.pool.reserve(worker.address)
    await crowd.house.request(1, quorum=2)
    await crowd.round()
    liars = [crowd.workers[place].address for place in (0, 2)]
    assert await suspended(crowd) == liars[:1], "ours decides at once"
    crowd.pool.release(crowd.workers[2].address)
    await crowd.round()
    assert sorted(await suspended(crowd)) == sorted(liars)
    for found in await records(crowd):
        (side,) = found.disagreement.others
        assert (side.worker, found.disagreement.decided) == (crowd.workers[1].address, True)
    crowd.pool.release(crowd.workers[3].address)
    await crowd.round()
    assert await crowd.pending() == 0, "an honest stranger agrees with ours"
    assert len(await suspended(crowd)) == 2


async def test_of_a_model_that_is_not_deterministic_our_own_is_not_accused_either(
    crowd: Crowd,
) -> None:
    await inspect(crowd, deterministic=False, own=[1])
    await answered_by_four(crowd, 1, b"something else")
    assert not await records(crowd)


async def test_our_own_that_contradict_each_other_accuse_nobody(crowd: Crowd) -> None:
    await inspect(crowd, own=[0, 1])
    crowd.backends[1].answer = says(b"something else")
    for worker in crowd.workers[2:]:
        crowd.pool.reserve(worker.address)
    await crowd.house.request(1, quorum=3)
    await crowd.round()
    for worker in crowd.workers[2:4]:
        crowd.pool.release(worker.address)
    await crowd.round()
    assert len(await crowd.answers()) == 4
    assert not await records(crowd)
    assert await crowd.pending() == 0, "three agree"
