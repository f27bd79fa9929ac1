"""Changes the logs of followed partitions as a fetcher decides, and reports the outcome to it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import structlog

from logfleet.config.throttle_keys import Side
from logfleet.io import clock
from logfleet.log.replicated import UnexpectedAppendOffset
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.node.replication.follower_host import FollowerHost
from logfleet.records.batch import iterate_headers
from logfleet.records.errors import RecordsError
from logfleet.replication import follower
from logfleet.replication.fetcher import (
    Apply,
    Effect,
    Fetcher,
    ReportAhead,
    Restart,
    Truncate,
    WhenWritten,
)
from logfleet.replication.partition_fetch import PartitionFetch, Row
from logfleet.telemetry.decisions import Decision, Kind
from logfleet.types import LeaderEpoch

log = structlog.get_logger(__name__)

Fetch = PartitionFetch[FollowerPartition]


class ReplicaWriter:
    """changed: called when a partition may be fetched again that was not just before."""

    def __init__(
        self,
        host: FollowerHost,
        leader_id: int,
        fetcher: Fetcher[FollowerPartition],
        changed: Callable[[], None],
    ) -> None:
        self._host = host
        self._leader_id = leader_id
        self._fetcher = fetcher
        self._changed = changed
        self._truncations: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Cancel what waits for truncations; those that run are completed (`Truncater`)."""
        for task in self._truncations:
            task.cancel()

    def carry_out(self, effect: Effect[FollowerPartition], now_s: float) -> None:
        """Do it, or begin to, and report the outcome. See `replication.fetcher`."""
        match effect:
            case Apply():
                self._apply(effect.fetch, effect.row, now_s)
            case Truncate():
                self._start(self._truncate(effect.fetch, effect.offset, is_reset=False))
            case Restart():
                self._start(self._truncate(effect.fetch, effect.offset, is_reset=True))
            case WhenWritten():
                self._when_written(effect.fetch)
            case ReportAhead():
                self._report_ahead(effect.fetch, effect.log_epoch)
            case _:
                raise AssertionError(f"not for a log: {effect}")

    # --- appending

    def _apply(self, fetch: Fetch, row: Row, now_s: float) -> None:
        """Append a row's records, and follow the leader's high watermark and log start."""
        partition = fetch.replica
        partition_log = partition.log
        effect: Effect[FollowerPartition] | None = None
        lag_before, end_before = partition.lag, partition_log.log_end_offset
        size = self._append(fetch, row, now_s) if row.records else 0
        if size is None:
            return
        partition.lag = max(0, row.high_watermark - partition_log.log_end_offset)
        if size:
            partition.appended(size)
            self._host.replicated.bytes_in += size
            if self._host.throttle.is_limited(Side.FOLLOWER):
                self._charge(partition, size, end_before, lag_before)
            effect = self._fetcher.appended(fetch, now_s)
        elif row.records:
            effect = self._fetcher.nothing_appended(fetch, _first_epoch(row), now_s)
        high_watermark = follower.high_watermark(
            partition.high_watermark, row.high_watermark, partition_log.written_end_offset
        )
        if high_watermark != partition.high_watermark:
            partition.advance_high_watermark(high_watermark)
        log_start_offset = partition_log.log_start_offset
        if row.log_start_offset > log_start_offset:
            partition_log.follow_log_start(row.log_start_offset, partition.high_watermark)
            if partition_log.log_start_offset != log_start_offset:
                self._fetcher.log_start_moved(fetch)
        if effect is not None:
            self.carry_out(effect, now_s)

    def _append(self, fetch: Fetch, row: Row, now_s: float) -> int | None:
        """Bytes that the log took of the records; None if it refused them, which is reported."""
        partition = fetch.replica
        records: Any = row.records
        try:
            return partition.log.append_as_follower(records, partition.leader_epoch, clock.now_ms())
        except UnexpectedAppendOffset as error:
            effect = self._fetcher.overlapped(fetch, row, error.first_offset, error.last_offset)
            if effect is None:
                self._refused(fetch, error, now_s)
            else:
                self.carry_out(effect, now_s)
        except (OSError, RecordsError) as error:
            self._refused(fetch, error, now_s)
        return None

    def _charge(
        self, partition: FollowerPartition, size: int, end_before: int, lag_before: int
    ) -> None:
        """Count bytes against the replica's quota. lag_before: -1 if it was unknown."""
        copied = partition.log.log_end_offset - end_before
        nearer = copied if lag_before < 0 else lag_before - partition.lag
        self._host.throttle.record(
            Side.FOLLOWER,
            partition.topic,
            partition.index,
            size,
            caught_up=min(1.0, max(0.0, nearer / max(copied, 1))),
        )

    def _refused(self, fetch: Fetch, error: Exception, now_s: float) -> None:
        """The log did not take the records."""
        partition = fetch.replica
        if isinstance(error, OSError):
            self._host.storage_failed(partition, error)
        log.error(
            "not_replicated", topic=partition.topic, partition=partition.index, reason=str(error)
        )
        self._fetcher.not_appended(fetch, now_s)

    def _when_written(self, fetch: Fetch) -> None:
        def written() -> None:
            self._fetcher.written(fetch, asyncio.get_running_loop().time())
            self._changed()

        fetch.replica.log.when_written(written)

    def _report_ahead(self, fetch: Fetch, log_epoch: LeaderEpoch) -> None:
        partition = fetch.replica
        log.error(
            "leader_epoch_is_behind_logs",
            topic=partition.topic,
            partition=partition.index,
            leader=self._leader_id,
            leader_epoch=partition.leader_epoch,
            log_epoch=log_epoch,
            note="the metadata store was restored and its leader epochs were not raised; this "
            "partition is not copied until they are: see step 4 of "
            "docs/how-to/restoring-metadata.md",
        )

    # --- truncating

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._truncations.add(task)
        task.add_done_callback(self._truncations.discard)

    async def _truncate(self, fetch: Fetch, offset: int, *, is_reset: bool) -> None:
        """Truncate the log, or empty it. Other partitions are fetched meanwhile."""
        partition = fetch.replica
        end_offset = partition.log.log_end_offset
        log.info(
            "log_cut",
            topic=partition.topic,
            partition=partition.index,
            leader=self._leader_id,
            leader_epoch=partition.leader_epoch,
            end_offset=end_offset,
            to=offset,
            is_reset=is_reset,
        )
        truncater = self._host.truncater
        work = truncater.reset_to if is_reset else truncater.truncate
        is_done = await work(partition.log, offset, lambda: not fetch.is_ended)
        if is_done and partition.log.log_end_offset != end_offset:
            self._record_truncation(partition, end_offset, is_reset=is_reset)
        now_s = asyncio.get_running_loop().time()
        effect = self._fetcher.truncated(fetch, now_s, is_done=is_done)
        if effect is not None:
            self.carry_out(effect, now_s)
        self._changed()

    def _record_truncation(
        self, partition: FollowerPartition, before: int, *, is_reset: bool
    ) -> None:
        leader = f"broker {self._leader_id}, which leads in epoch {partition.leader_epoch}"
        if is_reset:
            cause = (
                f"the log of {leader}, does not have the end of this one, which starts again empty"
            )
        else:
            cause = f"{leader}, does not have what was behind it"
        facts = {
            "end_offset": [before, partition.log.log_end_offset],
            "leader": self._leader_id,
            "leader_epoch": partition.leader_epoch,
        }
        place = partition.topic, partition.index, self._host.node_id
        self._host.decisions.record(Decision(Kind.TRUNCATION, cause, *place, facts))


def _first_epoch(row: Row) -> LeaderEpoch | None:
    """The leader epoch of the first batch; None if it is cut off."""
    first = next(iterate_headers(cast("memoryview", row.records)), None)
    return None if first is None else first[1].leader_epoch
