"""The same whole system as the end-to-end tests have."""

from tests.e2e.conftest import world

__all__ = ["world"]
