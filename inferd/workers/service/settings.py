"""What a worker's owner can set about its agent: `[agent]`."""

from __future__ import annotations

from pathlib import Path

from eth_utils.address import is_address, is_hex_address, to_canonical_address
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from indexer.types import Address
from inferd.protocol.worker_api import MAX_ENCRYPTION_KEYS


class AgentSettings(BaseModel):
    """How `inferd worker` listens, and to whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    """Where it listens for operators. Behind a reverse proxy leave it, else give it certificates:
    inputs and outputs cross the network as they are."""
    port: int = Field(8750, ge=0, le=65535)
    """0 = a free one, written to agent.json in the worker's folder of `data_dir`."""
    metrics_host: str = "127.0.0.1"
    """Where `/metrics` is. There is no login."""
    metrics_port: int = Field(8751, ge=0, le=65535)
    """0 = a free one, written to agent.json."""
    operators: tuple[str, ...] = ()
    """Addresses of those it works for: nobody else is answered. Needed."""
    tls_certificate: Path | None = None
    """The chain it shows to operators; PEM. Without it, plain HTTP."""
    tls_key: Path | None = None
    """The private key of that certificate; PEM, not encrypted."""
    encryption_key_files: tuple[Path, ...] = Field((), max_length=MAX_ENCRYPTION_KEYS)
    """The keys that inputs for this worker alone may be encrypted to, the newest first: 64 hex
    digits each. Without any, one is made in the worker's folder of `data_dir`."""
    queue: int = Field(16, ge=0, le=10_000)
    """Jobs that may wait for a slot; one more is told that it is busy."""
    rate_per_s: float = Field(200.0, gt=0)
    """Requests of one operator a second, in the long run; a job is two or more."""
    rate_burst: int = Field(1_000, ge=1)
    """At once, after a pause."""
    max_body_bytes: int = Field(4_194_304, ge=1_024, le=268_435_456)
    """The largest body it reads; base64 makes an input a third larger."""
    body_timeout_s: float = Field(30.0, gt=0)
    """Within which a body must have come; an answer must be read in it, and 10 s a megabyte."""
    max_connections: int = Field(256, ge=1)
    """Open at the same time; one more is closed at once."""
    request_window_s: int = Field(120, ge=1, le=3_600)
    """How far ahead of now a request may expire, at most."""
    clock_skew_s: int = Field(15, ge=0, le=600)
    """By how much an operator's clock may differ from this one's."""
    retention_hours: float = Field(48.0, gt=0)
    """How long an output is kept that nobody acknowledges. Digests and signatures are kept for
    ever."""

    @field_validator("operators")
    @classmethod
    def _addresses(cls, operators: tuple[str, ...]) -> tuple[str, ...]:
        for operator in operators:
            if not (is_hex_address(operator) and is_address(operator)):
                raise ValueError(
                    f"{operator} is no address of 0x and 40 hex digits, or its checksum is wrong"
                )
        return operators

    @model_validator(mode="after")
    def _certificate_with_key(self) -> AgentSettings:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together")
        return self

    @property
    def trusted(self) -> frozenset[Address]:
        """The operators as bytes."""
        return frozenset(Address(to_canonical_address(operator)) for operator in self.operators)
