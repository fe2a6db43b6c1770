"""Keystore files: made once, for their owner only, and nothing secret in any text."""

from __future__ import annotations

import io
import json
import os
import pty
import stat
import sys
from pathlib import Path

import pytest
from eth_account import Account
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from indexer.errors import OperatorError
from inferd.chain import keystores
from inferd.chain.keys import KeySource, open_account
from tests.cli.support import Cli

KEY = "4c" * 32
ADDRESS = Account.from_key(bytes.fromhex(KEY)).address


@pytest.fixture(autouse=True)
def password(tmp_path: Path) -> str:
    Path("word").write_text("correct horse\n")
    return "correct horse"


def opened(place: str) -> str:
    source = KeySource(keystore=Path(place), password_file=Path("word"))
    return str(open_account(source, 1, use="poster").address)


def given_on_stdin(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"))


def test_a_new_key_is_its_owners_alone_and_opens(cli: Cli) -> None:
    before = os.umask(0)
    try:
        made = cli("key", "new", "a.json", "--password-file", "word")
    finally:
        os.umask(before)
    assert made.code == 0
    assert made.stdout.strip() == opened("a.json")
    assert made.stderr == ""
    assert stat.S_IMODE(Path("a.json").stat().st_mode) == 0o600
    assert json.loads(Path("a.json").read_text())["version"] == 3
    assert sorted(place.name for place in Path().iterdir()) == ["a.json", "word"]
    another = cli("key", "new", "b.json", "--password-file", "word", "--json")
    assert json.loads(another.stdout)["address"] == opened("b.json") != opened("a.json")


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
@pytest.mark.parametrize("command", ["new", "import"])
def test_nothing_is_written_over(cli: Cli, command: str, kind: str) -> None:
    place = Path("a.json")
    if kind == "file":
        place.write_text("precious")
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to("elsewhere")
    refused = cli("key", command, "a.json", "--password-file", "word")
    refused.refused(1, "a.json exists", "written over")
    assert kind != "file" or place.read_text() == "precious"
    assert not Path("elsewhere").exists()


def test_a_file_that_appears_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    place = tmp_path / "a.json"
    account = keystores.from_hex(KEY)
    place.write_text("precious")
    with pytest.raises(keystores.KeystoreExists):
        keystores._written(place, account, "word")
    assert place.read_text() == "precious"
    assert sorted(found.name for found in tmp_path.iterdir() if "a.json" in found.name) == [
        "a.json"
    ]


@pytest.mark.parametrize("text", [KEY, f"0x{KEY}\n", f"  {KEY.upper()}  "])
def test_import_of_hex_from_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    given_on_stdin(monkeypatch, text.encode())
    done = cli("key", "import", "a.json", "--password-file", "word")
    assert (done.code, done.stdout.strip()) == (0, ADDRESS)
    assert opened("a.json") == ADDRESS
    assert stat.S_IMODE(Path("a.json").stat().st_mode) == 0o600


def test_import_of_a_keystore_gives_it_another_password(cli: Cli) -> None:
    Path("old.json").write_text(json.dumps(Account.encrypt("0x" + KEY, "old", iterations=2)))
    Path("old.word").write_text("old")
    arguments = ("key", "import", "a.json", "--from", "old.json", "--password-file", "word")
    cli(*arguments).refused(1, "no password", "--from-password-file")
    cli(*arguments, "--from-password-file", "word").refused(1, "its password is another one")
    assert not Path("a.json").exists()
    done = cli(*arguments, "--from-password-file", "old.word")
    assert (done.code, done.stdout.strip()) == (0, ADDRESS)
    assert opened("a.json") == ADDRESS


def test_show_names_the_address_only(cli: Cli) -> None:
    stored = Account.encrypt("0x" + KEY, "correct horse", iterations=2)
    Path("a.json").write_text(json.dumps(stored))
    for arguments in ((), ("--password-file", "word")):
        shown = cli("key", "show", "a.json", *arguments)
        assert (shown.code, shown.stdout, shown.stderr) == (0, ADDRESS + "\n", "")
    Path("a.json").write_text(json.dumps(stored | {"address": "ab" * 20}))
    cli("key", "show", "a.json", "--password-file", "word").refused(
        1, "holds the key of", "somebody changed"
    )
    cli("key", "show", "none.json").refused(1, "none.json", "No such file")
    Path("a.json").write_text("{}")
    cli("key", "show", "a.json").refused(1, "does not name its address")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"\n", "empty"), (b"\xff\xfe", "no text"), (None, "No such file")],
)
def test_a_password_that_is_none(cli: Cli, content: bytes | None, words: str) -> None:
    place = Path("word")
    place.unlink() if content is None else place.write_bytes(content)
    cli("key", "new", "a.json", "--password-file", "word").refused(1, words)
    assert not Path("a.json").exists()


