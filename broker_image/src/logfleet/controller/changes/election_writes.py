"""The controller's writes of elections, computed by `logfleet.replication.election`.

Level-based, as fencing is (`logfleet.controller.brokers.fencing`). Each write compares the state
that it replaces, and the registration and fence of the new leader: a broker elected from an old
image must not lead with the log of a new start.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from logfleet.config.keys import TOPIC_KEYS
from logfleet.config.topic import BrokerLayers, topic_default
from logfleet.controller.brokers.feature_level import GIVING_UP, needs
from logfleet.controller.changes.store_writes import partition_step
from logfleet.metadata.image import Broker, ClusterImage, Topic
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION, PartitionValue
from logfleet.metadata.packing import Step
from logfleet.replication.election import (
    NO_PREFERENCES,
    Preferences,
    next_state,
    preferred_state,
    replicas_to_query,
)
from logfleet.replication.longest_log import NOBODY_ASKED, LogEnds
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

PartitionId = tuple[bytes, int]
"""Topic id and index."""
ReplicasToAsk = Mapping[PartitionId, Sequence[Broker]]
"""Partition -> the replicas that must report their log ends."""
LogEndsByPartition = Mapping[PartitionId, LogEnds]
"""Partition -> the log ends that its replicas reported."""
NO_LOG_ENDS: Final[LogEndsByPartition] = {}

_MIN_ISR: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"
SETTLED_MS: Final = 30_000
"""Milliseconds that a broker runs, or a preferred replica is in sync, before it is elected if
another can be.

