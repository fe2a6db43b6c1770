"""The real model, fetched once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inferd.workers.model_files import ModelFile
from inferd.workers.model_files import smollm2 as fetched


@pytest.fixture(scope="session")
def smollm2() -> ModelFile:
    default = Path(__file__).parents[2] / ".cache"
    return fetched(Path(os.environ.get("INFERD_CACHE_DIR") or default))