def test_without_a_terminal_nobody_is_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    given_on_stdin(monkeypatch, b"")
    cli("key", "new", "a.json").refused(1, "no terminal", "--password-file")


@pytest.mark.parametrize(
    "text", [b"", b"0x", b"00" * 32, b"ff" * 32, KEY[:-1].encode(), b"\xff\xfe", b"{", b"{}"]
)
def test_what_is_no_key_is_told_and_not_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    given_on_stdin(monkeypatch, text)
    arguments = ("--password-file", "word", "--from-password-file", "word")
    outcome = cli("key", "import", "a.json", *arguments)
    outcome.refused(1)
    assert len(text) < 8 or text.decode(errors="replace") not in outcome.stderr
    assert not Path("a.json").exists()


def test_a_folder_that_is_not_there(cli: Cli) -> None:
    cli("key", "new", "none/a.json", "--password-file", "word").refused(1, "none/a.json", "mkdir")


def in_a_terminal(*arguments: str, typed: list[str]) -> str:
    """What a person sees who types those lines, each after a question."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "inferd", *arguments])
    seen = b""
    asked = 0
    while True:
        try:
            said = os.read(terminal, 1024)
        except OSError:
            break
        if not said:
            break
        seen += said
        while asked < len(typed) and seen.count(b": ") > asked:
            os.write(terminal, typed[asked].encode() + b"\n")
            asked += 1
    os.waitpid(child, 0)
    return seen.decode()


def test_a_terminal_asks_twice_and_shows_nothing(tmp_path: Path) -> None:
    word = "correct horse"
    seen = in_a_terminal("key", "import", "a.json", typed=["0x" + KEY, word, word])
    assert ADDRESS in seen
    assert KEY not in seen
    assert word not in seen
    assert opened("a.json") == ADDRESS
    seen = in_a_terminal("key", "new", "b.json", typed=[word, "correct house"])
    assert "the two passwords differ" in seen
    assert not Path("b.json").exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text("0123456789abcdef", min_size=20, max_size=70),
    st.sampled_from(["", "0x", "{", '{"crypto": "', " "]),
    st.text("ghijklmnop", min_size=8, max_size=20),
)
def test_no_error_holds_a_key_or_a_password(secret: str, before: str, word: str) -> None:
    text = before + secret
    with pytest.raises(OperatorError) as raised:
        if text.startswith("{"):
            keystores.from_keystore(text, word)
        else:
            keystores.from_hex(text[:63])
    told = raised.value
    chain = f"{told!r} {told} {told.help_text} {told.__cause__!r} {told.__context__!r}"
    assert secret not in chain
    assert word not in chain


@example("keystore")
@given(st.text(min_size=8, max_size=20).filter(str.strip))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_wrong_password_is_in_no_error(word: str) -> None:
    """The texts are the same for every password, even one that is a word of them."""
    stored = json.dumps(Account.encrypt("0x" + KEY, "quite another", iterations=2))
    texts = set()
    for wrong in (word, "correct horse"):
        with pytest.raises(OperatorError) as raised:
            keystores.from_keystore(stored, wrong)
        told = raised.value
        texts.add(f"{told!r} {told.help_text} {told.__cause__!r} {told.__context__!r}")
    (text,) = texts
    assert KEY not in text
