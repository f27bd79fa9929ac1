"""Blocking calls for Spark's callbacks, on the asyncio client.

Each instance has an event loop of its own that runs only while a call lasts: Spark's Python workers have one thread, and every
task runs in a worker of its own.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.fetcher import Fetched, Fetcher
from logfleet.client.groups import Groups
from logfleet.client.offsets import OffsetSpec, TopicPartition, list_offsets
from logfleet.client.producer import Producer
from logfleet.records.batch import iterate_headers
from logfleet.wire.errors import ErrorCode

from logfleet_spark.offsets import DataLossError, OffsetRange, Offsets
from logfleet_spark.options import OptionError
from logfleet_spark.rows import Row, TypedRecord

T = TypeVar("T")

ROWS_PER_CHUNK = 10_000
"""Records handed on at once: large enough that Arrow's cost per batch vanishes, small enough for any worker's memory."""
POLL_MS = 1_000
STALLED_POLLS_MAX = 120
"""Polls without a record before a read of offsets that should be there is given up."""
ROWS_BETWEEN_SENDS = 1_000
"""Rows after which the producer gets to write: reading rows from Spark blocks the loop."""

SUPPORTED_CLIENT_OPTIONS = {"group.id", "client.id", "request.timeout.ms", "default.api.timeout.ms"}


class Cluster:
    """A connection to a cluster. client: options without their `kafka.` prefix; use as a context manager or call close."""

    def __init__(self, bootstrap: str, client: Mapping[str, str]) -> None:
        unknown = sorted(set(client) - SUPPORTED_CLIENT_OPTIONS)
        if unknown:
            raise OptionError(
                f"kafka.{unknown[0]}: not supported by this source; it takes "
                + ", ".join(f"kafka.{name}" for name in sorted(SUPPORTED_CLIENT_OPTIONS))
            )
        self._runner = asyncio.Runner()
        self._client = Client(
            bootstrap,
            client_id=client.get("client.id", "logfleet-spark"),
            request_timeout_ms=_milliseconds(client, "request.timeout.ms", 30_000),
            timeout_ms=_milliseconds(client, "default.api.timeout.ms", 60_000),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()
        self._runner.close()

    def topics(self) -> list[str]:
        """Names of all topics that are not Kafka's own."""
        found = self._run(Admin(self._client).list_topics())
        return [topic.name for topic in found if not topic.internal]

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Every partition of the topics as they are now; raises OptionError for a topic that is not there."""
        found: list[TopicPartition] = []
        for name in topics:
            topic = self._run(Admin(self._client).find_topic(name))
            if topic is None:
                raise OptionError(f"topic {name} does not exist; create it or correct the name")
            found += [TopicPartition(name, partition.index) for partition in topic.partitions]
        return found

    def offsets(self, at: Mapping[TopicPartition, int]) -> Offsets:
        """Offset by partition for EARLIEST or LATEST; partitions that are gone are left out."""
        try:
            found = self._run(list_offsets(self._client, at)) if at else {}
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            there = set(self._existing({tp.topic for tp in at}))
            if there.issuperset(at):
                raise
            return self.offsets({tp: time for tp, time in at.items() if tp in there})
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
        reset = None if fail_on_data_loss else OffsetSpec.EARLIEST
        fetcher = Fetcher(self._client, reset=reset)
        fetcher.assign({wanted.where: wanted.start})
        chunk: list[TypedRecord] = []
        stalled = 0
        while fetcher.positions()[wanted.where] < wanted.end:
            for fetched in self._poll(fetcher, wanted):
                stalled = -1
                for record in typed_records(fetched):
                    if record[0].offset >= wanted.end:
                        break
                    chunk.append(record)
                    if len(chunk) >= ROWS_PER_CHUNK:
                        yield chunk
                        chunk = []
            stalled += 1
            if stalled >= STALLED_POLLS_MAX:
                at = fetcher.positions()[wanted.where]
                raise DataLossError(f"{wanted.where}: nothing to read at {at}, before {wanted.end}")
        if chunk:
            yield chunk

    def write(self, rows: Iterable[Row]) -> int:
        """Write all rows; returns how many once every one is acknowledged. Raises the first failure."""
        return self._run(self._write(rows))

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit the offsets to a group, which nobody else may be a member of, so that its lag can be watched."""
        self._run(Groups(self._client).commit(group, offsets))

    async def _write(self, rows: Iterable[Row]) -> int:
        count = 0
        async with Producer(self._client) as producer:
            for count, (topic, partition, key, value, headers) in enumerate(rows, 1):
                await producer.send(topic, value, key=key, partition=partition, headers=headers)
                if count % ROWS_BETWEEN_SENDS == 0:
                    await asyncio.sleep(0)
        return count

    def _poll(self, fetcher: Fetcher, wanted: OffsetRange) -> list[Fetched]:
        try:
            return self._run(fetcher.poll(POLL_MS))
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise DataLossError(
                f"{wanted.where}: offsets {wanted.start} to {wanted.end} are no longer all there; "
                "set failOnDataLoss=false to go on without them"
            ) from error

    def _existing(self, topics: Iterable[str]) -> Iterator[TopicPartition]:
        for name in topics:
            topic = self._run(Admin(self._client).find_topic(name))
            for partition in topic.partitions if topic else ():
                yield TopicPartition(name, partition.index)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)


def typed_records(fetched: Fetched) -> Iterator[TypedRecord]:
    """Records with the meaning of their timestamp, which stands once per batch."""
    batches = iterate_headers(fetched.batches)
    _, header = next(batches)
    for record in fetched.records():
        while record.offset > header.last_offset:
            _, header = next(batches)
        yield record, header.timestamp_type


def _milliseconds(client: Mapping[str, str], name: str, default: int) -> int:
    text = client.get(name, str(default)).strip()
    if not text.isdigit():
        raise OptionError(f"kafka.{name}: {text!r} is not a number of milliseconds")
    return int(text)
