"""Policies of other packages in their own processes: good ones, and each kind of hostile one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from inferd.policies.hosted import HostedPolicy, PolicyFailed
from inferd.policies.installed import UnknownPolicy, offered, require_known
from inferd.policies.journal import Entry, Source
from inferd.policies.steering import Steering
from scheduler.choice import chosen
from scheduler.policies import Fifo
from tests.policies.support import install, loads_view, order_view, seats_view, use

BUDGET_S = 0.5
PATIENCE_S = 60.0
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "policy"


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)


class Hosts:
    def __init__(self) -> None:
        self.all: list[HostedPolicy] = []
        self.now_s = 0.0

    def __call__(self, name: str) -> HostedPolicy:
        hosted = HostedPolicy(name, clock=lambda: self.now_s)
        self.all.append(hosted)
        return hosted

    def up(self, name: str, budget_s: float = BUDGET_S) -> HostedPolicy:
        hosted = self(name)
        assert hosted.is_up(PATIENCE_S)
        hosted.begin_round(budget_s)
        return hosted


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    yield made
    for hosted in made.all:
        hosted.close()


def alive(hosted: HostedPolicy) -> bool:
    return hosted._process is not None and hosted._process.poll() is None


def test_a_policy_of_another_package_answers(hosts: Hosts) -> None:
    good = hosts.up("good", PATIENCE_S)
    assert (good.name, good.version, good.sampled) == ("good", "7", 0)
    assert good.scores(order_view(5)).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert good.scores(order_view(0)).tolist() == []
    assert good.work(seats_view()).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert good.load(loads_view(), np.ones(4, np.int64)).tolist() == [2.0, 1.0, 2 / 3, 0.5]


def test_a_hundred_thousand_requests_pass(hosts: Hosts) -> None:
    good = hosts.up("good", PATIENCE_S)
    assert np.array_equal(good.scores(order_view(100_000)), np.arange(100_000.0))


def test_what_it_prints_is_no_answer(hosts: Hosts) -> None:
    assert len(hosts.up("prints", PATIENCE_S).scores(order_view())) == 3


def test_it_sees_no_setting(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERD_POSTER", '{"raw": "0x1"}')
    assert hosts.up("looks", PATIENCE_S).scores(order_view(1)).tolist() == [0.0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "failed at scores with RuntimeError: no idea\nat all"),
        ("short", "gave 2 numbers as scores of 3"),
        ("words", "failed at scores with ValueError"),
        ("empty", "gave 1 numbers as scores of 3"),
    ],
)
def test_one_that_raises_or_miscounts_fails_and_stays(hosts: Hosts, name: str, words: str) -> None:
    hosted = hosts.up(name, PATIENCE_S)
    for _ in range(2):
        with pytest.raises(PolicyFailed) as failed:
            hosted.scores(order_view())
        assert words in str(failed.value)
        assert alive(hosted)


@pytest.mark.parametrize("name", ["loops", "sleeps"])
def test_one_that_is_late_is_killed_and_started_again_after_a_pause(
    hosts: Hosts, name: str
) -> None:
    hosted = hosts.up(name)
    process = hosted._process
    assert process is not None
    with pytest.raises(PolicyFailed, match="took longer than its 500 ms"):
        hosted.scores(order_view())
    assert process.poll() is not None
    with pytest.raises(PolicyFailed, match="being started"):
        hosted.begin_round(BUDGET_S)
    assert hosted._process is None
    hosts.now_s += 1.0
    assert hosted.is_up(PATIENCE_S)
    hosted.begin_round(BUDGET_S)
    with pytest.raises(PolicyFailed):
        hosted.scores(order_view())
    hosts.now_s += 1.0
    assert not hosted.is_up()
    assert hosted._process is None, "the pause has doubled"
    hosts.now_s += 1.0
    assert hosted.is_up(PATIENCE_S)


def test_one_that_loops_over_workers_is_killed_too(hosts: Hosts) -> None:
    hosted = hosts.up("loops-on-load")
    assert len(hosted.scores(order_view())) == 3
    with pytest.raises(PolicyFailed, match="loops-on-load took longer"):
        hosted.load(loads_view(), np.zeros(4, np.int64))
    assert hosted._process is None


def test_the_budget_is_of_all_answers_together(hosts: Hosts) -> None:
    hosted = hosts.up("good", 0.3)
    with pytest.raises(PolicyFailed, match="took longer than its 300 ms"):
        for _ in range(1_000_000):
            hosted.scores(order_view())


def test_one_that_exits_is_noticed_at_once(hosts: Hosts) -> None:
    hosted = hosts.up("exits", PATIENCE_S)
    with pytest.raises(PolicyFailed, match="ended while it was asked for scores"):
        hosted.scores(order_view())


@pytest.mark.parametrize(
    ("name", "words"),
    [("not-loadable", "OSError: its model is missing"), ("no-such-class", "AttributeError")],
)
def test_one_that_cannot_be_loaded_says_so(hosts: Hosts, name: str, words: str) -> None:
    hosted = hosts(name)
    with pytest.raises(PolicyFailed, match=f"cannot be loaded: .*{words}"):
        hosted.is_up(PATIENCE_S)
    assert not alive(hosted)


def test_one_that_never_says_hello_is_killed(hosts: Hosts) -> None:
    hosted = hosts("mute")
    assert not hosted.is_up(0.2)
    hosts.now_s += 21.0
    with pytest.raises(PolicyFailed, match="did not start within 20 s"):
        hosted.is_up()
    assert hosted._process is None


def test_it_ends_with_whoever_started_it(hosts: Hosts, tmp_path: Path) -> None:
    """Also in an endless loop, and when the daemon is killed."""
    code = (
        "import os, sys\n"
        "from inferd.policies.hosted import HostedPolicy\n"
        "hosted = HostedPolicy('mute')\n"
        "print(hosted._process.pid, flush=True)\n"
        "hosted.is_up(1.0)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    pid = int(parent.stdout)
    for _ in range(600):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        os.sched_yield()
        subprocess.run(["sleep", "0.05"], check=True)
    raise AssertionError("the policy's process outlives its daemon")


def test_the_example_package_installs_and_works(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "example"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "shortest_first.py"):
        (source / name).write_bytes((EXAMPLE / name).read_bytes())
    subprocess.run([*command, str(source)], check=True, timeout=120)
    use(target, monkeypatch)
    assert "shortest-first" in offered()
    hosted = hosts.up("shortest-first", PATIENCE_S)
    scores = hosted.scores(order_view(4))
    assert scores.argmax() == 0
    assert (np.diff(scores) < 0).all()
    assert len(hosted.work(seats_view())) == len(hosted.load(loads_view(), np.arange(4))) == 4


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (EXAMPLE.parents[1] / "policies.md").read_text()
    code = (EXAMPLE / "shortest_first.py").read_text()
    for line in ("bands = np.floor(view.wait_s / view.max_wait_s)", 'name = "shortest-first"'):
        assert line in page
        assert line in code


def test_a_built_in_name_cannot_be_taken_over() -> None:
    assert "fifo" not in offered()
    assert Fifo().name == "fifo"


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    require_known(chosen("", "good=1,fifo=2", ""))
    with pytest.raises(UnknownPolicy, match=r"no policy 'goood'; there are balanced, .*good"):
        require_known(chosen("goood", "", ""))


def test_one_that_was_closed_is_not_started_again(hosts: Hosts) -> None:
    good = hosts.up("good", PATIENCE_S)
    good.close()
    good.start()
    assert not alive(good)
    with pytest.raises(PolicyFailed, match="being started"):
        good.begin_round(BUDGET_S)


def test_a_policy_that_is_taken_up_as_all_are_ended_is_ended_too() -> None:
    """The round of a session that ends may still be at work in its thread."""
    steering = Steering()
    steering.close()
    entry = Entry(1, Source.COMMAND, chosen("good", "", ""), "me", datetime.now(UTC))
    (policy,) = steering.follow(entry).policies
    assert isinstance(policy, HostedPolicy)
    assert not alive(policy)
