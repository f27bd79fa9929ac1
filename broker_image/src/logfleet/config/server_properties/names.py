"""What an unknown key probably means: a key before Kafka 4.0, a topic's key, a typo."""

from collections.abc import Iterable, Iterator
from typing import Final

from logfleet.config.keys import BROKER_KEYS, TOPIC_KEYS

FORMER: Final = frozenset(
    {
        "advertised.host.name",
        "advertised.port",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "eligible.leader.replicas.enable",
        "group.coordinator.new.enable",
        "host.name",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "port",
        "quota.consumer.default",
        "quota.producer.default",
        "reserved.broker.max.id",
    }
)
"""Broker keys that Kafka no longer has since 4.0 or earlier."""

FORMER_PREFIXES: Final = ("zookeeper.", "password.encoder.")

RENAMED: Final = {
    "brokerid": "broker.id",
    "log.cleanup.interval.mins": "log.retention.check.interval.ms",
    "log.default.flush.interval.ms": "log.flush.interval.ms",
    "log.file.size": "log.segment.bytes",
    "log.flush.interval": "log.flush.interval.messages",
    "log.retention.size": "log.retention.bytes",
}
"""Keys of Kafka 0.7 that old files still have."""

LIKENESS: Final = 0.8


def is_former(name: str) -> bool:
    return name in FORMER or name.startswith(FORMER_PREFIXES)


def likely_key(name: str) -> str | None:
    """The broker key that an unknown key probably means; None if there is none like it."""
    if name in RENAMED:
        return RENAMED[name]
    if name in TOPIC_KEYS and TOPIC_KEYS[name].sources:
        return TOPIC_KEYS[name].sources[0][0]
    import difflib  # imported here, as few starts need it

    (*found,) = difflib.get_close_matches(name, BROKER_KEYS, 1, LIKENESS)
    return found[0] if found else None


def sentences(unknown: Iterable[str]) -> Iterator[str]:
    """One sentence for all keys from before Kafka 4.0, and one for each other unknown key."""
    names = list(unknown)
    if former := [name for name in names if is_former(name)]:
        yield (
            f"{', '.join(former)}: made for Kafka before 4.0 and ignored; ZooKeeper is not "
            "used. Take "
            f"{'it' if len(former) == 1 else 'them'} out"
        )
    for name in names:
        if not is_former(name):
            likely = likely_key(name)
            hint = f"did you mean {likely}?" if likely else "correct the name, or take it out"
            yield f"no broker knows {name}: {hint}"
