"""What a long command says of how far it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from inferd.cli.progress import remaining_s, shown_progress


@given(st.integers(1, 10**9), st.floats(0.001, 10**6), st.data())
def test_remaining__is_what_the_rest_takes_at_the_speed_so_far(
    total: int, elapsed_s: float, data: st.DataObject
) -> None:
    done = data.draw(st.integers(1, total))
    left_s = remaining_s(done, total, elapsed_s)
    assert left_s is not None
    assert (left_s + elapsed_s) * done == pytest.approx(total * elapsed_s)
    assert remaining_s(0, total, elapsed_s) is None


def test_no_terminal__a_line_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress("verifying", 10) as tell:
        for done in range(1, 11):
            tell(done)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "verifying: 10 of 10 blocks\n"


def test_terminal__a_bar_that_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    with shown_progress("verifying", 10) as tell:
        tell(4)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "verifying" in captured.err
    assert " 4/10" in captured.err
