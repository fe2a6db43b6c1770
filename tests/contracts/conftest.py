"""A chain with all contracts, once for each test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from inferd.chain.anvil import load_anvil_config, start_anvil
from tests.contracts.arena import Arena
from tests.contracts.build import compile_helpers
from tests.contracts.cast import START
from tests.contracts.rpc import Rpc
from tests.contracts.setting import Setting


@pytest.fixture(scope="session")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    folder = tmp_path_factory.mktemp("contracts")
    helpers = compile_helpers(folder)
    config = replace(
        load_anvil_config(), port=0, block_time_s=0, base_fee_wei=0, gas_limit=100_000_000
    )
    with start_anvil(
        config, log=folder / "anvil.log", extra_arguments=("--timestamp", str(START))
    ) as running:
        rpc = Rpc(running.url)
        yield Setting(rpc, helpers)
        rpc.close()


@pytest.fixture(scope="session")
def arena(setting: Setting) -> Arena:
    return Arena(setting)
