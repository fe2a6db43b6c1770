"""Supervision: restart, give up loudly, pass on what ends the session."""

from __future__ import annotations

import asyncio

import pytest

from indexer.errors import ExitCode, ReorgTooDeep, RpcUnreachable
from inferd.node.leader import LostLeadership
from inferd.node.supervise import CrashLoop, SessionEnded, first_cause, keep_running, run_all
from inferd.node.wakeup import Wakeup


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Script:
    """Raises what it was given, one thing a call."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> None:
        self.calls += 1
        raise self.errors.pop(0)


async def test_a_crashed_task_is_started_again_with_backoff() -> None:
    clock = Clock()
    work = Script(ValueError(), ValueError(), ValueError(), LostLeadership("end"))
    with pytest.raises(SessionEnded):
        await keep_running("test", work, clock=clock, pause=clock.pause)
    assert work.calls == 4
    assert clock.pauses == [0.1, 0.2, 0.4]


async def test_five_crashes_in_five_minutes_stop_the_daemon_loudly() -> None:
    clock = Clock()
    work = Script(*(ValueError() for _ in range(9)))
    with pytest.raises(CrashLoop) as caught:
        await keep_running("test", work, clock=clock, pause=clock.pause)
    assert work.calls == 5
    assert caught.value.exit_code is ExitCode.INTERNAL


async def test_rare_crashes_never_add_up() -> None:
    clock = Clock()

    async def pause(seconds: float) -> None:
        clock.now += 100

    work = Script(*(ValueError() for _ in range(20)), LostLeadership("end"))
    with pytest.raises(SessionEnded):
        await keep_running("test", work, clock=clock, pause=pause)
    assert work.calls == 21


async def test_a_task_that_returns_counts_as_crashed() -> None:
    clock = Clock()
    calls = 0

    async def work() -> None:
        nonlocal calls
        calls += 1

    with pytest.raises(CrashLoop):
        await keep_running("test", work, clock=clock, pause=clock.pause)
    assert calls == 5


async def test_what_passes_by_itself_is_no_crash() -> None:
    clock = Clock()
    errors = [RpcUnreachable("away", help_text="wait") for _ in range(30)]
    work = Script(*errors, LostLeadership("end"))
    with pytest.raises(SessionEnded):
        await keep_running("test", work, clock=clock, pause=clock.pause)
    assert work.calls == 31
    assert max(clock.pauses) == 10.0


async def test_what_only_a_person_can_mend_is_passed_on() -> None:
    with pytest.raises(ReorgTooDeep):
        await keep_running("test", Script(ReorgTooDeep("deep", help_text="repair")))


@pytest.mark.parametrize("error", [ConnectionResetError(), OSError("gone")])
async def test_a_lost_database_ends_the_session(error: Exception) -> None:
    with pytest.raises(SessionEnded):
        await keep_running("test", Script(error))


def test_the_cause_of_a_group_is_found_however_deep() -> None:
    ended, deep = SessionEnded("away"), ReorgTooDeep("deep", help_text="repair")
    assert first_cause(BaseExceptionGroup("a", [BaseExceptionGroup("b", [ended])])) is ended
    assert first_cause(BaseExceptionGroup("a", [ended, BaseExceptionGroup("b", [deep])])) is deep


async def for_ever() -> None:
    await asyncio.sleep(3600)


async def test_the_first_that_ends_the_session_ends_the_others() -> None:
    works = {"a": for_ever, "b": Script(LostLeadership("gone")), "c": for_ever}
    with pytest.raises(SessionEnded, match="b: LostLeadership: gone"):
        await run_all(works)
    assert len(asyncio.all_tasks()) == 1


async def test_of_several_what_only_a_person_can_mend_is_raised() -> None:
    deep = ReorgTooDeep("deep", help_text="repair")
    works = {"a": Script(LostLeadership("gone")), "b": Script(deep)}
    with pytest.raises(ReorgTooDeep):
        await run_all(works)


async def test_stopped_in_the_moment_of_a_failure__stops() -> None:
    async def lost() -> None:
        session.cancel()
        raise LostLeadership("gone")

    async def run() -> None:
        await run_all({"a": lost, "b": for_ever})

    session = asyncio.create_task(run())
    with pytest.raises(asyncio.CancelledError):
        await session


async def test_stopped_while_the_others_end__stops() -> None:
    async def slow_to_end() -> None:
        try:
            await for_ever()
        finally:
            session.cancel()

    async def run() -> None:
        await run_all({"a": slow_to_end, "b": Script(LostLeadership("gone"))})

    session = asyncio.create_task(run())
    with pytest.raises(asyncio.CancelledError):
        await session


async def test_a_task_that_was_cancelled_from_within_ends_the_session() -> None:
    with pytest.raises(SessionEnded):
        await run_all({"a": Script(asyncio.CancelledError()), "b": for_ever})


async def test_stopped_in_the_moment_of_a_ring__stops() -> None:
    bell = Wakeup()
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    bell.ring()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
