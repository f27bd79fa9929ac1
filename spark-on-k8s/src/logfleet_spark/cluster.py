"""Blocking calls for Spark's callbacks, on the asyncio client.

Each instance has an event loop of its own that runs only while a call lasts: Spark's Python workers
have one thread, and every task runs in a worker of its own. Each query also starts a Python process
that only plans its batches: what reads and writes records (numpy, pyarrow.compute, checksums,
codecs) is imported by the methods that do so.
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
from logfleet.client.offsets import OffsetSpec, TopicPartition, list_offsets
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

T = TypeVar("T")

log = logging.getLogger(__name__)

PARTITION_BYTES = 4 * 1024 * 1024
"""Of one partition in one answer, unless `kafka.max.partition.fetch.bytes` says otherwise.

Kafka's 1 MiB takes more requests.
"""
FIRST_BYTES = 64 * 1024
"""Of one partition in a task's first answer.

Who looks at a few rows (`limit(1)`, `isEmpty`) stops the task then.
"""
GROWTH = 8
"""By how much each next answer may be larger, up to PARTITION_BYTES.

A long task asks twice more.
"""
POLL_MS = 1_000
STALLED_POLLS_MAX = 5
"""Polls without a record before it is asked whether the partition still reaches that far."""
CHECKS_MAX = 24
"""Such checks that found all in place before a read is given up.

Two minutes, as Spark's kafkaConsumer.pollTimeoutMs.
"""
BATCH_BYTES = 512 * 1024
"""Of a written batch at most, unless `kafka.batch.size` says otherwise.

Half of what a topic takes by default (max.message.bytes).
"""


CALL_TIMEOUT_MS = 300_000
"""Brokers may be away for so long before a call, a read or a write fails, unless
`kafka.default.api.timeout.ms` or `kafka.delivery.timeout.ms` say otherwise.

Spark's source asks four times for a minute each (`fetchOffset.numRetries` of calls of
`default.api.timeout.ms`).
"""
COMMIT_S = 5.0
"""For a commit to a group, which must not hold up the data."""


class StalledError(Exception):
    """Records that should be there did not come; the text names them."""


class Cluster:
    """A connection to a cluster; use as a context manager or call close."""

    def __init__(self, bootstrap: str, options: ClientOptions | None = None) -> None:
        self._options = options or ClientOptions()
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
        """All topics that are not Kafka's own."""
        return [
            topic for topic in self._run(Admin(self._client).list_topics()) if not topic.internal
        ]

    def find(self, names: Iterable[str]) -> list[Topic]:
        """Those of the topics that are there now, by one request for all."""
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
        """Offset by partition for EARLIEST or LATEST, by one request to each leader.

        Partitions that are gone are left out.

        there: the topics as they were found a moment ago; None: they are asked for.
        """
        wanted = self._there(at, there)
        found = self._run(list_offsets(self._client, wanted)) if wanted else {}
        return {tp: answer.offset for tp, answer in found.items()}

    def offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """First offset at or after each time; None where every record is older."""
        found = self._run(list_offsets(self._client, times_ms)) if times_ms else {}
        return {tp: None if at.offset < 0 else at.offset for tp, at in found.items()}

    def read(
        self,
        ranges: Iterable[OffsetRange],
        topic_ids: TopicIds | None = None,
        *,
        losses: Losses | None = None,
        columns: Sequence[str] = DEFAULT_COLUMNS,
    ) -> Iterator[pa.RecordBatch]:
        """The records of ranges of different partitions, as they come, without compacted offsets.

        topic_ids: of the topics of the ranges, where known. columns: of the batches, in this order.
        Raises DataLossError if records were deleted meanwhile or a topic was created again
        (KIP-516); if loss is accepted, records of such a topic are left out.
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
                    raise StalledError(f"{texts} is there, but no record of it came")
                left, lost = self._left(left)
                losses.take(lost)
                # go on after the records taken: a response with an offset out of range is dropped
                # as a whole
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
                part = Part(tp.topic, tp.partition, each.batches, wanted.start, wanted.end)
                parts.append(part)
                if each.end_offset < wanted.end:
                    left[tp] = OffsetRange(tp, each.end_offset, wanted.end)
            if left.keys() != fetcher.positions().keys():
                fetcher.assign({tp: r.start for tp, r in left.items()})
            yield from decode(parts, columns=columns)

    def write(self, batches: Iterable[pa.RecordBatch], topic: str | None = None) -> int:
        """Write all rows, to the topic or to those that they name.

        Returns how many once every one is acknowledged.

        Raises the first failure, and takes no more rows then.
        """
        return self._run(self._write(batches, topic))

    async def _write(self, batches: Iterable[pa.RecordBatch], topic: str | None) -> int:
        from logfleet.client.producer import Producer

        from logfleet_spark.writing import write

        options = {
            "batch_bytes": BATCH_BYTES,
            "delivery_timeout_ms": CALL_TIMEOUT_MS,
            **self._options.producer,
        }
        async with Producer(self._client, **options) as producer:
            return await write(producer, batches, topic)

    def commit(self, group: str, offsets: Offsets, missing: set[TopicPartition]) -> None:
        """Commit the offsets to a group, so that its lag can be watched.

        Whatever keeps it from that is a warning: the checkpoint has them.

        Partitions that are not visible are left out; missing: those that were warned of, kept by
        the caller from call to call. A group that has members of its own takes nothing from
        outside.
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
        """Partitions without a replica in sync in that rack, as the topics were just found.

        Others' brokers are read from (KIP-392).
        """
        near = {node.id for node in self._client.metadata.nodes.values() if node.rack == rack}
        return [
            TopicPartition(topic.name, row.index)
            for topic in topics
            for row in topic.partitions
            if near.isdisjoint(row.isr)
        ]

    def _poll(self, fetcher: "Fetcher") -> "list[Fetched] | None":
        """What has arrived; None if the offset to read is not there."""
        try:
            return self._run(fetcher.poll(POLL_MS))
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None

    def _left(
        self, wanted: Mapping[TopicPartition, OffsetRange]
    ) -> tuple[dict[TopicPartition, OffsetRange], list[Loss]]:
        """Of ranges whose next offset did not come, what is there.

        From their start if that is, else from the first that is; and what is gone.

        Ranges of which nothing is left are left out.
        Source: KafkaDataConsumer.getEarliestAvailableOffsetBetween of Spark's Kafka source.
        """
        first = self.offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        end = self.offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
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

    def _there(
        self, by_partition: Mapping[TopicPartition, int], topics: Iterable[Topic] | None = None
    ) -> dict[TopicPartition, int]:
        """What of it is of partitions that are there now.

        topics: as they were found; None: they are asked for.
        """
        if topics is None:
            topics = self.find(tp.topic for tp in by_partition)
        there = set(partitions_of(topics))
        return {tp: value for tp, value in by_partition.items() if tp in there}

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)


def partitions_of(topics: Iterable[Topic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, row.index) for topic in topics for row in topic.partitions]
