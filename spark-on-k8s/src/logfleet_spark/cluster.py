"""Blocking calls for Spark's callbacks, on top of the asyncio client.

Each instance has its own event loop, which runs only during a call: Spark's Python workers have one
thread, and every task runs in its own worker. Each query also starts a Python process that only
plans its batches. To keep that process small, the modules that read and write records (numpy,
pyarrow.compute, checksums, codecs) are imported by the methods that need them.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa
from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, KafkaError, raise_for
from logfleet.client.metadata import Topic
from logfleet.client.offsets import (
    IsolationLevel,
    OffsetSpec,
    TopicPartition,
    list_offsets,
)
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import MetadataRequest, MetadataResponse

from logfleet_spark.client_options import ClientOptions
from logfleet_spark.losses import Losses
from logfleet_spark.offsets import (
    Loss,
    OffsetRange,
    Offsets,
    TopicIds,
    recreated,
    recreated_losses,
)
from logfleet_spark.options import DEFAULT_COLUMNS

if TYPE_CHECKING:
    from logfleet.client.fetcher import Fetched, Fetcher

    from logfleet_spark.exactly_once import VersionedBatch

T = TypeVar("T")

log = logging.getLogger(__name__)

PARTITION_BYTES = 4 * 1024 * 1024
"""Bytes of one partition in a fetch response, unless `kafka.max.partition.fetch.bytes` is set.

Kafka's default of 1 MiB takes more requests.
"""
FIRST_BYTES = 64 * 1024
"""Bytes of one partition in the first fetch response of a task.

A query that needs only a few rows (`limit(1)`, `isEmpty`) stops the task after that response.
"""
GROWTH = 8
"""Factor by which the limit grows with each fetch response, up to PARTITION_BYTES.

A long task makes two more requests because of it.
"""
POLL_MS = 1_000
STALLED_POLLS_MAX = 5
"""Polls without a record before a check whether the partition still holds the offset."""
CHECKS_MAX = 24
"""Such checks in a row that find the offset in place before the read fails.

Together they take two minutes, as Spark's kafkaConsumer.pollTimeoutMs.
"""
BATCH_BYTES = 512 * 1024
"""Largest size of a written batch, unless `kafka.batch.size` is set.

It is half of the size that a topic accepts by default (max.message.bytes).
"""


CALL_TIMEOUT_MS = 300_000
"""Time for which brokers may be unreachable before a call, a read or a write fails, unless
`kafka.default.api.timeout.ms` or `kafka.delivery.timeout.ms` is set. It is also the timeout of a
transaction, unless `kafka.transaction.timeout.ms` is set.

