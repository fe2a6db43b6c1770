"""Recorded series from files: UTF-8 in any locale, and one line that says what is wrong where."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from inferd.bench.recordings import BadRecording, load_regime, load_series, load_trace

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens"
SERIES = "number,timestamp,base_fee_per_gas_wei,gas_used,gas_limit"
BLOCKS = ("1,1000,7,15,30", "2,1012,7,15,30")
HOURS = "\n".join(["avg_gas_price_gwei", *(f"{10 + 7 * n % 50}" for n in range(60))])

Load = Callable[[Path], object]
LOADS: tuple[tuple[Load, str], ...] = (
    (load_trace, "--trace"),
    (load_series, "--base-fee"),
    (load_regime, "--hourly"),
)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "recording.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(("load", "option"), LOADS)
def test_what_cannot_be_opened_is_said_in_one_line(load: Load, option: str, tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.csv", "No such file"), (tmp_path, "directory")):
        with pytest.raises(BadRecording, match=why) as raised:
            load(path)
        assert str(path) in str(raised.value)
        assert option in raised.value.help_text


@pytest.mark.parametrize(("load", "option"), LOADS)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "TIMESTAMP|the column"),
        ("a,b\n1,2\n", "TIMESTAMP|the column"),
        (b"a,b\n1,2\n3,\xff\n", "line 3 is no UTF-8 text"),
        (b"\xff\xfe\x00", "line 1 is no UTF-8 text"),
    ],
)
def test_what_is_no_recording_is_refused_in_one_line(
    load: Load, option: str, text: str | bytes, why: str, tmp_path: Path
) -> None:
    with pytest.raises(BadRecording, match=why) as raised:
        load(written(tmp_path, text))
    assert "\n" not in str(raised.value)
    assert option in raised.value.help_text


@pytest.mark.parametrize(
    ("load", "text", "why"),
    [
        (load_trace, f"{TRACE}\n2023-11-16 18:15:46,1,2\nsoon,1,2\n", "line 3 is 'soon,1,2'"),
        (load_trace, f"{TRACE}\n2023-11-16 18:15:46,1,{10**10}\n", "line 2 has a number of tokens"),
        (load_series, f"{SERIES}\n{BLOCKS[0]}\n2,1012,x,15,30\n", "line 3 of the series"),
        (load_series, f"{SERIES}\n{BLOCKS[0]}\n2,{'9' * 200_000}\n", "line 3: field larger than"),
        (load_regime, "avg_gas_price_gwei\n1\n-1\n", "line 3 of the hourly series"),
    ],
)
def test_the_bad_line_is_named(load: Load, text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadRecording, match=why):
        load(written(tmp_path, text))


def test_a_mark_of_byte_order_and_other_line_ends_are_read(tmp_path: Path) -> None:
    trace = f"\ufeff{TRACE}\r\n2023-11-16 18:15:46,1,2\r\n"
    assert len(load_trace(written(tmp_path, trace))) == 1
    series = "\ufeff" + "\r\n".join([SERIES, *BLOCKS])
    assert len(load_series(written(tmp_path, series))) == 2
    load_regime(written(tmp_path, "\ufeff" + HOURS))


def test_the_locale_does_not_matter(tmp_path: Path) -> None:
    path = written(tmp_path, f"{SERIES},höhe\n" + "\n".join(f"{one},ü" for one in BLOCKS))
    script = f"""
import locale
from pathlib import Path
from inferd.bench.recordings import load_series
print(locale.getpreferredencoding(False), len(load_series(Path({str(path)!r}))))
"""
    plain = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=plain, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[0].upper() not in ("UTF-8", "UTF8")
    assert done.stdout.split()[1] == "2"
