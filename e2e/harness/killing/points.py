"""What is killed, at which moment of a batch, and the runs of a job from the first kill to its end.

A moment is a condition on what lies outside the job: its checkpoint and its sink. Where it holds,
the job is frozen and the condition checked again: the kill comes at that moment and not after it.
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
    """Of one micro-batch; of a job without checkpoint only AMID."""

    PLANNED = "after the offsets log, before anything is written"
    AMID = "amid the batch's write"
    WRITTEN = "between the sink's commit and the checkpoint's"


class Sink(Protocol):
    """What is written, as others see it."""

    def committed(self) -> object:
        """Another value after each batch that has been written."""

    def begun(self) -> object:
        """Another value once a batch's write has begun."""


class Server(Protocol):
    """A program beside the job."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Kill:
    """what: its name in the report. act: kills it; False if there is none yet.

    ends: whether the job may end because of it. after: starts it again, where the job does not.
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
    """A broker or a database; the job goes on."""

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
    """A job's present batch, and what the sink showed when it was first seen."""

    checkpoint: Checkpoint | None
    sink: Sink
    _first: int = -2
    _batch: int = -2
    _begun: object = None
    _committed: object = None

    def look(self) -> None:
        """At the first one, what an earlier run has planned is not this run's."""
        batch = self.checkpoint.planned if self.checkpoint else -1
        if self._first == -2:
            self._first = batch
        if batch != self._batch:
            self._batch = batch
            self._begun, self._committed = self.sink.begun(), self.sink.committed()

    def is_at(self, moment: Moment) -> bool:
        """Whether the batch is there. The first one of a query has no rows."""
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
    """A job that is killed at each point in turn, and started again until it ends by itself.

    lines: what was killed when.
    """

    job: SparkJob
    sink: Sink
    checkpoint: Checkpoint | None
    lines: list[str] = field(default_factory=list)

    def run(self, kills: Sequence[Kill]) -> None:
        """Raises AssertionError if the job fails without a kill, or a point is not reached."""
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
                    was_ended = left.pop(0).ends
                time.sleep(POLL_S)
            if self.job.exit_code == 0:
                break
            assert was_ended, f"exit code {self.job.exit_code}: {self.job.tail()}"
            self.job.kill_all()  # what a driver that failed has left
        assert not left, f"not reached: {left}; reached: {self.lines}"

    def _struck(self, kill: Kill, watch: Watch) -> bool:
        """Whether the moment still was when all stood still, and what is to be killed was."""
        with self.job.frozen():
            seen = str(watch)
            if not watch.is_at(kill.moment) or not kill.act(self.job):
                return False
        if kill.after:
            kill.after()
        self.lines.append(f"{kill.what} killed {kill.moment.value} ({seen})")
        return True