Spark's source tries four times for a minute each (`fetchOffset.numRetries` calls of
`default.api.timeout.ms`).
"""
COMMIT_S = 5.0
"""Time limit of a commit to a group: a commit must not delay the data."""


class StalledError(Exception):
    """Records that the partition holds did not arrive; the text names their offsets."""


class Cluster:
    """A connection to a cluster; use as a context manager or call close."""

    def __init__(self, bootstrap: str, options: ClientOptions | None = None) -> None:
        self._options = options or ClientOptions()
        self._isolation = self._options.fetcher.get("isolation", IsolationLevel.READ_UNCOMMITTED)
        self._runner = asyncio.Runner()
        self._client = Client(
            bootstrap,
            on_outage=lambda sentence: log.warning("logfleet: %s", sentence),
            **{
                "client_id": "logfleet-spark",
                "timeout_ms": CALL_TIMEOUT_MS,
                **self._options.client,
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()
        self._runner.close()

    def topics(self) -> list[Topic]:
        """Return all topics except Kafka's internal ones."""
        return [
            topic for topic in self._run(Admin(self._client).list_topics()) if not topic.internal
        ]

    def find(self, names: Iterable[str]) -> list[Topic]:
        """Return the topics of these names that exist now, by one request for all."""
        wanted = list(names)
        return self._run(self._client.retrying(lambda: self._find(wanted))) if wanted else []

    async def _find(self, names: list[str]) -> list[Topic]:
        rows = [MetadataRequest.MetadataRequestTopic(name=name) for name in dict.fromkeys(names)]
        connection = await self._client.any()
        answer = await connection.request(
            MetadataRequest(topics=rows, allow_auto_topic_creation=False),
            MetadataResponse,
            timeout_ms=self._client.request_timeout_ms,
        )
        found = self._client.metadata.update(answer, asyncio.get_running_loop().time())
        for row in answer.topics:
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._client.metadata.forget([row.name or ""])
            else:
                raise_for(row.error_code, subject=f"topic {row.name}")
        return found

    def offsets(
        self, at: Mapping[TopicPartition, int], *, there: Iterable[Topic] | None = None
    ) -> Offsets:
        """Return the offset of each partition for EARLIEST or LATEST, by one request per leader.

        For a reader of committed records LATEST is the last stable offset: transactions below it
        have ended. Partitions that no longer exist are left out.

        there: the topics that a caller has just looked up; None: this method looks them up.
        """
        return self._offsets(self._existing(at, there), self._isolation)

    def ends(
        self, partitions: Iterable[TopicPartition], at_least: Offsets, *, there: Iterable[Topic]
    ) -> Offsets:
        """Return the end of each partition, as `offsets` does for LATEST.

        at_least: offsets that a query has reached. Where the last stable offset is lower, although
        the partition holds that offset, it is the end: records from there on are not stable yet.
        That is so if the query has read uncommitted records before.
        """
        found = self.offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), there=there)
        lower = [tp for tp, end in found.items() if end < at_least.get(tp, 0)]
        if lower and self._isolation is IsolationLevel.READ_COMMITTED:
            held = self._offsets(dict.fromkeys(lower, OffsetSpec.LATEST))
            found |= {tp: at_least[tp] for tp, end in held.items() if end >= at_least[tp]}
        return found

    def _offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Offsets:
        if not wanted:
            return {}
        found = self._run(list_offsets(self._client, wanted, isolation=isolation))
        return {tp: answer.offset for tp, answer in found.items()}

    def offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after each time (ms); None where every record is older."""
        found = self._offsets(times_ms, self._isolation)
        return {tp: None if offset < 0 else offset for tp, offset in found.items()}

    def read(
        self,
        ranges: Iterable[OffsetRange],
        topic_ids: TopicIds | None = None,
        *,
        losses: Losses | None = None,
        columns: Sequence[str] = DEFAULT_COLUMNS,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of the ranges, at most one range per partition, as they arrive.

        topic_ids: of their topics, where known to the caller. columns: of the batches, in order. If
        losses are accepted, records of a topic that was created again (KIP-516) are left out, else
        DataLossError is raised. Raises StalledError.
        """
        from logfleet.client.fetcher import Fetcher

        from logfleet_spark.decoding import Part, decode

        losses = losses or Losses(accepted=False)
        fetcher = Fetcher(
            self._client, **{"partition_bytes": PARTITION_BYTES, **self._options.fetcher}
        )
        bytes_max = fetcher.partition_bytes
        fetcher.partition_bytes = min(FIRST_BYTES, bytes_max)
        left = {r.where: r for r in ranges if r.size > 0}
        fetcher.assign({tp: r.start for tp, r in left.items()})
        stalled = checks = 0
        while left:
            fetched = self._poll(fetcher)
            if fetched is None or (not fetched and stalled >= STALLED_POLLS_MAX):
                if checks >= CHECKS_MAX:
                    texts = ", ".join(f"{tp}: offset {r.start}" for tp, r in left.items())
                    raise StalledError(f"records that partitions hold did not arrive: {texts}")
                left, lost = self._remaining(left)
                losses.take(lost)
                # go on behind the records that were yielded: the fetcher drops the whole response
                # if one offset in it is out of range
                fetcher.assign({tp: r.start for tp, r in left.items()})
                stalled, checks = 0, checks + 1
                continue
            if fetched:
                fetcher.partition_bytes = min(fetcher.partition_bytes * GROWTH, bytes_max)
            stalled = 0 if fetched else stalled + 1
            checks = 0 if fetched else checks
            if others := recreated(topic_ids or {}, fetcher.topic_ids()):
                losses.take(recreated_losses(topic_ids or {}, fetcher.topic_ids()))
                left = {tp: r for tp, r in left.items() if tp.topic not in others}
                fetched = [each for each in fetched if each.partition in left]
            parts = []
            for each in fetched:
                tp = each.partition
                wanted = left.pop(tp)
                bounds = wanted.start, wanted.end
                parts.append(Part(tp.topic, tp.partition, each.batches, *bounds, each.aborted))
                if each.end_offset < wanted.end:
                    left[tp] = OffsetRange(tp, each.end_offset, wanted.end)
            if left.keys() != fetcher.positions().keys():
                fetcher.assign({tp: r.start for tp, r in left.items()})
            yield from decode(parts, columns=columns)

    def write(self, batches: Iterable[pa.RecordBatch], topic: str | None = None) -> int:
        """Write all rows, to `topic` or to the topic that each row names.

        Returns the number of rows once every one is acknowledged. Raises the first failure, and
        takes no more rows after it.
        """
        return self._run(self._write(batches, topic))

    def write_once(
        self, batches: Iterable[pa.RecordBatch], topic: str | None, batch: "VersionedBatch"
    ) -> bool:
        """Write all rows in one transaction, as `exactly_once.write_once`."""
        from logfleet_spark.exactly_once import write_once

        options = {**self._producer_options, "timeout_ms": CALL_TIMEOUT_MS}
        options |= self._options.transaction
        return self._run(write_once(self._client, batches, topic, batch, **options))

    async def _write(self, batches: Iterable[pa.RecordBatch], topic: str | None) -> int:
        from logfleet.client.producer import Producer

        from logfleet_spark.writing import write

        async with Producer(self._client, **self._producer_options) as producer:
            return await write(producer, batches, topic)

    @property
    def _producer_options(self) -> dict[str, Any]:
        return {
            "batch_bytes": BATCH_BYTES,
            "delivery_timeout_ms": CALL_TIMEOUT_MS,
            **self._options.producer,
        }

    def commit(self, group: str, offsets: Offsets, missing: set[TopicPartition]) -> None:
        """Commit the offsets to a group, so that monitoring can show the group's lag.

        A commit that fails is only a warning, as the checkpoint holds the offsets too. It fails,
        for example, if the group has members: brokers then accept commits from its members only.

        Partitions that do not exist are left out. missing: those of them that were logged already;
        the caller passes the same set to each call.
        """
        try:
            self._run(asyncio.wait_for(self._commit(group, offsets, missing), COMMIT_S))
        except (ClientError, TimeoutError) as error:
            why = str(error) or f"no answer within {COMMIT_S:.0f} s"
            log.warning("group %s: offsets are not committed: %s", group, why)

    async def _commit(self, group: str, offsets: Offsets, missing: set[TopicPartition]) -> None:
        from logfleet.client.groups import Groups

        found = await self._client.retrying(lambda: self._find([tp.topic for tp in offsets]))
        there = set(partitions_of(found))
        gone = offsets.keys() - there
        if new := sorted(gone - missing):
            log.warning("group %s: partitions are gone: %s", group, ", ".join(map(str, new)))
        missing.clear()
        missing.update(gone)
        if kept := {tp: at for tp, at in offsets.items() if tp in there}:
            await Groups(self._client).commit(group, kept)

    def far_from(self, rack: str, topics: Iterable[Topic]) -> list[TopicPartition]:
        """Return the partitions that have no in-sync replica in that rack.

        They are read from brokers in other racks (KIP-392). topics: as just looked up.
        """
        near = {node.id for node in self._client.metadata.nodes.values() if node.rack == rack}
        return [
            TopicPartition(topic.name, row.index)
            for topic in topics
            for row in topic.partitions
            if near.isdisjoint(row.isr)
        ]

    def _poll(self, fetcher: "Fetcher") -> "list[Fetched] | None":
        """Return the records that have arrived; None if an offset to read is out of range."""
        try:
            return self._run(fetcher.poll(POLL_MS))
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None

    def _remaining(
        self, wanted: Mapping[TopicPartition, OffsetRange]
    ) -> tuple[dict[TopicPartition, OffsetRange], list[Loss]]:
        """Return the parts of the ranges that still exist, and the parts that are lost.

        Called for ranges whose next offset did not arrive. A range keeps its start if that offset
        exists, else it starts at the first offset that exists. A range of which nothing exists is
        left out.
        Source: KafkaDataConsumer.getEarliestAvailableOffsetBetween of Spark's Kafka source.
        """
        existing = self._existing(dict.fromkeys(wanted, OffsetSpec.LATEST))
        first = self._offsets(dict.fromkeys(existing, OffsetSpec.EARLIEST))
        # of all records: a leader that has just begun may report a lower last stable offset
        end = self._offsets(existing)
        left, lost = {}, []
        for tp, r in wanted.items():
            if tp not in first or tp not in end:
                lost.append(Loss(f"{tp} from {r.start} to {r.end} (partition gone)", r.size))
            elif first[tp] <= r.start < end[tp]:
                left[tp] = r
            else:
                there = f"there: {first[tp]} to {end[tp]}"
                kept = r.end - first[tp] if r.start < first[tp] < r.end else 0
                lost.append(Loss(f"{tp} from {r.start} to {r.end - kept} ({there})", r.size - kept))
                if kept:
                    left[tp] = OffsetRange(tp, first[tp], r.end)
        return left, lost

    def _existing(
        self, by_partition: Mapping[TopicPartition, int], topics: Iterable[Topic] | None = None
    ) -> dict[TopicPartition, int]:
        """Keep the entries whose partitions exist now.

        topics: as just looked up; None: this method looks them up.
        """
        if topics is None:
            topics = self.find(tp.topic for tp in by_partition)
        there = set(partitions_of(topics))
        return {tp: value for tp, value in by_partition.items() if tp in there}

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)


def partitions_of(topics: Iterable[Topic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, row.index) for topic in topics for row in topic.partitions]
