import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from logfleet.config.broker import broker_config
from logfleet.io.clock import monotonic_ms, now_ms
from logfleet.io.files import PosixFiles
from logfleet.io.slices import Slices
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.retention import Retention
from logfleet.log.segments import segment
from logfleet.log.segments.index_entries import time_entries
from logfleet.log.segments.open_files import OpenFiles
from logfleet.metadata.image import ClusterImage
from logfleet.node.partitions.flush_rules import FLUSH_PERIOD_S
from logfleet.node.partitions.maintenance import Maintenance
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.records.batch import parse_header
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.node.handlers.conftest import Host


@pytest.mark.parametrize(
    "unflushed, flush_ms, ago_ms, is_due",
    [
        (False, None, 10**9, False),
        (True, None, 0, True),
        (True, 60_000, 0, False),
        (True, 60_000, 60_000, True),
        (False, 60_000, 60_000, False),
    ],
)
def test_a_log_is_flushed_again_after_flush_ms(unflushed, flush_ms, ago_ms, is_due):
    config = LogConfig() if flush_ms is None else LogConfig(flush_ms=flush_ms)
    log: Any = SimpleNamespace(unflushed=unflushed, config=config, flushed_ms=now_ms() - ago_ms)
    assert Maintenance._is_due(log) is is_due


@pytest.mark.parametrize(
    "given, period_s",
    [
        ({}, FLUSH_PERIOD_S),
        ({"log.flush.scheduler.interval.ms": "200"}, 0.2),
        ({"log.flush.scheduler.interval.ms": "0"}, 0.001),
    ],
)
def test_logs_are_flushed_as_often_as_configured(given, period_s):
    maintenance = Maintenance.__new__(Maintenance)
    maintenance._config = broker_config(given)
    assert maintenance.flush_period_s == period_s


@pytest.mark.parametrize(
    "given, period_s",
    [
        ({}, None),
        ({"log.flush.offset.checkpoint.interval.ms": "5000"}, None),
        ({"log.flush.offset.checkpoint.interval.ms": "200"}, 0.2),
        ({"log.flush.offset.checkpoint.interval.ms": "0"}, 0.001),
        (
            {
                "log.flush.offset.checkpoint.interval.ms": "200",
                "log.flush.scheduler.interval.ms": "100",
            },
            None,
        ),
    ],
)
def test_recovery_points_are_written_as_often_as_asked(given, period_s):
    maintenance = Maintenance.__new__(Maintenance)
    maintenance._config = broker_config(given)
    assert maintenance.checkpoint_period_s == period_s


def test_checkpoints_are_written_where_recovery_points_have_moved():
    def log_dir(path, *points):
        logs = {
            n: SimpleNamespace(recovery_point=now, checkpointed_point=known)
            for n, (now, known) in enumerate(points)
        }
        return SimpleNamespace(path=path, logs=logs)

    written = []

    class Checkpointer:
        async def write(self, log_dir, _high_watermarks):
            written.append(log_dir)

    moved, still = log_dir("a", (5, 5), (7, 3), (9, 1)), log_dir("b", (5, 5))
    maintenance: Any = Maintenance.__new__(Maintenance)
    maintenance._log_dirs = LogDirs(OpenFiles(PosixFiles()), [still, moved])
    maintenance._checkpointer = Checkpointer()
    maintenance._table = PartitionTable(ClusterImage)
    maintenance._slices = Slices()
    maintenance._moved, maintenance._checkpointed_s = set(), {}
    asyncio.run(maintenance.checkpoint())
    assert written == [moved]


def test_they_are_written_as_often_as_is_asked(monkeypatch):
    async def main() -> None:
        written = asyncio.Event()

        async def checkpoint(_maintenance: Maintenance) -> None:
            written.set()

        monkeypatch.setattr(Maintenance, "checkpoint", checkpoint)
        maintenance: Any = Maintenance.__new__(Maintenance)
        maintenance._config = broker_config({"log.flush.offset.checkpoint.interval.ms": "1"})
        running = asyncio.create_task(maintenance.run())
        await asyncio.wait_for(written.wait(), 10)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(main())


