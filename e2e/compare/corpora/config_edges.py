"""Configuration changes at the limits of what Kafka allows, word by word.

An edge is (type of resource, its name, changes); a change is (key, operation, value). All are sent
with validate_only.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from logfleet.config.keys import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    ConfigType,
    UpdateMode,
)

from e2e.compare import requests as r
from e2e.compare.case import Script
from e2e.compare.corpus import Corpus
from e2e.compare.side import Side

CORPUS: Final = Corpus("edges", exact_texts=True)
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
KINDS: Final = {"topics": TOPIC, "brokers": BROKER, "groups": GROUP}
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Change: TypeAlias = tuple[str, int, str | None]
Edge: TypeAlias = tuple[int, str, tuple[Change, ...]]

_LISTENER: Final = "listener.name.plaintext."
_TEXTS: Final = {
    ConfigType.BOOLEAN: ("TRUE", " false ", "yes", ""),
    ConfigType.INT: (" 5000 ", "+5000", "5.0", "0x10", "", "x", "2147483648", "-2147483649"),
    ConfigType.LONG: (" 5 ", "5_0", "", "x", "9223372036854775808", "-9223372036854775809"),
    ConfigType.DOUBLE: ("1e-1", ".5", "0.5d", "NaN", "x", ""),
    ConfigType.LIST: ("a,", ",", "a, a"),
    ConfigType.STRING: ("no-such-choice",),
}


def edges(topic: str) -> Iterator[Edge]:
    """Return all edges. topic: an existing topic."""
    for key in TOPIC_KEYS.values():
        if not key.name.startswith("logfleet."):
            for text in _around(key):
                yield TOPIC, topic, ((key.name, SET, text),)
    for key in GROUP_KEYS.values():
        for text in _around(key):
            yield GROUP, "g", ((key.name, SET, text),)
    for key in BROKER_KEYS.values():
        if not key.name.startswith("logfleet.") and key.name not in JUDGED_ELSEWISE:
            texts = _around(key) if key.mode is not UpdateMode.READ_ONLY else ["5"]
            for text in texts:
                yield BROKER, "1", ((key.name, SET, text),)
                yield BROKER, "", ((key.name, SET, text),)
    for resource, *changes in _OTHERS:
        kind, name = resource
        yield kind, topic if name == "TOPIC" else name, tuple(changes)


def _around(key: ConfigKey) -> Iterator[str]:
    """Return values on both sides of each bound, every choice, and texts that resemble values."""
    valid = key.valid
    for text in _TEXTS.get(key.type, ()):
        if not (
            valid.rule == "replicas" and text == ","
        ):  # accepted by Kafka, although it names no replica
            yield text
    if key.type in {ConfigType.INT, ConfigType.SHORT, ConfigType.LONG}:
        for bound in (valid.low, valid.high):
            if bound is not None:
                yield from (str(int(bound) + step) for step in (-1, 0, 1))
        yield "-1"
    elif key.type is ConfigType.DOUBLE:
        yield from ("-0.1", "0", "1", "1.1")
    yield from valid.choices
    yield from (choice.swapcase() for choice in valid.choices)
    if valid.rule == "replicas":
        yield from ("*", "0:1,1:2", "0:1,*", "0", "0:1:2", "0:1, 0:1", "")
    if valid.rule == "offset-reset":
        yield from ("earliest", "EARLIEST", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S")


_OTHERS: Final[list[tuple[tuple[int, str], *tuple[Change, ...]]]] = [
    ((TOPIC, "TOPIC"),),
    ((TOPIC, "missing"), ("retention.ms", SET, "5")),
    ((TOPIC, ""), ("retention.ms", SET, "5")),
    ((TOPIC, "b@d"), ("retention.ms", SET, "5")),
    ((TOPIC, "TOPIC"), ("nope", SET, "5")),
    ((TOPIC, "TOPIC"), ("nope", APPEND, "5")),
    ((TOPIC, "TOPIC"), ("nope", DELETE, None)),
    ((TOPIC, "TOPIC"), ("", SET, "5")),
    ((TOPIC, "TOPIC"), ("retention.ms", SET, None)),
    ((TOPIC, "TOPIC"), ("retention.ms", APPEND, None)),
    ((TOPIC, "TOPIC"), ("retention.ms", APPEND, "5")),
    ((TOPIC, "TOPIC"), ("retention.ms", SUBTRACT, "5")),
    ((TOPIC, "TOPIC"), ("retention.ms", DELETE, "5")),
    ((TOPIC, "TOPIC"), ("cleanup.policy", APPEND, "compact")),
    ((TOPIC, "TOPIC"), ("cleanup.policy", APPEND, "")),
    ((TOPIC, "TOPIC"), ("cleanup.policy", APPEND, "x")),
    ((TOPIC, "TOPIC"), ("cleanup.policy", SUBTRACT, "delete")),
    ((TOPIC, "TOPIC"), ("cleanup.policy", SUBTRACT, "compact")),
    ((TOPIC, "TOPIC"), ("leader.replication.throttled.replicas", APPEND, "x")),
    ((TOPIC, "TOPIC"), ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    ((TOPIC, "TOPIC"), ("retention.ms", SET, None), ("segment.ms", SET, None)),
    ((TOPIC, "TOPIC"), ("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5")),
    ((TOPIC, "TOPIC"), ("min.compaction.lag.ms", SET, "5"), ("max.compaction.lag.ms", SET, "5")),
    ((GROUP, ""), ("share.isolation.level", SET, "read_committed")),
    ((GROUP, "a b/c"), ("share.isolation.level", SET, "read_committed")),
    ((GROUP, "g"), ("nope", SET, "1")),
    ((GROUP, "g"), ("nope", APPEND, "1")),
    ((GROUP, "g"), ("nope", DELETE, None)),
    ((GROUP, "g"), ("streams.rack.aware.assignment.tags", APPEND, "a")),
    ((GROUP, "g"), ("streams.rack.aware.assignment.tags", SET, "a,a")),
    ((GROUP, "g"), ("streams.rack.aware.assignment.tags", SET, "a,b")),
    ((GROUP, "g"), ("streams.assignor.name", SET, "sticky")),
    ((GROUP, "g"), ("consumer.session.timeout.ms", SET, "44999")),
    ((GROUP, "g"), ("consumer.session.timeout.ms", SET, "60001")),
    ((GROUP, "g"), ("streams.num.standby.replicas", SET, "3")),
    ((GROUP, "g"), ("errors.deadletterqueue.topic.name", SET, "__x")),
    ((BROKER, "x"), ("message.max.bytes", SET, "5")),
    ((BROKER, " 1"), ("message.max.bytes", SET, "5")),
    ((BROKER, "1"), ("message.max.bytes", APPEND, "5")),
    ((BROKER, "1"), ("message.max.bytes", SUBTRACT, "5")),
    ((BROKER, "1"), ("nope", APPEND, "5")),
    ((BROKER, "1"), ("log.cleanup.policy", APPEND, "compact")),
    ((BROKER, "1"), ("node.id", SET, "2"), ("num.partitions", SET, "x")),
    ((BROKER, "1"), ("log.retention.ms", DELETE, None)),
    ((BROKER, "1"), ("max.connections.per.ip.overrides", SET, "127.0.0.1:5,localhost:3")),
    ((BROKER, ""), (_LISTENER + "max.connections", SET, "5")),
    ((BROKER, ""), (_LISTENER + "max.connections", SET, "x")),
    ((BROKER, "1"), (_LISTENER + "max.connections", SET, "-1")),
    ((BROKER, "1"), (_LISTENER + "max.connection.creation.rate", SET, "5")),
    ((BROKER, ""), (_LISTENER + "ssl.keystore.location", SET, "/x")),
    ((BROKER, "1"), (_LISTENER + "ssl.keystore.type", SET, "PEM")),
    *(((LOGGER, name), ("root", SET, "INFO")) for name in ("", "x", "1", "2", " 1")),
    ((LOGGER, "1"), ("root", SET, "info")),
    ((LOGGER, "1"), ("root", SET, "OFF")),
    ((LOGGER, "1"), ("root", SET, None)),
    ((LOGGER, "1"), ("root", DELETE, None)),
    ((LOGGER, "1"), ("root", APPEND, "INFO")),
    ((LOGGER, "1"), ("root", 7, "INFO")),
    ((LOGGER, "1"), ("no.such", SET, "INFO")),
    ((LOGGER, "1"), ("no.such", SET, "x")),
    ((LOGGER, "1"), ("no.such", DELETE, None)),
    ((LOGGER, "1"), ("root", SET, "INFO"), ("root", SET, "WARN")),
    *(((kind, "x"), ("a", SET, "b")) for kind in (0, 1, 3, 7, 64, 99)),
]
"""Each is a resource ("TOPIC" stands for the existing topic), then its changes."""

JUDGED_ELSEWISE: Final = {
    "listeners": "Kafka opens and closes listeners while it runs",
    "listener.security.protocol.map": "as listeners",
    "principal.builder.class": "Kafka loads the class",
    "super.users": "Kafka's brokers do not know it, its authorizer does",
    "allow.everyone.if.no.acl.found": "as super.users",
    "ssl.client.auth": "what asks for protection that is not there is refused",
    "metric.reporters": "Kafka loads the classes",
    "config.providers": "Kafka loads the classes",
    "sasl.enabled.mechanisms": "checked against Kafka's own mechanisms",
    "cordoned.log.dirs": "must name Kafka's directories",
    "background.threads": "at most twice, at least half as many threads as before",
    "num.io.threads": "as background.threads",
    "num.network.threads": "as background.threads",
    "num.recovery.threads.per.data.dir": "as background.threads",
    "num.replica.fetchers": "as background.threads",
    "remote.log.manager.copier.thread.pool.size": "as background.threads",
    "remote.log.manager.expiration.thread.pool.size": "as background.threads",
    "remote.log.manager.follower.thread.pool.size": "as background.threads",
    "remote.log.reader.threads": "as background.threads",
    "log.cleaner.threads": "as background.threads",
    "log.cleaner.dedupe.buffer.size": "at least 1 MiB per cleaner thread",
    "log.local.retention.ms": "compared with log.retention.ms",
    "max.connections": "0 is refused with another sentence",
    "max.connection.creation.rate": "0 is refused with another sentence",
    "max.connections.per.ip.overrides": "what is no override is refused with another sentence",
    "group.consumer.assignment.interval.ms": "within bounds of the other protocols' keys",
    "group.share.assignment.interval.ms": "as group.consumer.assignment.interval.ms",
    "group.streams.assignment.interval.ms": "as group.consumer.assignment.interval.ms",
}
"""Broker keys whose values Kafka checks against its own state: why our answer has to differ."""

REFUSED_HERE: Final = {"log.flush.interval.ms": "-1"}
"""Values of broker keys that Kafka accepts and we refuse. After accepting one, Kafka answers
DescribeConfigs of every topic with UNKNOWN_SERVER_ERROR, as flush.ms must be at least 0.
"""


def _ask(side: Side, kind: int, name: str, changes: tuple[Change, ...]) -> None:
    side.ask(r.alter(name, *changes, kind=kind, validate_only=True))


def _edges_of(kinds: set[int]) -> Script:
    """All edges of resources of these kinds, but for what is refused here."""

    def run(side: Side) -> None:
        topic = side.topic().name
        for kind, name, changes in edges(topic):
            is_refused = any(text and REFUSED_HERE.get(key) == text for key, _, text in changes)
            if kind in kinds and not is_refused:
                _ask(side, kind, name, changes)

    return run


for _name, _kind in KINDS.items():
    CORPUS.add(f"of-{_name}", _edges_of({_kind}))
CORPUS.add("of-others", _edges_of({0, 1, 3, 7, LOGGER, 64, 99}))


@CORPUS.case
def refused_here(side: Side) -> None:
    for key, value in REFUSED_HERE.items():
        for name in ("1", ""):
            _ask(side, BROKER, name, ((key, SET, value),))
