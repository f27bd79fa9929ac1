"""Kills a job at each point of a batch, and restarts it until it ends by itself.

A moment is a condition on state outside the job: its checkpoint and its sink. When the condition
holds, the job is stopped and the condition is checked again, so that the kill happens at that
moment and not after it.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from e2e.harness.killing.jobs import Checkpoint, SparkJob

RUN_S_MAX = 600.0
POLL_S = 0.002


class Moment(Enum):
    """A moment in a micro-batch. A job without checkpoint has only AMID."""

    PLANNED = "after the offsets log, before anything is written"
    AMID = "amid the batch's write"
    WRITTEN = "between the sink's commit and the checkpoint's"


class Sink(Protocol):
    """The sink of a job, as other programs see it."""

    def committed(self) -> object:
        """Return a value that changes when a batch has been written."""

    def begun(self) -> object:
        """Return a value that changes when the write of a batch has begun."""


class Server(Protocol):
    """A program that the job depends on."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Kill:
    """what: its name in the report. act: does the kill.

    Returns False if there is nothing to kill yet.

    ends: whether the job may end because of it. after: restarts the killed program, if the job does
    not.
    """

    what: str
    moment: Moment
    act: Callable[[SparkJob], bool]
    ends: bool = True
    after: Callable[[], None] | None = None


def driver(moment: Moment) -> Kill:
    def act(job: SparkJob) -> bool:
        job.kill_all()
        return True

    return Kill("driver", moment, act)


def python_workers(moment: Moment) -> Kill:
    return Kill("Python workers", moment, lambda job: _killed(job.python_workers()))


def executor(moment: Moment) -> Kill:
    return Kill("executor", moment, lambda job: _killed(job.executors()[:1]), ends=False)


def server(what: str, moment: Moment, program: Server) -> Kill:
    """Return a kill of a broker or a database; the job must continue."""

    def act(_: SparkJob) -> bool:
        program.kill()
        return True

    return Kill(what, moment, act, ends=False, after=program.start)


def _killed(pids: Sequence[int]) -> bool:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return bool(pids)


@dataclass
class Watch:
    """The current batch of a job, and the state of the sink when that batch was first seen."""

    checkpoint: Checkpoint | None
    sink: Sink
    _first: int = -2
    _batch: int = -2
    _begun: object = None
    _committed: object = None

    def look(self) -> None:
        """Check for a new batch.

        A batch that an earlier run planned does not count as this run's first.
        """
        batch = self.checkpoint.planned if self.checkpoint else -1
        if self._first == -2:
            self._first = batch
        if batch != self._batch:
            self._batch = batch
            self._begun, self._committed = self.sink.begun(), self.sink.committed()

    def is_at(self, moment: Moment) -> bool:
        """Return whether the batch has reached the moment.

        The first batch of a query has no rows.
        """
        first = max(self._first, 0)
        if self.checkpoint and not (first < self._batch > self.checkpoint.done):
            return False
        has_begun = self.sink.begun() != self._begun
        has_committed = self.sink.committed() != self._committed
        match moment:
            case Moment.PLANNED:
                return not has_begun and not has_committed
            case Moment.AMID:
                return has_begun and not has_committed
        return has_committed

    def __str__(self) -> str:
        if self.checkpoint is None:
            return f"sink {self.sink.committed()}"
        return f"batch {self._batch}, checkpoint's last {self.checkpoint.done}"


@dataclass
class Killed:
    """A job that is killed at each point in turn, and restarted until it ends by itself.

    lines: a report of each kill.
    """

    job: SparkJob
    sink: Sink
    checkpoint: Checkpoint | None
    lines: list[str] = field(default_factory=list)

    def run(self, kills: Sequence[Kill]) -> None:
        """Run the job.

        Raises AssertionError if it fails without a kill, or does not reach a point.
        """
        left = list(kills)
        give_up_s = time.monotonic() + RUN_S_MAX
        while True:
            self.job.launch()
            watch = Watch(self.checkpoint, self.sink)
            was_ended = False
            while self.job.running:
                assert time.monotonic() < give_up_s, self.job.tail()
                watch.look()
                if left and watch.is_at(left[0].moment) and self._struck(left[0], watch):
                    was_ended = left.pop(0).ends or was_ended
                time.sleep(POLL_S)
            if self.job.exit_code == 0:
                break
            assert was_ended, f"exit code {self.job.exit_code}: {self.job.tail()}"
            self.job.kill_all()  # end the processes that a failed driver left
        assert not left, f"not reached: {left}; reached: {self.lines}"

    def _struck(self, kill: Kill, watch: Watch) -> bool:
        """Return whether the kill happened.

        It happens if the moment still holds after all processes have stopped, and the target
        exists.
        """
        with self.job.frozen():
            seen = str(watch)
            if not watch.is_at(kill.moment) or not kill.act(self.job):
                return False
        if kill.after:
            kill.after()
        self.lines.append(f"{kill.what} killed {kill.moment.value} ({seen})")
        return True
