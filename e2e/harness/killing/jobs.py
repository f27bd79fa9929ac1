"""A Spark job as users start it, in processes that can be stopped and killed."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from e2e.harness.program import Program, end_session, session_members

SPARK = Path(__file__).resolve().parents[3] / "spark-on-k8s"
LOCAL = "local[2]"
EXECUTORS = "local-cluster[2,1,1024]"
"""Two executors with one core each, in processes of their own."""
CONF = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    # the runs are short: less compilation saves more time than faster code would
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions=2",
)


class SparkJob(Program):
    """Runs `spark-submit jobs/NAME.py ARGUMENTS`. master: Spark's option."""

    def __init__(self, name: str, arguments: Sequence[str], directory: Path, master: str) -> None:
        conf = [word for each in CONF for word in ("--conf", each)]
        command = [str(Path(sys.executable).with_name("spark-submit")), "--master", master, *conf]
        command += [str(SPARK / "jobs" / f"{name}.py"), *arguments]
        super().__init__(name, command, directory)
        self.environment = {
            **os.environ,
            "SPARK_HOME": str(_home(directory / "spark")),
            "SPARK_CONF_DIR": str(SPARK / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(directory),
        }

    def kill_all(self) -> None:
        """Kill every process of the job, as if its container was killed.

        Does nothing if none runs.
        """
        self.kill()
        end_session(self.pid)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all its processes for the block; those that still exist continue afterwards."""
        pids = list(dict(session_members(self.pid)))
        self._send_all(pids, signal.SIGSTOP)
        try:
            while not all(_stands(pid) for pid in pids):
                time.sleep(0.001)
            yield
        finally:
            self._send_all(pids, signal.SIGCONT)

    def python_workers(self) -> list[int]:
        """Return the processes that run tasks in Python, which PySpark's daemons fork."""
        parents = dict(session_members(self.pid))
        daemons = {pid for pid in parents if "pyspark.daemon" in _command(pid)}
        return [pid for pid in daemons if parents[pid] in daemons]

    def executors(self) -> list[int]:
        members = dict(session_members(self.pid))
        return [pid for pid in members if "CoarseGrainedExecutorBackend" in _command(pid)]

    @staticmethod
    def _send_all(pids: Sequence[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _home(folder: Path) -> Path:
    """Make a folder of links to Spark, as the workers of a local cluster write to SPARK_HOME."""
    folder.mkdir(parents=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


def _command(pid: int) -> str:
    """Return the command of a process; empty if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def _stands(pid: int) -> bool:
    """Return whether all threads of a process are stopped, or it has ended."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if (thread / "stat").read_text().rpartition(")")[2].split()[0] not in "TZX":
                return False
    return True


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The numbers of the last planned and committed batch in a query's checkpoint.

    -1 if there is none.
    """

    folder: Path

    @property
    def planned(self) -> int:
        return _last(self.folder / "offsets")

    @property
    def done(self) -> int:
        return _last(self.folder / "commits")


def _last(folder: Path) -> int:
    if not folder.is_dir():
        return -1
    return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=-1)
