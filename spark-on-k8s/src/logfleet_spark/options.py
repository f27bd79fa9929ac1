"""Options of the `logfleet` source and sink, with the names and meanings of Spark's Kafka source.

Source: Spark's Structured Streaming + Kafka Integration Guide. Spark silently ignores unknown
options, and some that it documents. Here every option takes effect, or a warning gives the reason
why it does not, or an error says what to write instead.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from logfleet.client.bootstrap import parse_bootstrap
from logfleet.client.offsets import OffsetSpec, TopicPartition

from logfleet_spark.client_options import (
    BOOTSTRAP,
    PREFIX,
    ClientOptions,
    OptionError,
    client_options,
    unused_sentence,
)
from logfleet_spark.patterns import PatternError, java_pattern

# ListOffsets' special timestamps, which Spark's JSON offsets use too
EARLIEST, LATEST = int(OffsetSpec.EARLIEST), int(OffsetSpec.LATEST)

Unmatched = Literal["error", "latest"]

COLUMNS = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""Columns that a read offers and their types, in the order of Spark's Kafka source."""
HEADERS = "headers"
DEFAULT_COLUMNS = tuple(name for name in COLUMNS if name != HEADERS)


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics that a read names: exactly one of the three fields is set.

    pattern: may match anywhere in a topic's name, as in Spark's source (SubscribePatternStrategy).
    """

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a read starts or ends: one offset for all partitions, one for each, or times.

    special: EARLIEST or LATEST for all partitions. offsets: of each partition, may hold EARLIEST
    and LATEST. timestamp_ms: for all partitions. timestamps_ms: of each partition. unmatched: what
    to do where no record is that new.
    """

    special: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    unmatched: Unmatched = "error"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Parsed options of a read. Limits count offsets, and None means no limit.

    max_offsets_per_trigger, min_offsets_per_trigger: of a micro-batch; a stream waits at most
    `max_trigger_delay_ms` for the minimum. min_partitions, max_records_per_partition: of Spark's
    tasks. columns: of a row, in Spark's order. filter_pushdown: for batch reads only. unused: one
    sentence for each option that has no effect.
    """

    bootstrap: str
    topics: Topics
    starting: Bound
    ending: Bound
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    filter_pushdown: bool = False
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    client: ClientOptions = field(default_factory=ClientOptions)
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Parsed options of a write. topic: None means that each row names its topic.

    exactly_once: each batch is one transaction of `app_id`, unless its `version` is written.
    unused: one sentence for each option that has no effect.
    """

    bootstrap: str
    topic: str | None
    exactly_once: bool = False
    app_id: str | None = None
    version: int | None = None
    client: ClientOptions = field(default_factory=ClientOptions)
    unused: tuple[str, ...] = ()


READ = {
    name.lower(): name
    for name in (
        *("subscribe", "subscribePattern", "assign"),
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
        *(
            "startingOffsetsByTimestampStrategy",
            "failOnDataLoss",
            "includeHeaders",
            "includeColumns",
            "minPartitions",
            "maxRecordsPerPartition",
        ),
    )
}
UNUSED = {
    "groupidprefix": ("groupIdPrefix", "reads join no group"),
    "fetchoffset.numretries": (
        "fetchOffset.numRetries",
        "offsets are asked for until kafka.default.api.timeout.ms is over",
    ),
    "fetchoffset.retryintervalms": (
        "fetchOffset.retryIntervalMs",
        "our client has its own fixed timing for retries",
    ),
    "kafkaconsumer.polltimeoutms": (
        "kafkaConsumer.pollTimeoutMs",
        "a task waits for records until kafka.default.api.timeout.ms is over",
    ),
}
"""Options of a read that Spark's connector uses and this source does not: key -> (name, reason)."""
BATCH_ONLY = {
    name.lower(): name
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "filterPushdown")
}
STREAM_ONLY = {
    name.lower(): name
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
}
# JavaUtils.timeStringAs of Spark; without a unit it means milliseconds
UNITS_MS = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
# Spark hands a stream's sink its own options too
EXACTLY_ONCE = "exactlyOnce"
APP_ID = "logfleet.txn.app.id"
VERSION = "logfleet.txn.version"
TRANSACTION_TIMEOUT = "kafka.transaction.timeout.ms"
WRITE = {name.lower(): name for name in ("topic", "includeHeaders", EXACTLY_ONCE, APP_ID, VERSION)}
CHECKPOINT = "checkpointLocation"
SPARKS_OWN = {CHECKPOINT.lower(), "queryname"}
# Options that people try, with a hint beyond "not supported"
INSTEAD = {
    "kafka.auto.offset.reset": "use startingOffsets instead",
    "kafka.enable.auto.commit": "offsets are kept in the checkpoint",
    "kafka.key.deserializer": "keys are always binary",
    "kafka.value.deserializer": "values are always binary",
    "kafka.key.serializer": "keys are always binary or text",
    "kafka.value.serializer": "values are always binary or text",
    "kafka.transactional.id": "set exactlyOnce=true, and logfleet.txn.app.id to the id",
}


