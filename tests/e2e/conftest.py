"""End-to-end tests: daemons in processes of their own on real parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from inferd.chain.anvil import Anvil
from tests.harness import System, system


@pytest.fixture
async def world(tmp_path: Path, anvil: Anvil) -> AsyncIterator[System]:
    async with system(tmp_path, anvil) as built:
        yield built
