"""What a property draws in the usual run."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.skipif(
    settings.get_current_profile_name() != "usual", reason="other profiles draw new cases"
)
def test_the_cases_are_the_same_whatever_was_loaded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[str, int]] = []

    @settings(max_examples=100)
    @given(st.text(max_size=30), st.integers())
    def draw(text: str, number: int) -> None:
        cases.append((text, number))

    draw()
    before = cases[:]
    cases.clear()
    source = tmp_path / "loaded_later.py"
    source.write_text(f"WORDS = {[f'the word {n}' for n in range(500)]}\nNUMBER = 987_654_321\n")
    spec = spec_from_file_location("loaded_later", source)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "loaded_later", module)
    draw()
    assert cases == before