Until then its clients may use the address of its former pod: Java keeps an address that failed for
10 s, kube-proxy and DNS servers learn a new one after seconds, and a connection to the old one gets
no response at all.
"""
REPLACED_MS: Final = 600_000
"""A broker that started within this time counts as replaced by a roll: most rolls take less."""


def min_isr(topic_configs_value: str | None, layers: BrokerLayers) -> int:
    """min.insync.replicas of a topic that sets it to `topic_configs_value`.

    None: the topic does not set it.
    """
    text = topic_configs_value or topic_default(_MIN_ISR, layers)
    assert text is not None, "min.insync.replicas has a default"
    return int(text)


def preferences(image: ClusterImage, now_ms: int) -> dict[int, int]:
    """Ranks of brokers for elections: lower is preferred, 0 is the default.

    Brokers that started within SETTLED_MS come last, the newest last of all. When a leader hands
    over, brokers that a roll has replaced come first, the newest first: those that started within
    REPLACED_MS, and SETTLED_MS or more after the oldest broker (brokers that start together with
    their fleet are no roll). now_ms: wall clock; a difference between hosts' clocks changes only
    the preference. A roll moves a leader off each broker just before it is replaced, so a leader
    should go to a broker that the roll has replaced already: the newest, if another roll has just
    ended. A leader that died says nothing about a roll, and a broker that restarted because it had
    died is no better successor.
    """
    ages = {each.id: now_ms - each.value.since_ms for each in image.brokers.values()}
    oldest_ms = max(ages.values(), default=0)
    replaced = [
        each
        for each, age_ms in ages.items()
        if SETTLED_MS <= age_ms < REPLACED_MS and age_ms <= oldest_ms - SETTLED_MS
    ]
    fresh = [each for each, age_ms in ages.items() if 0 <= age_ms < SETTLED_MS]
    first = sorted(replaced, key=lambda each: (-ages[each], each))
    last = sorted(fresh, key=lambda each: (-ages[each], each))
    return {each: -place for place, each in enumerate(first, 1)} | {
        each: place for place, each in enumerate(last, 1)
    }


def election_steps(
    image: ClusterImage,
    topic: Topic,
    layers: BrokerLayers,
    *,
    indexes: Iterable[int] | None = None,
    may_be_unclean: bool = True,
    preferred: Preferences = NO_PREFERENCES,
    answered: LogEndsByPartition = NO_LOG_ENDS,
) -> Iterator[Step]:
    """Yield the writes for partitions of a topic whose leader or ISR must change.

    indexes: the partitions to check, None for all. preferred: returned by `preferences`. answered:
    the log ends of the replicas in `replicas_to_ask`. may_be_unclean: False while brokers have
    registered that are not let in yet, as one of them may be the missing leader or have the longest
    log.
    """
    wanted = min_isr(topic.configs.get(_MIN_ISR), layers)
    unclean = _is_unclean_allowed(topic, layers)
    for index in range(len(topic.partitions)) if indexes is None else indexes:
        partition = topic.partitions[index]
        value = next_state(
            partition,
            image.brokers,
            min_isr=wanted,
            unclean=unclean and may_be_unclean,
            offline=_offline(image, topic, index),
            preferences=preferred,
            log_ends=answered.get((topic.id, index), NOBODY_ASKED) if may_be_unclean else None,
        )
        if value is not None:
            yield _election(image, topic, index, value)


def replicas_to_ask(
    image: ClusterImage, topic: Topic, layers: BrokerLayers, *, unclean: bool = False
) -> dict[PartitionId, Sequence[Broker]]:
    """The replicas whose log ends `election_steps`, or `elect` with `unclean`, needs."""
    unclean = unclean or _is_unclean_allowed(topic, layers)
    found: dict[PartitionId, Sequence[Broker]] = {}
    for index, partition in enumerate(topic.partitions):
        if not partition.has_leader:
            offline = _offline(image, topic, index)
            asked = replicas_to_query(partition, image.brokers, unclean=unclean, offline=offline)
            if asked:
                found[topic.id, index] = asked
    return found


def _is_unclean_allowed(topic: Topic, layers: BrokerLayers) -> bool:
    text = topic.configs.get(_UNCLEAN) or topic_default(_UNCLEAN, layers)
    return TOPIC_KEYS[_UNCLEAN].parse(text) is True


def elect(
    image: ClusterImage,
    topic: Topic,
    index: int,
    *,
    unclean: bool,
    answered: LogEndsByPartition = NO_LOG_ENDS,
) -> Step | Refusal:
    """The write of an election that a user requests, or why there is none.

    unclean: any replica may lead, else only the first one. If no replica has the partition any
    more, it is given up (`is_lost`): it begins empty as soon as one of its brokers reports that it
    can. answered: the log ends that `replicas_to_ask` asks for. Source:
    ReplicationControlManager.electLeader, which does not give up partitions.
    """
    partition, offline = topic.partitions[index], _offline(image, topic, index)
    if partition.has_leader and (unclean or partition.leader == partition.replicas[0]):
        return Refusal(
            ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        )
    if not unclean:
        value = preferred_state(partition, image.brokers, offline)
        return (
            _election(image, topic, index, value)
            if value
            else Refusal(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
            )
        )
    value = next_state(
        partition,
        image.brokers,
        min_isr=partition.min_isr,
        unclean=True,
        offline=offline,
        log_ends=answered.get((topic.id, index), NOBODY_ASKED),
    )
    if value is None or value.leader == NO_LEADER:
        return _give_up(image, topic, index)
    return _election(image, topic, index, value)


def _give_up(image: ClusterImage, topic: Topic, index: int) -> Step | Refusal:
    """The write that gives up a partition that no broker can lead, or why it is not given up."""
    partition = topic.partitions[index]
    message = "Eligible topic partition leaders are not available."
    if not is_lost(image, topic, index):
        return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    if too_low := needs(image, GIVING_UP, "Giving it up"):
        return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"{message} {too_low}")
    epoch = partition.partition_epoch + 1
    return _election(image, topic, index, partition.changed(partition_epoch=epoch, given_up=True))


def is_lost(image: ClusterImage, topic: Topic, index: int) -> bool:
    """Whether the partition has no leader though all its brokers run.

    Waiting does not help then, unless somebody puts a missing disk back.
    """
    partition = topic.partitions[index]
    brokers = [image.brokers.get(each) for each in partition.replicas]
    return not partition.has_leader and all(each is not None and each.is_active for each in brokers)


Imbalance = tuple[bytes, int, int]
"""Topic id, index and leader epoch of a partition that its first replica could lead but does not.
"""


def imbalances(image: ClusterImage, topic: Topic) -> Iterator[Imbalance]:
    for index, partition in enumerate(topic.partitions):
        if partition.leader != partition.replicas[0]:
            offline = _offline(image, topic, index)
            if preferred_state(partition, image.brokers, offline) is not None:
                yield topic.id, index, partition.leader_epoch


def balance_steps(image: ClusterImage, settled: Iterable[Imbalance]) -> Iterator[Step]:
    """Make the first replica the leader wherever `settled` is still true."""
    for topic_id, index, leader_epoch in settled:
        topic, partition = image.topic_by_id(topic_id), image.partition(topic_id, index)
        if topic is None or partition is None or partition.leader_epoch != leader_epoch:
            continue
        step = elect(image, topic, index, unclean=False)
        if isinstance(step, Step):
            yield step


def _offline(image: ClusterImage, topic: Topic, index: int) -> Sequence[int]:
    return offline_replicas(image, topic, index, topic.partitions[index].replicas)


def offline_replicas(
    image: ClusterImage, topic: Topic, index: int, broker_ids: Iterable[int]
) -> Sequence[int]:
    """Which of these brokers report that they cannot serve the partition."""
    return [each for each in broker_ids if image.is_offline(each, topic.id, index)]


def _election(image: ClusterImage, topic: Topic, index: int, value: PartitionValue) -> Step:
    key = PARTITION.key((topic.id, index))
    return partition_step(image, key, value, topic.partitions[index].revision)
