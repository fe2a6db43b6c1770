"""Leadership: one at a time, taken over when the holder dies, fenced when it does not know."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from indexer.database import Pool, connect
from indexer.types import Address
from inferd.node.leader import (
    Leadership,
    LostLeadership,
    become_leader,
    become_part,
    bury_processes,
    displace_leader,
    is_led_as_a_whole,
    poster_role,
)


async def test_second_waits_until_first_releases(database: str) -> None:
    first = await become_leader(database, "first")
    waiting = asyncio.create_task(become_leader(database, "second"))
    await asyncio.sleep(1.5)
    assert not waiting.done()
    await first.release()
    second = await asyncio.wait_for(waiting, 5)
    assert second.epoch == first.epoch + 1
    await second.release()


async def test_killed_connection_is_noticed_and_followed(database: str) -> None:
    first = await become_leader(database, "first")
    admin = await connect(database)
    watching = asyncio.create_task(first.watch())
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND datname = current_database()"
    )
    second = await asyncio.wait_for(become_leader(database, "second"), 5)
    with pytest.raises(LostLeadership):
        await asyncio.wait_for(watching, 5)
    await second.release()
    await admin.close()


async def test_fence_refuses_an_older_epoch(database: str, pool: Pool) -> None:
    first = await become_leader(database, "first")
    async with pool.acquire() as connection, connection.transaction():
        await first.fence(connection)
    await first.release()
    second = await become_leader(database, "second")
    with pytest.raises(LostLeadership):
        async with pool.acquire() as connection, connection.transaction():
            await first.fence(connection)
    await second.release()


async def test_successor_waits_for_a_fenced_transaction(database: str, pool: Pool) -> None:
    first = await become_leader(database, "first")
    async with pool.acquire() as connection, connection.transaction():
        await first.fence(connection)
        await first.release()
        successor = asyncio.create_task(become_leader(database, "second"))
        await asyncio.sleep(0.5)
        assert not successor.done()
    second = await asyncio.wait_for(successor, 5)
    assert second.epoch == first.epoch + 1
    await second.release()


async def test_a_key_is_claimed_by_one_at_a_time(database: str, pool: Pool) -> None:
    one = await become_leader(database, "one", role="one")
    other = await become_leader(database, "other", role="other")
    key = poster_role(1, Address(b"\x01" * 20))
    fence = await one.claim(key)
    assert fence is not None
    assert await other.claim(key) is None
    assert await other.claim(poster_role(1, Address(b"\x02" * 20))) is not None
    await one.release()
    async with asyncio.timeout(10):
        while (taken := await other.claim(key)) is None:
            await asyncio.sleep(0.05)
    with pytest.raises(LostLeadership, match=key):
        async with pool.acquire() as connection, connection.transaction():
            await fence(connection)
    async with pool.acquire() as connection, connection.transaction():
        await taken(connection)
    await other.release()
    with pytest.raises(LostLeadership):
        await other.claim(key)


async def test_who_lost_the_lead_has_lost_its_keys(database: str, pool: Pool) -> None:
    first = await become_leader(database, "first")
    fence = await first.claim("poster")
    assert fence is not None
    async with pool.acquire() as connection, connection.transaction():
        await displace_leader(connection, "rebuild")
    with pytest.raises(LostLeadership, match="of node was followed"):
        async with pool.acquire() as connection, connection.transaction():
            await fence(connection)
    await first.release()


async def writes(pool: Pool, leadership: Leadership) -> bool:
    async with pool.acquire() as connection, connection.transaction():
        try:
            await leadership.fence(connection)
        except LostLeadership:
            return False
    return True


async def test_processes_divide_roles_and_each_has_one_at_a_time(database: str, pool: Pool) -> None:
    first = await become_part(database, "first", ["index", "schedule"])
    others = [await become_part(database, name, []) for name in ("dispatch", "dispatch too")]
    settler = await become_part(database, "settler", ["settle"])
    second = asyncio.create_task(become_part(database, "second", ["settle", "schedule"]))
    await asyncio.sleep(1.5)
    assert not second.done()
    # While it waits it holds none of them: who asks for one that is free has it.
    await settler.release()
    settler = await asyncio.wait_for(become_part(database, "settler again", ["settle"]), 10)
    assert [await writes(pool, one) for one in (first, *others, settler)] == [True] * 4
    assert len({one.process for one in (first, *others, settler)}) == 4
    await settler.release()
    await first.release()
    await (await asyncio.wait_for(second, 10)).release()
    for one in others:
        await one.release()


async def test_a_whole_daemon_and_its_parts_never_work_at_the_same_time(
    database: str, pool: Pool
) -> None:
    whole = await become_leader(database, "whole")
    waiting = asyncio.create_task(become_part(database, "part", ["index"]))
    await asyncio.sleep(1.5)
    assert not waiting.done()
    async with pool.acquire() as connection:
        assert await is_led_as_a_whole(connection)
    await whole.release()
    one = await asyncio.wait_for(waiting, 10)
    assert not await writes(pool, whole)
    async with pool.acquire() as connection:
        assert not await is_led_as_a_whole(connection)
    other = await become_part(database, "other", [])
    again = asyncio.create_task(become_leader(database, "whole again"))
    await one.release()
    await asyncio.sleep(1.5)
    assert not again.done(), "one part is left"
    assert await writes(pool, other)
    await other.release()
    whole = await asyncio.wait_for(again, 10)
    assert await writes(pool, whole)
    assert not await writes(pool, one)
    assert not await writes(pool, other)
    await whole.release()


async def test_a_rebuild_displaces_all_parts(database: str, pool: Pool) -> None:
    parts = [await become_part(database, "one", ["index"]), await become_part(database, "two", [])]
    async with pool.acquire() as connection, connection.transaction():
        await displace_leader(connection, "rebuild")
    assert [await writes(pool, one) for one in parts] == [False, False]
    for one in parts:
        await one.release()


async def test_processes_are_buried_when_their_locks_are_gone(database: str, pool: Pool) -> None:
    one, other = [await become_part(database, name, []) for name in ("one", "other")]
    async with pool.acquire() as connection, connection.transaction():
        living, dead = await bury_processes(connection)
    assert (set(living), dead) == ({one.process, other.process}, [])
    await one.release()
    async with asyncio.timeout(30):
        while not dead:
            async with pool.acquire() as connection, connection.transaction():
                living, dead = await bury_processes(connection)
    assert (living, dead) == ([other.process], [one.process])
    assert not await writes(pool, one)
    await other.release()


async def test_a_server_that_hangs_while_a_key_is_asked_for_is_noticed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferd.node.leader._ANSWER_S", 0.3)
    leadership = await become_part(database, "part", ["settle"])
    backend = await leadership._ask("SELECT pg_backend_pid()")
    os.kill(backend, signal.SIGSTOP)
    try:
        watching = asyncio.create_task(leadership.watch())
        async with asyncio.timeout(30):
            with pytest.raises(LostLeadership):
                await leadership.is_elsewhere("poster")
            with pytest.raises(LostLeadership):
                await watching
            await leadership.release()
    finally:
        os.kill(backend, signal.SIGCONT)
