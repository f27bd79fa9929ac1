"""Blocking calls for Spark's callbacks, on the asyncio client.

Each instance has an event loop of its own that runs only while a call lasts: Spark's Python workers have one thread, and every
task runs in a worker of its own.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Self, TypeVar

from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.fetcher import Fetched, Fetcher
from logfleet.client.groups import Groups
from logfleet.client.metadata import Topic
from logfleet.client.offsets import OffsetSpec, TopicPartition, list_offsets
from logfleet.client.producer import Producer
from logfleet.records.batch import iterate_headers
from logfleet.wire.errors import ErrorCode

from logfleet_spark.client_options import ClientOptions
from logfleet_spark.offsets import OffsetRange, Offsets, data_loss
from logfleet_spark.rows import Row, TypedRecord

T = TypeVar("T")

log = logging.getLogger(__name__)

ROWS_PER_CHUNK = 10_000
"""Records handed on at once: large enough that Arrow's cost per batch vanishes, small enough for any worker's memory."""
POLL_MS = 1_000
STALLED_POLLS_MAX = 5
"""Polls without a record before it is asked whether the partition still reaches that far."""
CHECKS_MAX = 24
"""Such checks that found all in place before a read is given up: two minutes, as Spark's kafkaConsumer.pollTimeoutMs."""
ROWS_PER_PULL = 1_000
"""Rows taken from Spark at once: enough that the way to a thread and back costs nothing."""


class StalledError(Exception):
    """Records that should be there did not come; the text names them."""


class Cluster:
    """A connection to a cluster; use as a context manager or call close."""

    def __init__(self, bootstrap: str, options: ClientOptions | None = None) -> None:
        self._options = options or ClientOptions()
        self._runner = asyncio.Runner()
        self._client = Client(bootstrap, **{"client_id": "logfleet-spark", **self._options.client})

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
        """Those of the topics that are there now."""
        found = [self._run(Admin(self._client).find_topic(name)) for name in dict.fromkeys(names)]
        return [topic for topic in found if topic is not None]

    def offsets(self, at: Mapping[TopicPartition, int]) -> Offsets:
        """Offset by partition for EARLIEST or LATEST; partitions that are gone are left out."""
        wanted = self._there(at)
        found = self._run(list_offsets(self._client, wanted)) if wanted else {}
        return {tp: answer.offset for tp, answer in found.items()}

    def offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """First offset at or after each time; None where every record is older."""
        found = self._run(list_offsets(self._client, times_ms)) if times_ms else {}
        return {tp: None if at.offset < 0 else at.offset for tp, at in found.items()}

    def read(
        self, wanted: OffsetRange, *, fail_on_data_loss: bool = True
    ) -> Iterator[list[TypedRecord]]:
        """The records of a range in chunks. Offsets without a record (compacted, control batches) are passed over.

        Raises DataLossError if records of it were deleted meanwhile, unless loss is accepted.
        """
        fetcher = Fetcher(self._client, **self._options.fetcher)
        fetcher.assign({wanted.where: wanted.start})
        chunk: list[TypedRecord] = []
        stalled = checks = 0
        while (position := fetcher.positions()[wanted.where]) < wanted.end:
            fetched = self._poll(fetcher)
            if fetched is None or (not fetched and stalled >= STALLED_POLLS_MAX):
                left = self._left(position, wanted, fail_on_data_loss=fail_on_data_loss)
                fetcher.assign({wanted.where: left})
                stalled, checks = 0, checks + 1
                if checks > CHECKS_MAX:
                    raise StalledError(f"{wanted.where}: offset {position} is there but never came")
                continue
            stalled = 0 if fetched else stalled + 1
            checks = 0 if fetched else checks
            for part in fetched:
                for record in typed_records(part):
                    if record[0].offset >= wanted.end:
                        break
                    chunk.append(record)
                    if len(chunk) >= ROWS_PER_CHUNK:
                        yield chunk
                        chunk = []
        if chunk:
            yield chunk

    def write(self, rows: Iterable[Row]) -> int:
        """Write all rows; returns how many once every one is acknowledged. Raises the first failure, and takes no more rows then."""
        return self._run(self._write(rows))

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit the offsets to a group, which nobody else may be a member of, so that its lag can be watched.

        Partitions that are gone are left out, with a warning.
        """
        there = self._there(offsets)
        if gone := sorted(offsets.keys() - there.keys()):
            log.warning("group %s: partitions are gone: %s", group, ", ".join(map(str, gone)))
        if there:
            self._run(Groups(self._client).commit(group, there))

    async def _write(self, rows: Iterable[Row]) -> int:
        """Rows are waited for in a thread: a query may take minutes over them, and the loop must keep connections and time limits.

        Kafka's producer sends from a thread of its own for the same reason. Source: org.apache.kafka.clients.producer.internals.Sender.
        """
        count = 0
        left = iter(rows)
        async with Producer(self._client, **self._options.producer) as producer:
            while pulled := await asyncio.to_thread(_pull, left):
                for topic, partition, key, value, headers in pulled:
                    await producer.send(topic, value, key=key, partition=partition, headers=headers)
                count += len(pulled)
                producer.raise_failure()  # Spark repeats the whole task: what this one still wrote would be doubled
        return count

    def _poll(self, fetcher: Fetcher) -> list[Fetched] | None:
        """What has arrived; None if the offset to read is not there."""
        try:
            return self._run(fetcher.poll(POLL_MS))
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None

    def _left(self, position: int, wanted: OffsetRange, *, fail_on_data_loss: bool) -> int:
        """Where a range goes on whose next offset did not come: at `position` if that is there, else at the first that is.

        That is the range's end if nothing of it is left. Raises DataLossError if loss is not accepted.
        Source: KafkaDataConsumer.getEarliestAvailableOffsetBetween of Spark's Kafka source.
        """
        where = wanted.where
        first = self.offsets({where: OffsetSpec.EARLIEST}).get(where)
        end = self.offsets({where: OffsetSpec.LATEST}).get(where)
        if first is not None and end is not None and first <= position < end:
            return position
        if fail_on_data_loss:
            kept = "partition gone" if first is None else f"there: {first} to {end}"
            raise data_loss([f"{where} from {position} to {wanted.end} ({kept})"])
        if first is None or end is None or position >= end:
            return wanted.end
        return min(first, wanted.end)

    def _there(self, by_partition: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """What of it is of partitions that are there now."""
        there = set(partitions_of(self.find(tp.topic for tp in by_partition)))
        return {tp: value for tp, value in by_partition.items() if tp in there}

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)


def partitions_of(topics: Iterable[Topic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, row.index) for topic in topics for row in topic.partitions]


def _pull(rows: Iterator[Row]) -> list[Row]:
    """The next rows, at most ROWS_PER_PULL; none at the end."""
    return list(islice(rows, ROWS_PER_PULL))


def typed_records(fetched: Fetched) -> Iterator[TypedRecord]:
    """Records with the meaning of their timestamp, which stands once per batch."""
    batches = iterate_headers(fetched.batches)
    _, header = next(batches)
    for record in fetched.records():
        while record.offset > header.last_offset:
            _, header = next(batches)
        yield record, header.timestamp_type
