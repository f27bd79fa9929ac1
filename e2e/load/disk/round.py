"""One round of the soak: a broker with an empty disk, the mixed load, and so many deaths at seeded moments."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from logfleet.log.names import TopicPartition

from e2e.harness.processes import Rig
from e2e.harness.topics import PATIENCE_S
from e2e.harness.wire_connection import WireConnection
from e2e.load.disk.directory import check_directory, first_dirty_offsets, is_amid_compaction
from e2e.load.disk.history import History, check_not_less
from e2e.load.disk.workers import (
    COMPACTED,
    GROUP,
    KEPT,
    PARTITIONS,
    PLAIN_GROUP,
    PRUNED,
    Member,
    Plain,
    Worker,
    Writer,
    committed_offsets,
    log_starts,
)

WRITERS = ("a", "b", "c")
INTERVAL_BYTES = 2000
RETENTION_BYTES = 100_000
ACKNOWLEDGED_BETWEEN_KILLS = (500, 4000)
"""Records confirmed in one life of the broker, at least and at most."""
DIES_STARTING = 0.2
"""Probability that a life ends while the broker starts."""
DIES_COMPACTING = 0.3
"""Probability that a life ends soon after a compaction has begun to write."""
COMPACTION_S = 0.1
"""About as long as one takes here, from its first file to its last rename."""
START_S = 1.0
"""About as long as a start takes; a start is cut short anywhere in it."""
POLL_S = 0.002
FLUSH_MS = (200, 200, 5000)
"""Of rounds in turns. What is not flushed and checkpointed is not compacted, and is looked through after a crash."""

BROKER_CONFIG = {
    "log.index.interval.bytes": str(INTERVAL_BYTES),
    "log.retention.check.interval.ms": "200",
    "offsets.topic.num.partitions": "2",
    "log.cleaner.backoff.ms": "200",
    "log.roll.ms": "400",  # of the topics that say nothing else: so that commits are compacted, too
    "log.cleaner.min.cleanable.ratio": "0.1",
}
TOPIC_CONFIGS = {
    KEPT: {"segment.ms": "700"},
    PRUNED: {
        "segment.ms": "100",
        "retention.bytes": str(RETENTION_BYTES),
        "file.delete.delay.ms": "500",
    },
    COMPACTED: {
        "segment.ms": "300",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "500",
        "file.delete.delay.ms": "500",
    },
}


class Figures(NamedTuple):
    """What a round went through.

    compactions: lives of the broker in which one went further, counted per log; kills_amid_compaction: those that left one unfinished.
    """

    kills: int = 0
    records: int = 0
    commits: int = 0
    deletions: int = 0
    compactions: int = 0
    kills_amid_compaction: int = 0
    seconds: float = 0.0


class SoakFailed(AssertionError):
    """Something acknowledged is gone, or came twice, or went back. The text says what."""


class Round:
    """seed: of the moments of death and of what is deleted."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self._dice = random.Random(seed)
        self._kills = self._compactions = self._kills_amid_compaction = 0
        self._clean: dict[TopicPartition, int] = {}
        flush_ms = FLUSH_MS[seed % len(FLUSH_MS)]
        self._broker = rig.broker(
            {**BROKER_CONFIG, "log.flush.scheduler.interval.ms": str(flush_ms)}
        )
        self._committed: dict[str, dict[tuple[str, int], int]] = {GROUP: {}, PLAIN_GROUP: {}}
        self.history = History(
            {(topic, p): {} for topic, count in PARTITIONS.items() for p in range(count)}
        )
        self._create_topics()
        self._writers = [Writer(name, self._broker.bootstrap, self.history) for name in WRITERS]
        self._member = Member(self._broker.bootstrap, self.history)
        plain = Plain(self._broker.port, self.history, seed)
        self._workers: list[Worker] = [*self._writers, self._member, plain]

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        topics = [
            NewTopic(name, count, 1, config=TOPIC_CONFIGS[name])
            for name, count in PARTITIONS.items()
        ]
        for each in admin.create_topics(topics).values():
            each.result(timeout=PATIENCE_S)

    def run(self, kills: int) -> Figures:
        """At least so many deaths, and one more if no compaction was lived through. Raises SoakFailed, and ProgramFailed if the broker does not start again."""
        started = time.monotonic()
        for worker in self._workers:
            worker.start()
        try:
            while self._kills < kills:
                self._live()
                self._die()
            if not self._compactions:  # on a busy machine they take longer than a life
                self._wait("a compaction's end", lambda: self._newly_clean() > 0)
                self._die()
            self._end()
        except BaseException:
            self._abandon()
            raise
        return Figures(
            self._kills,
            self.history.count(),
            self.history.commits,
            self.history.deletions,
            self._compactions,
            self._kills_amid_compaction,
            time.monotonic() - started,
        )

    def _die(self) -> None:
        self._kill()
        self._check_what_is_left()
        self._start()

    def _kill(self) -> None:
        self._broker.kill()
        self._kills += 1
        self._compactions += self._newly_clean()
        self._clean = first_dirty_offsets(self._broker.data)
        self._kills_amid_compaction += is_amid_compaction(self._broker.data)

    def _newly_clean(self) -> int:
        """Logs in which compaction went further in this life."""
        clean = first_dirty_offsets(self._broker.data)
        return sum(self._clean.get(log, 0) < end for log, end in clean.items())

    def _abandon(self) -> None:
        """It has failed: what the writers still hold does not matter."""
        for worker in self._workers:
            worker.abandoned = True
            worker.ending.set()
        for worker in self._workers:
            worker.join()

    def _live(self) -> None:
        """Until the moment of death has come."""
        kind = self._dice.random()
        if kind < DIES_STARTING:
            self._kill()
            self._broker.launch()
            time.sleep(self._dice.uniform(0, START_S))  # the moment is the point of it
        elif kind < DIES_STARTING + DIES_COMPACTING:
            data = self._broker.data
            self._wait("a compaction", lambda: is_amid_compaction(data))
            time.sleep(self._dice.uniform(0, COMPACTION_S))
        else:
            count = self._dice.randint(*ACKNOWLEDGED_BETWEEN_KILLS)
            wanted = self.history.count() + count
            self._wait(f"{count} records", lambda: self.history.count() >= wanted)

    def _wait(self, what: str, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_there():
            self._raise_for(self.history.failures)
            if time.monotonic() > deadline:
                raise SoakFailed(f"{PATIENCE_S:.0f} s without {what}")
            time.sleep(POLL_S)

    def _start(self) -> None:
        """It runs again, and tells what it told before."""
        before = {group: self._confirmed(group) for group in self._committed}
        starts = dict(self.history.starts)
        self._broker.start()
        with WireConnection(self._broker.port) as connection:
            now = log_starts(connection)
            self._raise_for(check_not_less("the start", now, starts))
            for group, earlier in before.items():
                offsets = self._committed_of(connection, group)
                self._raise_for(check_not_less(f"the commit of {group}", offsets, earlier))
                self._committed[group] = offsets

    def _confirmed(self, group: str) -> dict[tuple[str, int], int]:
        """The largest offset per partition that was confirmed or read back."""
        offsets = dict(self._committed[group])
        for (name, partition), offset in dict(self.history.committed).items():
            if name == group:
                offsets[partition] = max(offset, offsets.get(partition, -1))
        return offsets

    def _committed_of(self, connection: WireConnection, group: str) -> dict[tuple[str, int], int]:
        deadline = time.monotonic() + PATIENCE_S
        while (offsets := committed_offsets(connection, group)) is None:
            if time.monotonic() > deadline:
                raise SoakFailed(f"the coordinator of {group} does not answer")
            time.sleep(POLL_S)
        return offsets

    def _check_what_is_left(self) -> None:
        self._raise_for(
            check_directory(
                self._broker.data,
                self.history,
                interval_bytes=INTERVAL_BYTES,
                retention_bytes=RETENTION_BYTES,
            )
        )
        self._raise_for(self.history.failures)

    def _end(self) -> None:
        """Everything is confirmed and read, the broker stops in order, and all is still there."""
        for writer in self._writers:
            writer.ending.set()
        for writer in self._writers:
            writer.join()
        self._read_all()
        for worker in self._workers:
            worker.ending.set()
            worker.join()
        log = self._broker.log.read_text(errors="replace")
        self._broker.terminate()
        self._check_what_is_left()
        lines = log.splitlines()
        traced = [i for i, line in enumerate(lines) if "Traceback" in line]
        self._raise_for(["the broker logged an exception", *lines[traced[0] :]] if traced else [])

    def _read_all(self) -> None:
        """Wait until the group has read everything. After lives too short for a session to end, that may be most of it."""
        least, deadline = self._unread(), time.monotonic() + PATIENCE_S
        while unread := self._unread():
            self._raise_for(self.history.failures)
            if unread < least:
                least, deadline = unread, time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline:
                raise SoakFailed(
                    f"the group has read nothing for {PATIENCE_S:.0f} s, and not {unread} records; "
                    f"{self._member.state()}\n{self._broker.tail()}"
                )
            time.sleep(0.05)

    def _unread(self) -> int:
        return sum(
            (index, offset) not in self._member.read
            for index in range(PARTITIONS[KEPT])
            for offset in self.history.acknowledged[KEPT, index]
        )

    def _raise_for(self, faults: list[str]) -> None:
        if faults:
            raise SoakFailed("\n".join(faults[:20]))


def run_round(directory: Path, seed: int, kills: int) -> Figures:
    """One round with everything below `directory`, which is kept if it fails."""
    rig = Rig(directory)
    try:
        return Round(rig, seed).run(kills)
    finally:
        rig.close()
