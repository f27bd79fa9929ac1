import os
import signal
from pathlib import Path

import pytest

from e2e.lab.cgroups import Hierarchies
from e2e.lab.commands import LabError, wait_until
from e2e.lab.processes import Daemons, start_time
from e2e.lab.settings import Settings, Zone


@pytest.fixture
def daemons(tmp_path):
    mount = tmp_path / "cgroup"
    (mount / "memory" / "klab").mkdir(parents=True)
    settings = Settings(root=tmp_path, zones=(Zone("a", 0),), state=tmp_path / "state")
    made = Daemons(settings, Hierarchies(mount))
    yield made
    for name in made.names():
        made.stop(name)


def test_the_start_time_is_found_behind_a_name_with_spaces_and_parentheses():
    fields = " ".join(str(number) for number in range(4, 60))
    assert start_time(f"7 (a) (b c) S {fields}") == "22"


def test_an_ended_process_has_no_start_time():
    assert start_time("7 (x) Z 1 2 3") is None


def test_a_daemon_joins_its_group_and_is_found_again(daemons, tmp_path):
    daemons.start("sleeper", "klab", "sleep", "600")
    pid = daemons.pid("sleeper")
    assert pid is not None
    assert (tmp_path / "cgroup/memory/klab/cgroup.procs").read_text() == f"{pid}\n"
    assert os.getsid(pid) == pid
    daemons.start("sleeper", "klab", "sleep", "600")
    assert daemons.pid("sleeper") == pid


def test_arguments_with_spaces_and_quotes_arrive_whole(daemons):
    daemons.start("printer", "klab", "printf", "<%s>", "a b", "it's", "")
    log = daemons.log("printer")
    wait_until("the output", lambda: "<>" in log.read_text(), 10)
    assert log.read_text() == "<a b><it's><>"


def test_stop_ends_it_even_if_it_ignores_the_signal(daemons, monkeypatch):
    monkeypatch.setattr("e2e.lab.processes.STOP_WITHIN_S", 0.3)
    daemons.start("stubborn", "klab", "bash", "-c", "trap '' TERM; echo set; sleep 600 & wait")
    wait_until("the trap", lambda: "set" in daemons.log("stubborn").read_text(), 10)
    pid = daemons.pid("stubborn")
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until("its child", lambda: children.read_text() != "", 10)
    child = int(children.read_text())
    daemons.stop("stubborn")
    assert daemons.pid("stubborn") is None
    assert not (Path("/proc") / str(pid)).exists() or start_time(stat_of(pid)) is None
    os.kill(child, signal.SIGKILL)


def test_a_pid_that_is_used_again_is_not_mistaken_for_the_daemon(daemons, tmp_path):
    daemons.start("sleeper", "klab", "sleep", "600")
    pid = daemons.pid("sleeper")
    file = tmp_path / "state/pids/sleeper"
    kept = file.read_text()
    file.write_text(f"{pid} 1")
    assert daemons.pid("sleeper") is None
    file.write_text(kept)


def test_a_daemon_that_ended_is_reported_with_its_last_words(daemons):
    daemons.start("brief", "klab", "bash", "-c", "echo port taken; exit 1")
    wait_until("its end", lambda: daemons.pid("brief") is None, 10)
    with pytest.raises(LabError, match=r"brief ended: .*port taken"):
        daemons.assert_running("brief")


def test_a_daemon_that_cannot_be_started_names_its_log(daemons, monkeypatch):
    monkeypatch.setattr("e2e.lab.processes.START_WITHIN_S", 0.3)
    with pytest.raises(LabError, match=r"lost to start; see .*lost\.log"):
        daemons.start("lost", "no/such/group", "sleep", "600")


def stat_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/stat").read_text()
