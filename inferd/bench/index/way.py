"""The ways that are compared."""

from __future__ import annotations

from enum import StrEnum


class Way(StrEnum):
    INFERD = "inferd"
    """The daemon's own indexer, to the last block and with all of its checks."""
    RAW = "raw"
    """Fetches the ranges and throws the bodies away."""
    RAW_COPY = "raw_copy"
    """Fetches, parses, and writes the raw columns by COPY."""
    WEB3 = "web3"
    """web3.py as its documentation uses it: a contract's decoded events, and executemany."""
    WEB3_RAW = "web3_raw"
    """web3.py's `eth.get_logs`, nothing decoded, and executemany."""
