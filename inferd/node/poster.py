"""Who signs the daemon's posts, as the settings say: a key in this process or a remote signer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from inferd.chain.keys import KeySource, address_of, open_account, signer_tls
from inferd.settlement.keys import LocalSigner, TransactionSigner
from inferd.settlement.remote_signer import RemoteSigner


@asynccontextmanager
async def opened_poster(source: KeySource, chain_id: int) -> AsyncIterator[TransactionSigner]:
    """Raises BadKey. A remote signer that is away is no error: it is asked again by each post."""
    if source.remote_signer_url is None:
        yield LocalSigner(open_account(source, chain_id, use="poster"))
        return
    address = address_of(source, chain_id, use="poster")
    tls = signer_tls(source)
    remote = RemoteSigner(source.remote_signer_url.get_secret_value(), address, tls=tls)
    try:
        await remote.check()
        yield remote
    finally:
        await remote.close()
