"""Records of disagreements: complete, written once; what follows is in the same transaction."""

from __future__ import annotations

from dataclasses import replace

from eth_keys.datatypes import PrivateKey

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.protocol.request import model_id
from inferd.protocol.result import digest_of, pack_items
from inferd.protocol.typed_data import DigestSigner, group_digest, recover
from inferd.workers import reputation
from inferd.workers.checks import evidence
from inferd.workers.checks.evidence import KEPT_OUTPUT_BYTES, Disagreement, Dispute, Kind, Side
from inferd.workers.checks.suspension import SuspensionRule, accuse, suspend_liar
from inferd.workers.job import Job, SignedResult
from tests.workers.support import DOMAIN, MODEL, a_job

ONE, OTHER, THIRD = (PrivateKey(bytes([n]) * 32) for n in (1, 2, 3))


def address(key: PrivateKey) -> Address:
    return Address(key.public_key.to_canonical_address())


def result_of(job: Job, key: PrivateKey, output: bytes) -> SignedResult:
    made = SignedResult(
        job.key, address(key), digest_of(output), output, "text/plain", {"model": MODEL}, b"", 5
    )  # type: ignore[arg-type]
    signature = DigestSigner(key).sign(group_digest(DOMAIN, pack_items([made.item])))
    return replace(made, signature=signature)


def a_disagreement(job: Job | None = None, kind: Kind = Kind.SPOT, **more: object) -> Disagreement:
    job = job or a_job(7)
    return Disagreement(
        kind=kind,
        key=job.key,
        model_id=model_id(MODEL),
        accused=Side.of(result_of(job, ONE, b"wrong" * 20_000)),
        others=(
            Side.of(result_of(job, OTHER, b"right")),
            Side(None, digest_of(b"right"), None, None, None),
        ),
        reason="two workers say otherwise",
        **more,  # type: ignore[arg-type]
    )


async def test_what_is_recorded_can_be_verified_by_anybody(connection: Connection) -> None:
    number = await evidence.record(connection, a_disagreement())
    assert number is not None
    found = await evidence.load(connection, number)
    assert found is not None
    accused = found.disagreement.accused
    assert accused.signature is not None
    signed = group_digest(DOMAIN, pack_items([found.disagreement.item]))
    assert recover(signed, accused.signature) == accused.worker == address(ONE)
    assert accused.output == (b"wrong" * 20_000)[:KEPT_OUTPUT_BYTES]
    assert accused.output_bytes == 100_000
    other, known = found.disagreement.others
    assert other == Side.of(result_of(a_job(7), OTHER, b"right"))
    assert (known.worker, known.signature, known.output) == (None, None, None)
    assert found.dispute is Dispute.WANTED
    assert await evidence.of_worker(connection, address(ONE)) == [found]
    assert await evidence.of_worker(connection, address(OTHER)) == []


async def test_a_repeated_record_changes_nothing(connection: Connection) -> None:
    assert await evidence.record(connection, a_disagreement()) is not None
    assert await evidence.record(connection, a_disagreement()) is None
    assert len(await evidence.of_worker(connection)) == 1


async def test_what_was_undecided_is_decided_once(connection: Connection) -> None:
    open_one = await evidence.record(connection, a_disagreement(decided=False))
    found = await evidence.load(connection, open_one or 0)
    assert found is not None
    assert found.dispute is Dispute.NONE
    assert await evidence.record(connection, a_disagreement()) == open_one
    assert await evidence.record(connection, a_disagreement(decided=False)) is None
    (found,) = await evidence.of_worker(connection)
    assert found.disagreement.decided
    assert found.dispute is Dispute.WANTED
    await evidence.acquit(connection, Kind.SPOT, a_job(7).key, [address(ONE)])
    assert await evidence.of_worker(connection) == [found], "what is decided stays"


async def test_a_canary_that_is_no_request_is_never_disputed(connection: Connection) -> None:
    await evidence.record(connection, a_disagreement(kind=Kind.CANARY, on_chain=False))
    (found,) = await evidence.of_worker(connection)
    assert (found.dispute, found.disagreement.on_chain) == (Dispute.NONE, False)


async def test_one_decided_disagreement_suspends_and_counts_once(connection: Connection) -> None:
    for _ in range(2):
        await accuse(connection, a_disagreement(), SuspensionRule())
    suspension = (await reputation.suspensions(connection))[address(ONE)]
    assert suspension.suspended_by == "inferd"
    assert suspension.distrusted
    (record,) = await evidence.of_worker(connection)
    assert f"record {record.id}" in suspension.reason
    (count,) = await reputation.load(connection, address(ONE))
    assert count.lies == 1


async def test_an_undecided_one_suspends_nobody(connection: Connection) -> None:
    await accuse(connection, a_disagreement(decided=False), SuspensionRule())
    assert await reputation.suspensions(connection) == {}
    assert await reputation.load(connection) == []


async def test_a_pardoned_worker_begins_anew(connection: Connection) -> None:
    rule = SuspensionRule(after=2)
    await accuse(connection, a_disagreement(a_job(1)), rule)
    assert await reputation.suspensions(connection) == {}
    await accuse(connection, a_disagreement(a_job(2)), rule)
    assert set(await reputation.suspensions(connection)) == {address(ONE)}
    assert await reputation.resume(connection, address(ONE))
    await accuse(connection, a_disagreement(a_job(3)), rule)
    assert await reputation.suspensions(connection) == {}


async def test_equivocation_suspends_whatever_the_rule(connection: Connection) -> None:
    await accuse(connection, a_disagreement(kind=Kind.EQUIVOCATION), SuspensionRule(after=0))
    assert set(await reputation.suspensions(connection)) == {address(ONE)}


async def test_lies_suspend_only_within_a_day(connection: Connection) -> None:
    for lease, hours in ((1, 30), (2, 2), (3, 1)):
        await connection.execute(
            "INSERT INTO node.worker_failure VALUES"
            " ($1, $2, $3, 1, 'lied: x', now() - $4 * interval '1 hour')",
            lease,
            address(ONE),
            model_id(MODEL),
            hours,
        )
    await suspend_liar(connection, address(ONE), SuspensionRule(after_lies=3))
    await suspend_liar(connection, address(ONE), SuspensionRule(after_lies=0))
    assert await reputation.suspensions(connection) == {}
    await suspend_liar(connection, address(ONE), SuspensionRule(after_lies=2))
    assert set(await reputation.suspensions(connection)) == {address(ONE)}


async def test_lies_before_a_pardon_count_no_more(connection: Connection) -> None:
    for lease in (1, 2):
        await connection.execute(
            "INSERT INTO node.worker_failure VALUES ($1, $2, $3, 1, 'lied: x')",
            lease,
            address(ONE),
            model_id(MODEL),
        )
    await reputation.resume(connection, address(ONE))
    await suspend_liar(connection, address(ONE), SuspensionRule(after_lies=2))
    assert await reputation.suspensions(connection) == {}


async def test_a_crash_leaves_a_record_and_its_suspension_or_neither(pool: Pool) -> None:
    class Crash(Exception):
        pass

    try:
        async with pool.acquire() as connection, connection.transaction():
            await accuse(connection, a_disagreement(), SuspensionRule())
            raise Crash
    except Crash:
        pass
    async with pool.acquire() as connection:
        assert await evidence.of_worker(connection) == []
        assert await reputation.suspensions(connection) == {}
        await accuse(connection, a_disagreement(), SuspensionRule())
        assert len(await evidence.of_worker(connection)) == 1
        assert len(await reputation.suspensions(connection)) == 1
