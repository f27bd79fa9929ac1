"""Checks of durability: records that one failure would lose. PURE."""

from collections.abc import Iterator
from typing import Final

from logfleet.checks.availability import FLEET_MIN
from logfleet.checks.finding import Check, Found, Severity, check, counted
from logfleet.checks.snapshot import Part, Snapshot

REPLICAS: Final = 3
"""As many as survive the loss of one broker while another restarts."""
FLUSH_MESSAGES_MIN: Final = 1_000
"""Below this a topic waits for its disk so often that it is felt."""


@check("LF201", Severity.WARNING)
def one_replica(fleet: Snapshot) -> Iterator[Found]:
    """Topics with one replica.

    The records are lost with the one disk that they are on, and away while its broker restarts.

    Give the topic more replicas. If it is not needed, delete it.
    """
    wanted = min(REPLICAS, len(fleet.active))
    for topic in fleet.users_topics:
        if topic.replicas == 1 < wanted:
            sentence = "one replica: lost with its disk, away while its broker restarts"
            remedy = f"logfleet topic alter {topic.name} --replicas {wanted}"
            yield Found(topic.name, sentence, remedy)


@check("LF202", Severity.WARNING, Part.CONFIGS)
def min_isr_one(fleet: Snapshot) -> Iterator[Found]:
    """One replica may acknowledge alone.

    With min.insync.replicas 1, acks=all is acknowledged by the leader alone while the others are
    down. If the leader then fails, the records are lost or unavailable.

    With three replicas set it to 2.
    """
    for topic in fleet.users_topics:
        if topic.replicas >= REPLICAS and topic.min_isr == 1:
            sentence = f"min.insync.replicas is 1 with {topic.replicas} replicas: acks=all may "
            remedy = f"logfleet config set topic {topic.name} min.insync.replicas=2"
            yield Found(topic.name, f"{sentence}wait for the leader alone", remedy)


@check("LF203", Severity.WARNING)
def few_internal_replicas(fleet: Snapshot) -> Iterator[Found]:
    """Internal topics with too few replicas.

    Offsets of groups and states of transactions are kept in internal topics. Without a replica that
    is left, groups cannot commit and transactions cannot end.

    They get `offsets.topic.replication.factor` and `transaction.state.log.replication.factor` when
    they are created; later they are altered like other topics.
    """
    wanted = min(REPLICAS, len(fleet.active))
    for topic in fleet.topics.values():
        if topic.internal and 0 < topic.replicas < wanted:
            sentence = f"{counted(topic.replicas, 'replica')}, with {len(fleet.active)} brokers"
            remedy = f"logfleet topic alter {topic.name} --replicas {wanted}"
            yield Found(topic.name, sentence, remedy)


@check("LF204", Severity.WARNING, Part.BROKERS)
def few_default_replicas(fleet: Snapshot) -> Iterator[Found]:
    """New topics get too few replicas.

    A topic that is created without a number of replicas gets `default.replication.factor`, also one
    that a client creates by writing to it.

    Set it to 3 in the configuration of every broker; it needs a restart.
    """
    known = [broker.config for broker in fleet.active if broker.config is not None]
    factors = {config.get("default.replication.factor", "1") for config in known}
    if len(fleet.active) >= FLEET_MIN and "1" in factors:
        creates = any(config.get("auto.create.topics.enable") == "true" for config in known)
        sentence = "default.replication.factor is 1" + (
            ", and clients create topics by writing" if creates else ""
        )
        yield Found("brokers", sentence, "set default.replication.factor=3 in server.properties")


@check("LF205", Severity.HINT, Part.CONFIGS)
def frequent_flushes(fleet: Snapshot) -> Iterator[Found]:
    """Flushes that slow down producers.

    The topic waits for its disk every few records (`flush.messages`). Replicas in other zones
    protect records better, and cost producers less.

    With three replicas and min.insync.replicas 2 let the operating system write them.
    """
    for topic in fleet.users_topics:
        config = topic.config or {}
        interval = int(config.get("flush.messages", FLUSH_MESSAGES_MIN))
        if interval < FLUSH_MESSAGES_MIN and topic.replicas >= REPLICAS:
            sentence = f"flush.messages is {interval}: producers wait for the disk"
            remedy = f"logfleet config delete topic {topic.name} flush.messages"
            yield Found(topic.name, sentence, remedy)


CHECKS: Final[tuple[Check, ...]] = (
    one_replica,
    min_isr_one,
    few_internal_replicas,
    few_default_replicas,
    frequent_flushes,
)
