"""A deployed chain for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from inferd.chain.anvil import Anvil
from tests.chain.world import World, deployed_world


@pytest.fixture
async def world(anvil: Anvil) -> AsyncIterator[World]:
    async with deployed_world(anvil) as deployed:
        yield deployed
