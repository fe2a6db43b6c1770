"""An authority and certificates by it, made when they are needed: no key is kept in the project.

RFC 5280 (X.509), RFC 5480 (keys of elliptic curves), RFC 5758 (their signatures).
"""

from __future__ import annotations

import secrets
from base64 import encodebytes
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from ipaddress import ip_address
from pathlib import Path

from Crypto.Hash import SHA256
from Crypto.PublicKey import ECC
from Crypto.Signature import DSS
from Crypto.Util.asn1 import (
    DerBitString,
    DerBoolean,
    DerInteger,
    DerObjectId,
    DerOctetString,
    DerSequence,
    DerSetOf,
)

_ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2"
_COMMON_NAME = "2.5.4.3"
_SUBJECT_KEY, _KEY_USAGE, _ALTERNATIVE_NAME = "2.5.29.14", "2.5.29.15", "2.5.29.17"
_BASIC_CONSTRAINTS, _AUTHORITY_KEY = "2.5.29.19", "2.5.29.35"
_SIGN_CERTIFICATES, _SIGN = b"\x03\x02\x02\x04", b"\x03\x02\x07\x80"
"""Bit strings of what a key may be used for."""
_LASTS = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files; a client's and a server's certificate are by the same authority."""

    ca: Path
    client: Path
    client_key: Path
    client_encrypted_key: Path
    server: Path
    server_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Of `127.0.0.1`, for a day."""
    authority, client, server = (ECC.generate(curve="P-256") for _ in range(3))
    files = Certificates(
        *(folder / name for name in ("ca.pem", "client.pem", "client.key")),
        *(folder / name for name in ("client_encrypted.key", "server.pem", "server.key")),
    )
    files.ca.write_text(_certificate("authority", authority, authority))
    files.client.write_text(_certificate("client", client, authority))
    files.client_key.write_text(client.export_key(format="PEM"))
    files.client_encrypted_key.write_text(
        client.export_key(
            format="PEM",
            passphrase="a passphrase",
            protection="PBKDF2WithHMAC-SHA1AndAES256-CBC",
        )
    )
    files.server.write_text(_certificate("server", server, authority))
    files.server_key.write_text(server.export_key(format="PEM"))
    return files


def _certificate(subject: str, key: ECC.EccKey, authority: ECC.EccKey) -> str:
    algorithm = DerSequence([DerObjectId(_ECDSA_WITH_SHA256)])
    now = datetime.now(UTC)
    body = DerSequence(
        [
            _explicit(0, DerInteger(2).encode()),
            DerInteger(secrets.randbits(120)),
            algorithm,
            _name("authority"),
            DerSequence([_time(now - _LASTS), _time(now + _LASTS)]),
            _name(subject),
            key.public_key().export_key(format="DER"),
            _explicit(3, _extensions(key, authority).encode()),
        ]
    ).encode()
    signature = DSS.new(authority, "fips-186-3", encoding="der").sign(SHA256.new(body))
    whole = DerSequence([body, algorithm, DerBitString(signature)]).encode()
    text = encodebytes(whole).decode()
    return f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n"


def _extensions(key: ECC.EccKey, authority: ECC.EccKey) -> DerSequence:
    signs_others = key is authority
    constraints = DerSequence([DerBoolean(True)] if signs_others else [])
    usage = _SIGN_CERTIFICATES if signs_others else _SIGN
    loopback = b"\x87\x04" + ip_address("127.0.0.1").packed
    authority_key = DerSequence([b"\x80\x14" + _key_id(authority)])
    return DerSequence(
        [
            _extension(_BASIC_CONSTRAINTS, constraints.encode(), critical=True),
            _extension(_KEY_USAGE, usage, critical=True),
            _extension(_SUBJECT_KEY, DerOctetString(_key_id(key)).encode()),
            _extension(_AUTHORITY_KEY, authority_key.encode()),
            _extension(_ALTERNATIVE_NAME, DerSequence([loopback]).encode()),
        ]
    )


def _extension(oid: str, value: bytes, *, critical: bool = False) -> DerSequence:
    marks = [DerBoolean(True)] if critical else []
    return DerSequence([DerObjectId(oid), *marks, DerOctetString(value)])


def _key_id(key: ECC.EccKey) -> bytes:
    return sha1(key.public_key().export_key(format="raw"), usedforsecurity=False).digest()


def _name(common_name: str) -> DerSequence:
    text = common_name.encode()
    named = DerSequence([DerObjectId(_COMMON_NAME), b"\x0c" + bytes([len(text)]) + text])
    return DerSequence([DerSetOf([named.encode()])])


def _time(when: datetime) -> bytes:
    text = when.strftime("%y%m%d%H%M%SZ").encode()
    return b"\x17" + bytes([len(text)]) + text


def _explicit(tag: int, content: bytes) -> bytes:
    # A sequence of one, but for the tag.
    return bytes([0xA0 + tag]) + DerSequence([content]).encode()[1:]
