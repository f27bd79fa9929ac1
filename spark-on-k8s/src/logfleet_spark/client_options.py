"""The `kafka.` options: those of Kafka's own clients that ours has too, each with the range it takes.

Kafka's clients warn of keys that they do not know and go on; here every key is carried out or refused by name. Source of
names, defaults and meanings: Apache Kafka, ConsumerConfig and ProducerConfig.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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
    """Parsed `kafka.` options; what is not given keeps our client's default.

    client, fetcher, producer: keyword arguments of logfleet.client's classes. group: where a stream commits its offsets.
    """

    client: Mapping[str, Any] = field(default_factory=dict)
    fetcher: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None


@dataclass(frozen=True, slots=True)
class _Option:
    """Where a key goes, in which uses it means something, and how its text is read (ValueError: what it should be)."""

    part: Literal["client", "fetcher", "producer", "group", "fixed"]
    argument: str
    uses: tuple[Use, ...]
    parse: Callable[[str], str | int | Codec]


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


def _codec(value: str) -> Codec:
    names = {codec.name.lower(): codec for codec in Codec}
    if value not in names:
        raise ValueError(f"write one of {', '.join(names)}")
    return names[value]


def _only(*values: str, because: str) -> Callable[[str], str]:
    """A key of which we carry out some values only: what always holds here may be written down, the rest is refused."""

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
    "isolation.level": _Option(
        "fixed", "", READS, _only("read_uncommitted", because="transactions are not built yet")
    ),
    "compression.type": _Option("producer", "codec", ("write",), _codec),
    "linger.ms": _Option("producer", "linger_ms", ("write",), _number(0)),
    "batch.size": _Option("producer", "batch_bytes", ("write",), _number(1)),
    "buffer.memory": _Option("producer", "buffer_bytes", ("write",), _number(1)),
    "delivery.timeout.ms": _Option("producer", "delivery_timeout_ms", ("write",), _number(1)),
    "acks": _Option(
        "fixed", "", ("write",), _only("all", "-1", because="a written batch must outlive a broker")
    ),
    "enable.idempotence": _Option(
        "fixed", "", ("write",), _only("true", because="a retried request must not write twice")
    ),
}


def client_options(options: Mapping[str, str], use: Use) -> ClientOptions:
    """The `kafka.` options among `options` (keys in lower case); raises OptionError."""
    parts: dict[str, dict[str, Any]] = {"client": {}, "fetcher": {}, "producer": {}}
    group: str | None = None
    for key in sorted(options):
        if not key.startswith(PREFIX) or key == BOOTSTRAP:
            continue
        option = OPTIONS.get(key.removeprefix(PREFIX))
        if option is None:
            raise OptionError(f"{key}: not supported; {_listed(use)}")
        if use not in option.uses:
            raise OptionError(f"{key}: has no meaning for a {use}; leave it out")
        try:
            value = option.parse(options[key].strip())
        except ValueError as problem:
            raise OptionError(f"{key}: {options[key]!r} cannot be used; {problem}") from None
        if option.part == "group":
            group = str(value)
        elif option.part != "fixed":
            parts[option.part][option.argument] = value
    return ClientOptions(**parts, group=group)


def _listed(use: Use) -> str:
    known = sorted(key for key, option in OPTIONS.items() if use in option.uses)
    return f"a {use} takes " + ", ".join(PREFIX + key for key in [*known, "bootstrap.servers"])