@pytest.mark.parametrize("lost_with_left, taken", [(0, 4), (3, 2)])
def test_retention_takes_all_steps_of_a_log_as_long_as_it_has_its_role(lost_with_left, taken):
    class Log:
        log_start_offset = 0
        segments = ()

        def __init__(self) -> None:
            self.steps: list[Retention | None] = [
                Retention(0, "old"),
                Retention(4, "old"),
                Retention(1, "old"),
                None,
            ]

        def apply_retention(self, _now_ms: int, high_watermark: int) -> Retention | None:
            assert high_watermark == 7
            replica.is_current = len(self.steps) > lost_with_left
            return self.steps.pop(0)

    log = Log()
    replica = SimpleNamespace(topic="t", index=0, is_current=True, high_watermark=7, log=log)
    maintenance: Any = Maintenance.__new__(Maintenance)
    maintenance._table, maintenance._slices = [replica], Slices()
    maintenance._flusher = Flusher(PosixFiles())
    asyncio.run(maintenance.apply_retention())
    assert 4 - len(log.steps) == taken


def test_a_time_index_that_is_not_true_does_not_stop_the_loop(tmp_path, monkeypatch):
    """All headers are read for it, which takes seconds where a large segment has small batches."""
    rig = LogRig(str(tmp_path))
    config = LogConfig(segment_bytes=4096, retention_ms=3_600_000)
    log = rig.open(config, now_ms=now_ms())
    while len(log.segments) < 7:
        log.append_as_leader(
            build_batch([Record(None, bytes(60), now_ms())]), LeaderEpoch(0), now_ms()
        )
    rig.close(log)
    for name in rig.names(".timeindex"):
        (tmp_path / "topic-0" / name).write_bytes(bytes(12))
    log = rig.open(config, now_ms=now_ms())
    threads = []

    def entries(*given):
        threads.append(threading.current_thread())
        return time_entries(*given)

    monkeypatch.setattr(segment, "time_entries", entries)
    replica = SimpleNamespace(topic="t", index=0, is_current=True, high_watermark=1000, log=log)
    maintenance: Any = Maintenance.__new__(Maintenance)
    maintenance._table, maintenance._slices = [replica], Slices()
    maintenance._flusher = Flusher(PosixFiles())
    asyncio.run(maintenance.apply_retention())
    assert threads
    assert threading.current_thread() not in threads
    assert log.log_start_offset == 0


def test_producers_expire_some_at_a_time(monkeypatch):
    steps: list[list[int]] = []

    class States:
        def ids(self):
            return range(2500)

        def expire(self, ids, _now_ms, expiration_ms):
            assert expiration_ms == 5
            steps.append(list(ids))

    async def pause_if_due(_slices):
        steps.append([])

    monkeypatch.setattr(Slices, "pause_if_due", pause_if_due)
    log = SimpleNamespace(producers=SimpleNamespace(states=States()))
    maintenance: Any = Maintenance.__new__(Maintenance)
    maintenance._table, maintenance._slices = [SimpleNamespace(log=log)], Slices()
    maintenance.producer_id_expiration_ms = 5
    asyncio.run(maintenance.expire_producers())
    assert [len(step) for step in steps] == [0, 1000, 0, 1000, 0, 500, 0]
    assert [producer_id for step in steps for producer_id in step] == list(range(2500))


def test_guards_of_transactions_expire_with_producers(tmp_path):
    host = Host(tmp_path / "data")
    partition = host.host()
    stamp = ProducerStamp(7, 0, 0, transactional=True)
    header = parse_header(build_batch([Record(None, b"v", 0)], producer=stamp))
    guards = partition.guards
    guards.answered(guards.ask(header, adds=True, now_ms=monotonic_ms() - 10), is_final=False)
    maintenance: Any = Maintenance.__new__(Maintenance)
    maintenance._table, maintenance._slices = [partition, host.host("other")], Slices()
    for expiration_ms, left in ((60_000, 1), (5, 0)):
        maintenance.producer_id_expiration_ms = expiration_ms
        asyncio.run(maintenance.expire_producers())
        assert len(guards) == left
    host.close()
