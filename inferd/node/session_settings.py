"""Parts of a session by the settings."""

from __future__ import annotations

from collections.abc import Iterable

from eth_utils.address import to_canonical_address

from indexer.rpc import ChainIdentity
from indexer.rpc.heads import HeadTrigger
from indexer.types import WEI_PER_GWEI, Address, Hash32
from inferd.chain.keys import address_of
from inferd.node.preflight import ChainFacts
from inferd.node.settings import Settings
from inferd.protocol.deployment import Deployment
from inferd.settlement.settings import SettlementSettings


def head_trigger(settings: Settings, deployment: Deployment) -> HeadTrigger | None:
    """Raises BadRpcUrl."""
    if not settings.rpc_ws_urls:
        return None
    genesis_hash = Hash32(deployment.genesis_hash)
    identity = ChainIdentity(deployment.contracts.chain_id, genesis_hash)
    return HeadTrigger(settings.rpc_ws_urls, identity)


def own_accounts(
    settings: Settings, chain_id: int, posters: Iterable[Address]
) -> frozenset[Address]:
    """The accounts whose money is the operator's. Raises BadKey."""
    named = settings.posting.own_accounts
    if named is not None:
        return frozenset(Address(to_canonical_address(account)) for account in named)
    return frozenset(
        {
            *posters,
            *(
                address_of(worker.owner, chain_id, use=f"owner of worker {worker.name}")
                for worker in settings.workers
                if worker.owner is not None
            ),
        }
    )


def settlement_settings(
    settings: Settings, facts: ChainFacts, own: frozenset[Address]
) -> SettlementSettings:
    """The operator's choices in settlement's own units."""
    posting = settings.posting
    return SettlementSettings(
        poster_bps=facts.poster_bps,
        pool_visible=not settings.rpc_send_urls,
        own_accounts=own,
        confirmations=posting.confirmations,
        max_in_flight=posting.max_in_flight,
        max_fee_per_gas_wei=posting.max_fee_gwei * WEI_PER_GWEI,
        max_priority_fee_wei=posting.max_priority_fee_gwei * WEI_PER_GWEI,
        max_transaction_wei=posting.max_transaction_gwei * WEI_PER_GWEI,
        cap_wei_per_hour=posting.cap_gwei_per_hour * WEI_PER_GWEI,
        cap_wei_per_day=posting.cap_gwei_per_day * WEI_PER_GWEI,
        delay_price_wei_per_s=posting.delay_price_gwei_per_s * WEI_PER_GWEI,
        guard_s=posting.guard_s,
        lead_s=posting.lead_s,
        max_results=posting.max_results,
        max_gas=posting.max_gas,
        warn_runway_results=posting.warn_runway_results,
        stop_runway_results=posting.stop_runway_results,
        refunds=posting.refund_expired,
        refund_max_fee_per_gas_wei=posting.refund_max_fee_gwei * WEI_PER_GWEI,
        refund_min_fee_ratio=posting.refund_min_fee_ratio,
        refund_budget_wei_per_day=posting.refund_budget_gwei_per_day * WEI_PER_GWEI,
        disputes=settings.disputes.open,
        dispute_max_bond_wei=settings.disputes.max_bond_gwei * WEI_PER_GWEI,
        dispute_max_bonds_wei_per_day=settings.disputes.max_bonds_gwei_per_day * WEI_PER_GWEI,
    )
