"""Who this node is to workers of other machines."""

from __future__ import annotations

from eth_keys.datatypes import PrivateKey
from eth_utils.address import to_canonical_address

from indexer.types import Address, Contracts
from inferd.chain.keys import open_account
from inferd.node.settings import Settings
from inferd.protocol.typed_data import DigestSigner, domain_separator
from inferd.protocol.worker_api_signing import worker_domain
from inferd.workers.remote.client import Operator


def opened_operator(settings: Settings, contracts: Contracts) -> Operator | None:
    """None where the first poster's key is elsewhere and no other is named. Raises BadKey."""
    source = settings.pool.operator or settings.named_posters["poster"]
    if settings.pool.operator is None and source.remote_signer_url is not None:
        return None
    account = open_account(source, contracts.chain_id, use="operator")
    return Operator(
        address=Address(to_canonical_address(account.address)),
        signer=DigestSigner(PrivateKey(bytes(account.key))),
        api_domain=worker_domain(contracts.chain_id, contracts.results),
        results_domain=domain_separator(contracts.chain_id, contracts.results),
    )