def source_options(raw: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse the options of a read; raises OptionError."""
    options = {key.lower(): value for key, value in raw.items()}
    if streaming and (given := BATCH_ONLY.keys() & options.keys()):
        raise OptionError(
            f"{BATCH_ONLY[min(given)]}: only for batch reads; leave it out of a stream"
        )
    if not streaming and (given := STREAM_ONLY.keys() & options.keys()):
        raise OptionError(f"{STREAM_ONLY[min(given)]}: only for streams; leave it out of a batch")
    unused = [UNUSED[key] for key in sorted(UNUSED.keys() & options.keys())]
    options = {key: value for key, value in options.items() if key not in UNUSED}
    _refuse_unknown(options, READ | (STREAM_ONLY if streaming else BATCH_ONLY))
    starting = _bound(options, "starting", default=LATEST if streaming else EARLIEST)
    if not streaming and LATEST in {starting.special, *starting.offsets.values()}:
        raise OptionError("startingOffsets: latest is for streams; a batch would read nothing")
    at_least, at_most = (_positive(options, f"{m}OffsetsPerTrigger") for m in ("min", "max"))
    if at_least and at_most and at_least > at_most:
        raise OptionError(
            f"minOffsetsPerTrigger: {at_least} is more than maxOffsetsPerTrigger, {at_most}; lower it"
        )
    client = client_options(options, "stream read" if streaming else "batch read")
    return SourceOptions(
        bootstrap=_bootstrap(options),
        topics=_topics(options),
        starting=starting,
        ending=_bound(options, "ending", default=LATEST),
        fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
        columns=read_columns(options),
        filter_pushdown=_boolean(options, "filterPushdown", default=False),
        max_offsets_per_trigger=at_most,
        min_offsets_per_trigger=at_least,
        max_trigger_delay_ms=_milliseconds(options, "maxTriggerDelay", default="15m"),
        min_partitions=_positive(options, "minPartitions"),
        max_records_per_partition=_positive(options, "maxRecordsPerPartition"),
        client=client,
        unused=(*(unused_sentence(*each) for each in unused), *client.unused),
    )


def check_read(raw: Mapping[str, str]) -> None:
    """Raise OptionError if the options suit neither a batch read nor a stream."""
    try:
        source_options(raw, streaming=True)
    except OptionError as of_stream:
        try:
            source_options(raw, streaming=False)
        except OptionError as of_batch:
            streams = STREAM_ONLY.keys() & {key.lower() for key in raw}
            raise (of_stream if streams else of_batch) from None


def sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a write; raises OptionError."""
    options = {key.lower(): value for key, value in raw.items() if key.lower() not in SPARKS_OWN}
    _refuse_unknown(options, WRITE)
    if not _boolean(options, "includeHeaders", default=True):
        raise OptionError(
            "includeHeaders: false is not supported; headers are written if there is a column of that name: drop it"
        )
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError(
            "topic: empty; write a topic's name, or leave it out and add a column topic"
        )
    client = client_options(options, "write")
    exactly_once = _boolean(options, EXACTLY_ONCE, default=False)
    for name in (APP_ID, VERSION, TRANSACTION_TIMEOUT):
        if name in options and not exactly_once:
            raise OptionError(f"{name}: only with {EXACTLY_ONCE}=true; add that or leave it out")
    return SinkOptions(
        bootstrap=_bootstrap(options),
        topic=topic.strip() if topic else None,
        exactly_once=exactly_once,
        app_id=options.get(APP_ID, "").strip() or None,
        version=_version(options.get(VERSION)),
        client=client,
        unused=client.unused,
    )


def app_id_of_query(query_id: str) -> str:
    """Return the id under which a query writes, unless its options have another."""
    return f"logfleet-spark-{query_id}"


def stream_sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a stream's sink; raises OptionError."""
    options = sink_options(raw)
    if options.version is not None:
        raise OptionError(f"{VERSION}: a stream has its batches' numbers; leave it out")
    return options


def batch_sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Parse the options of the write of a batch; raises OptionError."""
    options = sink_options(raw)
    if options.exactly_once and (options.app_id is None or options.version is None):
        raise OptionError(
            f"{EXACTLY_ONCE}: a batch needs {APP_ID}, a name of its own for what writes, and "
            f"{VERSION}, the batch_id of foreachBatch"
        )
    return options


def read_columns(raw: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a read, in Spark's order. Raises OptionError.

    The other options need not be valid yet.
    """
    options = {key.lower(): value for key, value in raw.items()}
    headers = _boolean(options, "includeHeaders", default=False)
    named = [name.strip() for name in options.get("includecolumns", "").split(",") if name.strip()]
    if not named:
        if "includecolumns" in options:
            raise OptionError("includeColumns: no column named; write value[,timestamp]")
        return tuple(COLUMNS) if headers else DEFAULT_COLUMNS
    known = {name.lower(): name for name in COLUMNS}
    for name in named:
        if name.lower() not in known:
            raise OptionError(
                f"includeColumns: there is no column {name}; name some of {', '.join(COLUMNS)}"
            )
    wanted = {known[name.lower()] for name in named}
    if headers and HEADERS not in wanted:
        raise OptionError(
            "includeHeaders: includeColumns does not name headers; name it there, or leave includeHeaders out"
        )
    return tuple(name for name in COLUMNS if name in wanted)


def _refuse_unknown(options: Mapping[str, str], known: Mapping[str, str]) -> None:
    for key in options:
        if key in INSTEAD:
            raise OptionError(f"{key}: not supported, {INSTEAD[key]}")
        if key not in known and not key.startswith(PREFIX):
            listed = ", ".join(sorted(known.values()))
            raise OptionError(
                f"{key}: no such option; choose from: {listed}, or an option that begins with `kafka.`"
            )


def _bootstrap(options: Mapping[str, str]) -> str:
    servers = options.get(BOOTSTRAP, "").strip()
    if not servers:
        raise OptionError("kafka.bootstrap.servers: missing; set it to host:port[,host:port]")
    try:
        parse_bootstrap(servers)
    except ValueError as problem:
        raise OptionError(f"kafka.bootstrap.servers: {problem}") from None
    return servers


def _topics(options: Mapping[str, str]) -> Topics:
    given = [key for key in ("subscribe", "subscribepattern", "assign") if options.get(key)]
    if len(given) != 1:
        raise OptionError("set exactly one of subscribe, subscribePattern, assign")
    text = options[given[0]]
    match given[0]:
        case "subscribe":
            names = tuple(name.strip() for name in text.split(",") if name.strip())
            if not names:
                raise OptionError("subscribe: no topic named; write topic[,topic]")
            return Topics(names=names)
        case "subscribepattern":
            try:
                return Topics(pattern=java_pattern(text.strip()))
            except PatternError as problem:
                raise OptionError(f"subscribePattern: {problem}") from None
        case _:
            return Topics(assigned=_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    shape = 'assign: write {"topic": [0, 1]}'
    listed = _json_object("assign", text, shape)
    pairs: list[TopicPartition] = []
    for topic, partitions in listed.items():
        if not isinstance(partitions, list) or not all(type(p) is int for p in partitions):
            raise OptionError(shape)
        pairs += [TopicPartition(topic, partition) for partition in partitions]
    if not pairs:
        raise OptionError(shape)
    return tuple(pairs)


def _bound(options: Mapping[str, str], side: str, default: int) -> Bound:
    """Parse where a read starts or ends.

    One timestamp for all partitions comes first, then timestamps per partition, then offsets, as in
    Spark.
    """
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in {"error", "latest"}:
        raise OptionError("startingOffsetsByTimestampStrategy: write error or latest")
    # Spark reads an ending timestamp beyond the last record as "up to the end"
    unmatched: Unmatched = "latest" if side == "ending" or strategy == "latest" else "error"
    if (text := options.get(f"{side}timestamp")) is not None:
        if not text.strip().isdigit():
            raise OptionError(f"{side}Timestamp: write milliseconds since 1970")
        return Bound(timestamp_ms=int(text), unmatched=unmatched)
    if (text := options.get(f"{side}offsetsbytimestamp")) is not None:
        times = _per_partition(f"{side}OffsetsByTimestamp", text, least=0)
        return Bound(timestamps_ms=times, unmatched=unmatched)
    text = options.get(f"{side}offsets", "").strip()
    match text.lower():
        case "":
            return Bound(special=default)
        case "latest":
            return Bound(special=LATEST)
        case "earliest" if side == "starting":
            return Bound(special=EARLIEST)
        case _ if text.startswith("{"):
            least = EARLIEST if side == "starting" else LATEST
            return Bound(offsets=_per_partition(f"{side}Offsets", text, least=least))
        case _:
            allowed = "earliest, latest" if side == "starting" else "latest"
            raise OptionError(f'{side}Offsets: write {allowed} or {{"topic": {{"0": 23}}}}')


def _per_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    shape = f'{name}: write {{"topic": {{"0": 23, "1": 42}}}}'
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, text, shape).items():
        if not isinstance(partitions, dict):
            raise OptionError(shape)
        for partition, value in partitions.items():
            if not partition.isdigit() or type(value) is not int or value < least:
                raise OptionError(f"{shape}; no value below {least}")
            found[TopicPartition(topic, int(partition))] = value
    return found


def _json_object(name: str, text: str, shape: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        raise OptionError(f"{name}: not JSON; {shape}") from None
    if not isinstance(value, dict):
        raise OptionError(shape)
    return value


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    match options.get(name.lower(), "").strip().lower():
        case "":
            return default
        case "true":
            return True
        case "false":
            return False
        case other:
            raise OptionError(f"{name}: {other!r} is neither true nor false")


def _version(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) >= 2**63 - 1:
        raise OptionError(f"{VERSION}: {text!r} is not a batch's number; write 0 or more")
    return int(text)


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower(), "").strip()
    if not text:
        return None
    if not text.isdigit() or int(text) < 1:
        raise OptionError(f"{name}: {text!r} is not a positive number")
    return int(text)


def _milliseconds(options: Mapping[str, str], name: str, *, default: str) -> int:
    """Parse a duration as Spark's options have it: `15m`, `500ms`, or a number of milliseconds."""
    text = options.get(name.lower(), "").strip().lower() or default
    found = re.fullmatch(r"(\d+)([a-z]*)", text)
    if not found or (found[2] or "ms") not in UNITS_MS:
        raise OptionError(
            f"{name}: {text!r} is not a duration; write a number and {', '.join(UNITS_MS)}"
        )
    return int(int(found[1]) * UNITS_MS[found[2] or "ms"])
