"""What requesters have taken and are owed: read for a round, written with the leases it grants.

The rows are written in the transaction that grants the leases. So a restart finds what was taken,
neither less nor twice; and a request is charged once, by its first lease, however often it is
tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from indexer.database import Connection
from scheduler.allowance import UNUSED, Bucket, Limits, Use
from scheduler.quota import is_full, taken

_IN_FLIGHT = """
    SELECT r.requester, count(*) AS leases
    FROM node.lease l JOIN chain.request r ON r.id = l.request_id AND r.commitment = l.commitment
    WHERE l.state = 'active' GROUP BY r.requester
"""
_ROWS = """
    SELECT tenant, bucket_tokens, bucket_at_s, deficit_tokens FROM node.tenant
    WHERE deficit_tokens > 0
       OR tenant IN (SELECT requester FROM chain.request WHERE status = 'pending')
"""
_UPSERT = """
    INSERT INTO node.tenant (tenant, bucket_tokens, bucket_at_s, deficit_tokens)
    SELECT * FROM unnest($1::bytea[], $2::float8[], $3::float8[], $4::float8[])
    ON CONFLICT (tenant) DO UPDATE SET bucket_tokens = excluded.bucket_tokens,
        bucket_at_s = excluded.bucket_at_s, deficit_tokens = excluded.deficit_tokens
"""
_FORGET = """
    DELETE FROM node.tenant t USING (
        SELECT tenant, coalesce(own.tokens_per_s, $4) AS tokens_per_s,
               coalesce(own.burst_tokens, $5) AS burst_tokens
        FROM node.tenant
        LEFT JOIN unnest($1::bytea[], $2::float8[], $3::float8[])
             AS own (tenant, tokens_per_s, burst_tokens) USING (tenant)
    ) quota
    WHERE t.tenant = quota.tenant AND t.deficit_tokens = 0
      AND (quota.tokens_per_s = 0 OR quota.burst_tokens <=
           t.bucket_tokens + quota.tokens_per_s * greatest(0, $6 - t.bucket_at_s))
"""


def keeps_rows(limits: Limits) -> bool:
    """Whether these limits need the table."""
    rates = (limits.quota, *limits.quotas.values())
    return bool(limits.fair_quantum_tokens) or any(one.tokens_per_s for one in rates)


def counts_leases(limits: Limits) -> bool:
    """Whether these limits are about what is in hand."""
    return any(one.in_flight for one in (limits.quota, *limits.quotas.values()))


async def load_uses(connection: Connection, limits: Limits) -> dict[bytes, Use]:
    """By requester, of those who have taken something that these limits are about."""
    uses: dict[bytes, Use] = {}
    in_flight: dict[bytes, int] = {}
    if counts_leases(limits):
        for row in await connection.fetch(_IN_FLIGHT):
            in_flight[row["requester"]] = row["leases"]
            uses[row["requester"]] = Use(row["leases"])
    if keeps_rows(limits):
        for row in await connection.fetch(_ROWS):
            tenant = row["tenant"]
            uses[tenant] = Use(
                in_flight.get(tenant, 0),
                Bucket(row["bucket_tokens"], row["bucket_at_s"]),
                row["deficit_tokens"],
            )
    return uses


async def store_uses(
    connection: Connection,
    limits: Limits,
    uses: Mapping[bytes, Use],
    *,
    charges: Iterable[tuple[bytes, int]],
    deficits: Mapping[bytes, float],
    now_s: float,
) -> None:
    """After a round: `charges` are the tenants and costs of the requests that got their first
    lease, `deficits` what tenants are owed now. In the transaction that grants the leases."""
    if not keeps_rows(limits):
        return
    costs: dict[bytes, int] = {}
    for tenant, cost in charges:
        costs[tenant] = costs.get(tenant, 0) + cost
    rows, needless = [], []
    for tenant in costs.keys() | deficits.keys():
        use, quota = uses.get(tenant, UNUSED), limits.quota_of(tenant)
        bucket = taken(use.bucket, quota, costs.get(tenant, 0), now_s)
        deficit = deficits.get(tenant, 0.0) if limits.fair_quantum_tokens else 0.0
        if deficit or not is_full(bucket, quota, now_s):
            rows.append((tenant, bucket.tokens, bucket.at_s, deficit))
        elif tenant in uses:
            needless.append(tenant)
    if rows:
        await connection.execute(_UPSERT, *(list(column) for column in zip(*rows, strict=True)))
    if needless:
        await connection.execute("DELETE FROM node.tenant WHERE tenant = ANY($1)", needless)


async def forget(connection: Connection, limits: Limits, now_s: float) -> None:
    """Deletes those whose bucket has filled up: no row says the same."""
    quotas = limits.quotas
    await connection.execute(
        _FORGET,
        list(quotas),
        [float(quota.tokens_per_s) for quota in quotas.values()],
        [float(quota.burst_tokens) for quota in quotas.values()],
        float(limits.quota.tokens_per_s),
        float(limits.quota.burst_tokens),
        now_s,
    )
