"""Daemons of the lab: started apart from whoever starts them, found again by a later command.

A daemon's pid file holds its pid and its start time, which guards against a pid that is used again.
"""

import os
import select
import signal
from pathlib import Path

from e2e.lab.cgroups import Hierarchies
from e2e.lab.commands import Argument, LabError, run, wait_until
from e2e.lab.settings import Settings

START_WITHIN_S = 10.0
STOP_WITHIN_S = 10.0
# Joins its control groups first, so that every child is there too, then becomes the daemon.
LAUNCHER = """
pid_file=$1 log=$2; shift 2
exec >> "$log" 2>&1 < /dev/null
while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift
read -r stat < /proc/$$/stat; fields=(${stat##*) })
echo "$$ ${fields[19]}" > "$pid_file.new"; mv "$pid_file.new" "$pid_file"
exec "$@"
"""


def start_time(stat: str) -> str | None:
    """Clock ticks after boot from the text of /proc/PID/stat; None for a process that has ended."""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


class Daemons:
    """The daemons of one lab, by name. `group` below is a path in the cgroup trees."""

    def __init__(self, settings: Settings, hierarchies: Hierarchies) -> None:
        self._pids = settings.state / "pids"
        self._logs = settings.logs
        self._hierarchies = hierarchies

    def pid(self, name: str) -> int | None:
        """The running daemon's pid."""
        try:
            pid, started = (self._pids / name).read_text().split()
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return int(pid) if start_time(stat) == started else None

    def names(self) -> list[str]:
        """Every daemon that was started, running or not."""
        return sorted(path.name for path in self._pids.glob("*")) if self._pids.exists() else []

    def start(self, name: str, group: str, *command: Argument) -> None:
        """Start a daemon in a group that exists, unless it runs already."""
        if self.pid(name) is not None:
            return
        self._pids.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        pid_file = self._pids / name
        pid_file.unlink(missing_ok=True)
        joins = self._hierarchies.procs_files(group)
        launch = ("setsid", "--fork", "bash", "-euc", LAUNCHER, "lab", pid_file, self.log(name))
        run(*launch, *joins, "--", *command)
        wait_until(f"{name} to start; see {self.log(name)}", pid_file.exists, START_WITHIN_S)

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a daemon: `how`, and after 10 s by SIGKILL."""
        pid = self.pid(name)
        if pid is not None:
            _end(pid, how)
        (self._pids / name).unlink(missing_ok=True)

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def assert_running(self, name: str) -> None:
        """Raises LabError with the log's end if the daemon has ended."""
        if self.pid(name) is None:
            lines = self.log(name).read_text(errors="replace").splitlines()[-5:]
            raise LabError(f"{name} ended: " + " | ".join(lines))


def _end(pid: int, how: signal.Signals) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for sent in (how, signal.SIGKILL):
            signal.pidfd_send_signal(handle, sent)
            if select.select([handle], [], [], STOP_WITHIN_S)[0]:
                return
        raise LabError(f"process {pid} survives SIGKILL")
    finally:
        os.close(handle)
