"""The `kafka.` options: the settings of Kafka's clients that our client has too, and their values.

Kafka's clients log a warning about keys that they do not know and go on. Here every key takes
effect, or a warning gives the reason why it does not, or an error names it. Source of names,
defaults and meanings: Apache Kafka, ConsumerConfig and ProducerConfig.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from logfleet.client.offsets import IsolationLevel

if TYPE_CHECKING:
    from logfleet.records.compression import Codec

PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"

Use = Literal["batch read", "stream read", "write"]
READS: tuple[Use, ...] = ("batch read", "stream read")
ALL: tuple[Use, ...] = (*READS, "write")


class OptionError(ValueError):
    """An option that cannot be used; the text names it and what to do."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Parsed `kafka.` options; an option that is not given keeps our client's default.

    client, fetcher, producer: keyword arguments of the classes in logfleet.client. transaction: of
    TransactionalProducer, beside those of the producer. group: the
    consumer group to which a stream commits its offsets. unused: one sentence for each option that
    is harmless and has no effect.
    """

    client: Mapping[str, Any] = field(default_factory=dict)
    fetcher: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)
    transaction: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Option:
    """A supported key: which class takes it, in which uses it has a meaning, and how it is parsed.

    part: the class in logfleet.client that takes it; `fixed`: only one value is possible, and no
    class takes it. argument: the keyword argument of that class. parse: raises ValueError, whose
    text says what to write instead.
    """

    part: Literal["client", "fetcher", "producer", "transaction", "group", "fixed"]
    argument: str
    uses: tuple[Use, ...]
    parse: "Callable[[str], str | int | Codec | IsolationLevel]"


@dataclass(frozen=True, slots=True)
class _Harmless:
    """A key that has no effect here. why: the reason.

    already_met: values that ask for the behaviour of our client, so they get no warning.
    """

    uses: tuple[Use, ...]
    why: str
    already_met: tuple[str, ...] = ()


def _text(value: str) -> str:
    if not value:
        raise ValueError("write a name")
    return value


def _number(least: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not value.isdecimal() or not least <= int(value) < 2**31:
            raise ValueError(f"write a number from {least} to {2**31 - 1}")
        return int(value)

    return parse


def _codec(value: str) -> "Codec":
    from logfleet.records.compression import Codec  # not needed by reads

    names = {codec.name.lower(): codec for codec in Codec}
    if value not in names:
        raise ValueError(f"write one of {', '.join(names)}")
    return names[value]


def _isolation(value: str) -> IsolationLevel:
    names = {level.name.lower(): level for level in IsolationLevel}
    if value not in names:
        raise ValueError(f"write one of {', '.join(names)}")
    return names[value]


def _only(*values: str, because: str) -> Callable[[str], str]:
    """Make a parser for a key of which only these values are possible; it refuses all others."""

    def parse(value: str) -> str:
        if value.lower() not in values:
            raise ValueError(f"only {' or '.join(values)}: {because}")
        return value

    return parse


OPTIONS = {
    "client.id": _Option("client", "client_id", ALL, _text),
    "request.timeout.ms": _Option("client", "request_timeout_ms", ALL, _number(1)),
    "default.api.timeout.ms": _Option("client", "timeout_ms", ALL, _number(1)),
    "security.protocol": _Option(
        "fixed", "", ALL, _only("plaintext", because="encryption and passwords are not built yet")
    ),
    "group.id": _Option("group", "", ("stream read",), _text),
    "fetch.min.bytes": _Option("fetcher", "min_bytes", READS, _number(1)),
    "fetch.max.wait.ms": _Option("fetcher", "max_wait_ms", READS, _number(0)),
    "fetch.max.bytes": _Option("fetcher", "max_bytes", READS, _number(1)),
    "max.partition.fetch.bytes": _Option("fetcher", "partition_bytes", READS, _number(1)),
    "client.rack": _Option("fetcher", "rack", READS, _text),
    "isolation.level": _Option("fetcher", "isolation", READS, _isolation),
    "compression.type": _Option("producer", "codec", ("write",), _codec),
    "linger.ms": _Option("producer", "linger_ms", ("write",), _number(0)),
    "batch.size": _Option("producer", "batch_bytes", ("write",), _number(1)),
    "buffer.memory": _Option("producer", "buffer_bytes", ("write",), _number(1)),
    "delivery.timeout.ms": _Option("producer", "delivery_timeout_ms", ("write",), _number(1)),
    "transaction.timeout.ms": _Option("transaction", "timeout_ms", ("write",), _number(1)),
}

_NO_GROUP = "reads join no group"
_OWN_PACE = "our client has its own fixed timing for connections and retries"
_NO_JMX = "our client has no metrics of its own"
_HARMLESS_BY_WHY: tuple[tuple[str, tuple[Use, ...], tuple[str, ...]], ...] = (
    ("a batch read joins no group", ("batch read",), ("group.id",)),
    (
        _NO_GROUP,
        READS,
        (
            *("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"),
            *("partition.assignment.strategy", "group.instance.id", "group.protocol"),
            "group.remote.assignor",
        ),
    ),
    ("a task takes all records of a fetch response", READS, ("max.poll.records",)),
    ("checksums are checked", READS, ("check.crcs",)),
    (
        "reads create no topic, and internal ones are found by their names only",
        READS,
        ("allow.auto.create.topics", "exclude.internal.topics"),
    ),
    (
        _OWN_PACE,
        ALL,
        (
            *("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
            *("retry.backoff.ms", "retry.backoff.max.ms", "connections.max.idle.ms"),
            *("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
            *("receive.buffer.bytes", "send.buffer.bytes", "client.dns.lookup"),
            *("metadata.max.age.ms", "metadata.max.idle.ms", "metadata.recovery.strategy"),
            "metadata.recovery.rebootstrap.trigger.ms",
        ),
    ),
    (
        _NO_JMX,
        ALL,
        (
            *("metric.reporters", "metrics.num.samples", "metrics.recording.level"),
            *("metrics.sample.window.ms", "enable.metrics.push", "auto.include.jmx.reporter"),
        ),
    ),
    ("a write is retried until kafka.delivery.timeout.ms is over", ("write",), ("retries",)),
    (
        "a write waits for topics until kafka.delivery.timeout.ms is over",
        ("write",),
        ("max.block.ms",),
    ),
    ("the topic's max.message.bytes decides", ("write",), ("max.request.size",)),
    (
        "the order of records is kept",
        ("write",),
        ("max.in.flight.requests.per.connection",),
    ),
    (
        "records without a key avoid brokers that do not answer",
        ("write",),
        (
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
        ),
    ),
    (
        "the codec's own level is used",
        ("write",),
        ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
    ),
)
HARMLESS = {
    **{key: _Harmless(uses, why) for why, uses, keys in _HARMLESS_BY_WHY for key in keys},
    "acks": _Harmless(
        ("write",), "all in-sync replicas acknowledge each record", already_met=("all", "-1")
    ),
    "enable.idempotence": _Harmless(
        ("write",), "a retried request never writes twice", already_met=("true",)
    ),
}
"""Keys of Kafka's clients that our client does not need. None of them affects which records are
read or written.
"""


def unused_sentence(name: str, why: str) -> str:
    return f"{name} has no effect: {why}"


def client_options(options: Mapping[str, str], use: Use) -> ClientOptions:
    """The `kafka.` options among `options` (keys in lower case); raises OptionError."""
    parts: dict[str, dict[str, Any]] = {
        "client": {},
        "fetcher": {},
        "producer": {},
        "transaction": {},
    }
    group: str | None = None
    unused: list[str] = []
    for key in sorted(options):
        if not key.startswith(PREFIX) or key == BOOTSTRAP:
            continue
        name = key.removeprefix(PREFIX)
        harmless = HARMLESS.get(name)
        if harmless is not None and use in harmless.uses:
            if options[key].strip().lower() not in harmless.already_met:
                unused.append(unused_sentence(key, harmless.why))
            continue
        option = OPTIONS.get(name)
        if option is None and harmless is None:
            raise OptionError(f"{key}: not supported; {_listed(use)}")
        if option is None or use not in option.uses:
            raise OptionError(f"{key}: has no meaning for a {use}; leave it out")
        try:
            value = option.parse(options[key].strip())
        except ValueError as problem:
            raise OptionError(f"{key}: {options[key]!r} cannot be used; {problem}") from None
        if option.part == "group":
            group = str(value)
        elif option.part != "fixed":
            parts[option.part][option.argument] = value
    return ClientOptions(**parts, group=group, unused=tuple(unused))


def _listed(use: Use) -> str:
    known = sorted(key for key, option in OPTIONS.items() if use in option.uses)
    return f"a {use} takes " + ", ".join(PREFIX + key for key in [*known, "bootstrap.servers"])
