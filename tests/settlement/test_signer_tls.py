"""A signer that asks for a certificate, and one that shows its own."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from inferd.chain.keys import BadKey, KeySource, signer_tls
from inferd.chain.signers import SignerTrouble, opened_signer
from tests.settlement.certificates import Certificates, make_certificates
from tests.settlement.signer_server import SignerServer, signer_server
from tests.settlement.test_remote_signer import ACCOUNT, ASKED


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def server(files: Certificates) -> AsyncIterator[SignerServer]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca)
    tls.load_cert_chain(files.server, files.server_key)
    tls.verify_mode = ssl.CERT_REQUIRED
    async with signer_server(ACCOUNT, tls) as running:
        yield running


def source(server: SignerServer, **files: Path) -> KeySource:
    return KeySource(remote_signer_url=SecretStr(server.url), address=ACCOUNT.address, **files)


async def test_signs_for_who_shows_the_certificate(
    server: SignerServer, files: Certificates
) -> None:
    known = source(
        server,
        signer_certificate=files.client,
        signer_certificate_key=files.client_key,
        signer_ca=files.ca,
    )
    async with opened_signer(known, 31337, use="poster") as signer:
        assert (await signer.sign(ASKED)).raw == bytes(
            ACCOUNT.sign_transaction(ASKED | {"type": 2}).raw_transaction
        )
    assert server.signatures() == 1


async def test_signs_for_nobody_else(server: SignerServer, files: Certificates) -> None:
    async with opened_signer(source(server, signer_ca=files.ca), 31337, use="poster") as signer:
        with pytest.raises(SignerTrouble):
            await signer.sign(ASKED)
    assert server.asked == []


async def test_a_signer_that_nobody_vouches_for_is_not_asked(
    server: SignerServer, files: Certificates
) -> None:
    shown = source(server, signer_certificate=files.client, signer_certificate_key=files.client_key)
    async with opened_signer(shown, 31337, use="poster") as signer:
        with pytest.raises(SignerTrouble, match="its certificate is not trusted"):
            await signer.sign(ASKED)
    assert server.asked == []


@pytest.mark.parametrize(
    "names",
    [
        {"signer_certificate": "client.pem", "signer_certificate_key": "client_encrypted.key"},
        {"signer_certificate": "client.pem", "signer_certificate_key": "server.key"},
        {"signer_certificate": "client.pem", "signer_certificate_key": "none.key"},
        {"signer_ca": "client.key"},
    ],
)
def test_files_that_cannot_be_used_are_told(names: dict[str, str], files: Certificates) -> None:
    given = {field: files.ca.parent / name for field, name in names.items()}
    key = KeySource(
        remote_signer_url=SecretStr("https://127.0.0.1:1/secret"), address=ACCOUNT.address, **given
    )
    with pytest.raises(BadKey, match="certificates") as caught:
        signer_tls(key)
    said = caught.value.message + caught.value.help_text
    assert all(str(file) in said for file in given.values())
    assert "BEGIN" not in said
    assert "/secret" not in said


def test_without_files_the_system_says_whom_to_believe() -> None:
    key = KeySource(remote_signer_url=SecretStr("https://127.0.0.1:1"), address=ACCOUNT.address)
    assert signer_tls(key) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"signer_certificate": "client.pem"},
        {"signer_certificate_key": "client.key"},
        {"signer_ca": "ca.pem", "remote_signer_url": "http://127.0.0.1:1"},
        {"signer_ca": "ca.pem", "remote_signer_url": None, "address": None, "dev_account": 1},
    ],
)
def test_files_go_together_and_with_https(fields: dict[str, Any]) -> None:
    usual = {"remote_signer_url": "https://127.0.0.1:1", "address": ACCOUNT.address}
    with pytest.raises(ValidationError):
        KeySource(**(usual | fields))
