"""A worker that hangs over group signatures is left alone for a while; nobody waits for it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.types import Address
from inferd.protocol.typed_data import CompactSignature
from inferd.settlement.hung_signers import Hangs, PatientSigning, SignerRests
from tests.settlement.world import World

WORKER, OTHER = Address(b"\x01" * 20), Address(b"\x02" * 20)
SIGNATURE = CompactSignature(bytes(64))


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Signer:
    """A worker that does as it is told."""

    def __init__(self) -> None:
        self.asked = 0
        self.does: BaseException | float | None = None
        """What it raises, or how long it takes to fail, or None: it signs."""
        self.clock = Clock()

    async def __call__(self, worker: Address, items: bytes, /) -> CompactSignature:
        self.asked += 1
        if isinstance(self.does, float):
            self.clock.now_s += self.does
            raise ConnectionError("reset")
        if self.does is not None:
            raise self.does
        return SIGNATURE


async def test_pauses_grow_with_each_hang_and_end_with_a_signature() -> None:
    signer = Signer()
    sign = PatientSigning(signer, clock=signer.clock)
    for rest_s in (15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0):
        signer.does = asyncio.CancelledError()
        with pytest.raises(asyncio.CancelledError):
            await sign(WORKER, b"")
        asked = signer.asked
        signer.clock.now_s += rest_s - 0.5
        with pytest.raises(SignerRests):
            await sign(WORKER, b"")
        assert signer.asked == asked, "it is not asked while it rests"
        signer.does = None
        assert await sign(OTHER, b"") == SIGNATURE, "others are"
        signer.clock.now_s += 0.5
    assert await sign(WORKER, b"") == SIGNATURE
    signer.does = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await sign(WORKER, b"")
    signer.clock.now_s += 15.0
    signer.does = None
    assert await sign(WORKER, b"") == SIGNATURE, "the first pause again"


async def test_questions_that_hang_together_are_one_hang() -> None:
    """A worker of several quorums is asked for several groups of one batch at a time."""
    signer, ever = Signer(), asyncio.Event()

    async def hangs(worker: Address, items: bytes, /) -> CompactSignature:
        signer.asked += 1
        await ever.wait()
        return SIGNATURE

    sign = PatientSigning(hangs, clock=signer.clock)
    asked = [asyncio.ensure_future(sign(WORKER, b"%d" % number)) for number in range(5)]
    while signer.asked < 5:
        await asyncio.sleep(0)
    for one in asked:
        one.cancel()
    await asyncio.wait(asked)
    signer.clock.now_s += 15.0
    ever.set()
    assert await sign(WORKER, b"") == SIGNATURE


async def test_a_slow_failure_is_a_hang_and_a_quick_one_is_none() -> None:
    signer = Signer()
    sign = PatientSigning(signer, clock=signer.clock)
    for _ in range(3):
        signer.does = 0.1
        with pytest.raises(ConnectionError):
            await sign(WORKER, b"")
    signer.does = 3.0
    with pytest.raises(ConnectionError):
        await sign(WORKER, b"")
    with pytest.raises(SignerRests):
        await sign(WORKER, b"")


WORKERS = st.sampled_from((WORKER, OTHER))


@given(
    st.lists(
        st.tuples(WORKERS, st.sampled_from(("ask", "hangs", "ends")), st.integers(0, 700)),
        max_size=60,
    )
)
def test_one_question_at_a_time_and_each_is_asked_again(
    steps: list[tuple[Address, str, int]],
) -> None:
    hangs, now_s, under_way = Hangs(), 0.0, set[Address]()
    ever_hung = set[Address]()
    for worker, step, passed_s in steps:
        now_s += passed_s
        if step == "ask":
            if hangs.may_ask(worker, now_s) and worker in ever_hung:
                assert worker not in under_way
                under_way.add(worker)
        elif step == "hangs":
            under_way.discard(worker)
            ever_hung.add(worker)
            assert not hangs.may_ask(worker, now_s + hangs.hung(worker, now_s) - 0.1)
        else:
            under_way.discard(worker)
            ever_hung.discard(worker)
            hangs.ended(worker)
            assert hangs.may_ask(worker, now_s)
    for worker in {WORKER, OTHER} - under_way:
        assert hangs.may_ask(worker, now_s + 600.0)


async def test_only_the_first_batch_waits_for_a_worker_that_hangs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    well, hung = world.workers[:2]
    real, asked = world.sign_group, 0

    async def sign_group(worker: Address, items: bytes) -> CompactSignature:
        nonlocal asked
        if worker == hung:
            asked += 1
            await asyncio.Event().wait()
        return await real(worker, items)

    monkeypatch.setattr(world, "sign_group", sign_group)
    settlement = world.settlement(sign_timeout_s=0.2)
    ids: list[int] = []
    for _ in range(2):
        fresh = await world.submit(4)
        await world.compute(fresh[:2], well)
        await world.compute(fresh[2:], hung)
        ids += fresh
        await world.tick(settlement, 3)
    assert await world.fulfilled_events() == dict.fromkeys(ids, 1)
    assert await world.posted() == 2
    assert asked == 1, "the second batch goes at once"
    assert [count for worker, count in world.groups_signed if worker == well] == [2, 2]
