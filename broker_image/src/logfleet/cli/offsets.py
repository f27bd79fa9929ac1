"""Positions in partitions: the values of `consume --offset` and `group reset-offsets --to`."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import click

from logfleet.cli.advice import MEANINGS, guess
from logfleet.cli.times import INT64_MAX, here_and_now, parse_time
from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.metadata import NO_LEADER
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition, list_offsets
from logfleet.wire.errors import ErrorCode

WORDS: Final = {  # names of OffsetSpec
    "beginning": "EARLIEST",
    "earliest": "EARLIEST",
    "end": "LATEST",
    "latest": "LATEST",
}

PLACES: Final = (
    "beginning, end, an offset, -N for the last N of each partition, @TIME (@10m for ten minutes "
    "ago, @14:00, @2013-01-01T00:00:00Z, or milliseconds since 1970)"
)
partition_option = click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    help="Only this one of each topic; may be given again and again.  [default: all]",
)
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
"""Names of IsolationLevel, as Kafka's clients write them."""
isolation_option = click.option(
    "--isolation",
    type=click.Choice(ISOLATIONS),
    default="read_uncommitted",
    show_default=True,
    callback=lambda _ctx, _option, name: IsolationLevel[name.upper()],
    help="read_committed leaves out transactions that are open or were aborted; then a partition "
    "ends before the first open one.",
)


class Place(NamedTuple):
    """A position in each partition; exactly one field is set.

    last: that many records before the end. time_ms: since 1970.
    """

    spec: OffsetSpec | None = None
    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None


def parse_place(text: str) -> Place:
    """Parse an option's value. Raises ValueError."""
    if text in WORDS:
        return Place(spec=OffsetSpec[WORDS[text]])
    if text.startswith("@"):
        return Place(time_ms=parse_time(text[1:], here_and_now()))
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{text!r}: write beginning, end, a number, -N for the last N, or @TIME")
    number = int(digits)
    if number > INT64_MAX:
        raise ValueError(f"{text!r}: there are none so large")
    return Place(last=number) if text.startswith("-") else Place(offset=number)


def place_of(ctx: click.Context, option: click.Parameter, value: str | None) -> Place | None:
    """The callback of an option."""
    try:
        return None if value is None else parse_place(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=ctx, param=option) from error


async def partitions_of(
    client: Client, topics: Sequence[str], partitions: Sequence[int] = ()
) -> list[TopicPartition]:
    """These partitions of each topic, or all.

    Raises KafkaError, ClickException if one does not exist.
    """
    admin = Admin(client)
    keys = []
    for name in topics:
        topic = await admin.find_topic(name)
        if topic is None:
            raise await unknown_topic(admin, name)
        wanted = partitions or [each.index for each in topic.partitions]
        for index in wanted:
            if topic.partition(index) is None:
                count = len(topic.partitions)
                raise click.ClickException(
                    f"--partition {index}: topic {name} has partitions 0 to {count - 1}"
                )
        keys += [TopicPartition(name, index) for index in dict.fromkeys(wanted)]
    return keys


async def unknown_topic(admin: Admin, name: str) -> KafkaError:
    """The error for a topic that is not there, with the nearest that is. Raises ClientError."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    near = guess(name, [each.name for each in await admin.list_topics()])
    return KafkaError(code, f"{MEANINGS[code]}{near}", subject=f"topic {name}")


async def led_partitions(client: Client, topics: Sequence[str] | None) -> set[TopicPartition]:
    """The partitions with a leader, of these topics or (None) of all. Raises ClientError."""
    return {
        TopicPartition(topic.name, partition.index)
        for topic in await client.retrying(lambda: client.fetch_topics(topics))
        for partition in topic.partitions
        if partition.leader != NO_LEADER
    }


async def find(
    client: Client,
    keys: Sequence[TopicPartition],
    place: Place,
    isolation: IsolationLevel | None = None,
) -> dict[TopicPartition, int]:
    """The offset of that position in each partition; READ_COMMITTED ends at open transactions.

    isolation: None for READ_UNCOMMITTED.
    Raises ClickException if a given offset is out of range.
    """
    if place.spec is not None:
        return await offsets_at(client, keys, place.spec, isolation)
    ends = await offsets_at(client, keys, OffsetSpec.LATEST, isolation)
    if place.time_ms is not None:
        found = await offsets_at(client, keys, place.time_ms, isolation)
        return {key: offset if offset >= 0 else ends[key] for key, offset in found.items()}
    begins = await offsets_at(client, keys, OffsetSpec.EARLIEST)
    if place.last is not None:
        return {key: max(begins[key], ends[key] - place.last) for key in keys}
    assert place.offset is not None
    if isolation is IsolationLevel.READ_COMMITTED:
        ends = await offsets_at(client, keys, OffsetSpec.LATEST)  # open transactions may be skipped
    for key in keys:
        if not begins[key] <= place.offset <= ends[key]:
            raise click.ClickException(
                f"offset {place.offset}: {key} has offsets from {begins[key]}, and {ends[key]} is "
                f"the next one"
            )
    return dict.fromkeys(keys, place.offset)


async def shifted(
    client: Client, keys: Sequence[TopicPartition], at: Mapping[TopicPartition, int], by: int
) -> dict[TopicPartition, int]:
    """The offsets `by` records after `at`, within the log.

    Raises ClickException for a partition that `at` lacks.
    """
    for key in keys:
        if key not in at:
            raise click.ClickException(f"--shift-by: nothing is committed for {key}; use --to")
    begins = await offsets_at(client, keys, OffsetSpec.EARLIEST)
    ends = await offsets_at(client, keys, OffsetSpec.LATEST)
    return {key: min(max(at[key] + by, begins[key]), ends[key]) for key in keys}


async def offsets_at(
    client: Client,
    keys: Sequence[TopicPartition],
    time: int,
    isolation: IsolationLevel | None = None,
) -> dict[TopicPartition, int]:
    """The offset at a time, or at an OffsetSpec; -1: no record is that young.

    isolation: None for READ_UNCOMMITTED.
    """
    isolation = isolation or IsolationLevel.READ_UNCOMMITTED
    found = await list_offsets(client, dict.fromkeys(keys, time), isolation=isolation)
    return {key: at.offset for key, at in found.items()}
