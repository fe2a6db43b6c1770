"""A worker whose log remembers a digest of which the output is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from eth_keys.datatypes import PrivateKey

from indexer.types import Address, Hash32
from inferd.protocol.result import ResultItem, digest_of, pack_items
from inferd.protocol.typed_data import CompactSignature, DigestSigner, group_digest, sign_digest
from inferd.workers.job import SignedResult, Spoken, WorkerFailed
from scheduler.model import RequestKey
from tests.workers.support import DOMAIN, Scripted, a_job, a_worker

KEY = PrivateKey((1).to_bytes(32, "big"))


@dataclass
class Remembers:
    """A log that has said one thing on every request."""

    said: Spoken

    async def recorded(self, worker: Address, key: RequestKey) -> SignedResult | Spoken | None:
        return self.said

    async def signatures(
        self, worker: Address, keys: Sequence[RequestKey]
    ) -> Mapping[RequestKey, tuple[Hash32, CompactSignature]]:
        return {}


def said(output: bytes, key: PrivateKey = KEY) -> Remembers:
    item = ResultItem(1, a_job(1).commitment, digest_of(output))
    return Remembers(
        Spoken(item.digest, sign_digest(key, group_digest(DOMAIN, pack_items([item]))))
    )


@pytest.fixture
def signatures(monkeypatch: pytest.MonkeyPatch) -> list[Hash32]:
    made: list[Hash32] = []
    real = DigestSigner.sign

    def sign(self: DigestSigner, digest: Hash32) -> CompactSignature:
        made.append(digest)
        return real(self, digest)

    monkeypatch.setattr(DigestSigner, "sign", sign)
    return made


async def test_the_same_output_goes_under_the_signature_it_has(signatures: list[Hash32]) -> None:
    log = said(b"answer to hello")
    signatures.clear()
    result = await a_worker(None, Scripted(), signatures=log).compute(a_job(1))
    assert (result.output, result.signature) == (b"answer to hello", log.said.signature)
    assert signatures == []


async def test_another_output_is_not_even_signed(signatures: list[Hash32]) -> None:
    log = said(b"another answer")
    signatures.clear()
    with pytest.raises(WorkerFailed, match="another answer before"):
        await a_worker(None, Scripted(), signatures=log).compute(a_job(1))
    assert signatures == []


async def test_a_foreign_row_is_not_believed() -> None:
    log = said(b"answer to hello", PrivateKey(b"\x09" * 32))
    backend = Scripted()
    with pytest.raises(WorkerFailed, match="does not carry this worker's signature"):
        await a_worker(None, backend, signatures=log).compute(a_job(1))
    assert backend.calls == []
