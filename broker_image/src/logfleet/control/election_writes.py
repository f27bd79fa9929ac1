"""Elections as the controller writes them: by `logfleet.replication.election`, with the configs in force and what must still hold.

Level-based, as fencing is (`logfleet.control.brokers.fencing`). Each write compares the state that it replaces, and registration and fence of whoever
leads after it: one that was elected from an old image must not lead with the log of a new start.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from logfleet.control.brokers.feature_level import GIVING_UP, needs
from logfleet.control.config_keys import TOPIC_KEYS
from logfleet.control.store_writes import Refusal, partition_step
from logfleet.control.topic_configs import BrokerLayers, topic_default
from logfleet.metadata import keys
from logfleet.metadata.image import Broker, ClusterImage, Topic
from logfleet.metadata.keys import PartitionValue
from logfleet.metadata.packing import Step
from logfleet.replication.election import (
    NO_PREFERENCES,
    Preferences,
    next_state,
    preferred_state,
    to_be_asked,
)
from logfleet.replication.longest_log import NOBODY_ASKED, LogEnds
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode

PartitionId = tuple[bytes, int]
"""Topic id and index."""
Asked = Mapping[PartitionId, Sequence[Broker]]
"""The replicas of which it has to be known how far their logs reach, by partition."""
Answered = Mapping[PartitionId, LogEnds]
"""How far they reach."""
NOTHING_ANSWERED: Final[Answered] = {}

_MIN_ISR: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"
SETTLED_MS: Final = 30_000
"""How long a broker runs, or a preferred replica is in sync, before it is given the lead where another one can have it. Its clients may have the address of its former pod
until then: Java keeps one that failed for 10 s, kube-proxy and DNS servers hear of a new one after seconds, and who connects to the old one gets no answer at all."""
REPLACED_MS: Final = 600_000
"""A broker that has started within this is taken for one that a roll has replaced: most rolls take less."""


def min_isr(topic_configs_value: str | None, layers: BrokerLayers) -> int:
    """min.insync.replicas in force for a topic that sets it to `topic_configs_value` (None: does not set it)."""
    text = topic_configs_value or topic_default(_MIN_ISR, layers)
    assert text is not None, "min.insync.replicas has a default"
    return int(text)


def preferences(image: ClusterImage, now_ms: int) -> dict[int, int]:
    """Whom elections prefer: who has started within SETTLED_MS comes last, the newest behind all; where a leader hands over, who has started within REPLACED_MS comes first, the newest before all.

    now_ms: wall clock; hosts whose clocks differ lead to another preference, to nothing else. In a roll a leader moves away once from each broker that has it and is replaced
    after that: so it had better be with one that was. That is the newest where another roll has just ended. A leader that died says nothing of a roll, and who was started
    anew because it had died before is no better successor.
    """
    ages = {each.id: now_ms - each.value.since_ms for each in image.brokers.values()}
    replaced = [each for each, age_ms in ages.items() if SETTLED_MS <= age_ms < REPLACED_MS]
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
    answered: Answered = NOTHING_ANSWERED,
) -> Iterator[Step]:
    """Writes for the partitions of a topic whose state is not what it should be.

    indexes: the partitions to look at, None for all. preferred: as `preferences` has them. answered: to
    what `to_ask` names. may_be_unclean: False while there are newcomers, of whom one may be the leader
    that is missed, or have the longest log.
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


def to_ask(
    image: ClusterImage, topic: Topic, layers: BrokerLayers, *, unclean: bool = False
) -> dict[PartitionId, Sequence[Broker]]:
    """Of which replicas `election_steps` has to know how far their logs reach, or `elect` if somebody asks for an unclean election."""
    unclean = unclean or _is_unclean_allowed(topic, layers)
    found: dict[PartitionId, Sequence[Broker]] = {}
    for index, partition in enumerate(topic.partitions):
        if not partition.has_leader:
            offline = _offline(image, topic, index)
            asked = to_be_asked(partition, image.brokers, unclean=unclean, offline=offline)
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
    answered: Answered = NOTHING_ANSWERED,
) -> Step | Refusal:
    """What an election that somebody asks for writes, or why it writes nothing.

    unclean: any leader will do, else it has to be the first replica; where nobody has the partition any
    more it is given up (`is_lost`), and begins empty as soon as one of its brokers says that it can.
    answered: to what `to_ask` names. Source: ReplicationControlManager.electLeader, which refuses to
    give up.
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
    if value is None or value.leader == keys.NO_LEADER:
        return _give_up(image, topic, index)
    return _election(image, topic, index, value)


def _give_up(image: ClusterImage, topic: Topic, index: int) -> Step | Refusal:
    """Of a partition that nobody can lead."""
    partition = topic.partitions[index]
    said = "Eligible topic partition leaders are not available."
    if not is_lost(image, topic, index):
        return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, said)
    if too_low := needs(image, GIVING_UP, "Giving it up"):
        return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"{said} {too_low}")
    epoch = partition.partition_epoch + 1
    return _election(image, topic, index, partition.changed(partition_epoch=epoch, given_up=True))


def is_lost(image: ClusterImage, topic: Topic, index: int) -> bool:
    """Whether nobody leads the partition though all its brokers run: waiting brings nothing, but for a disk that somebody puts in again."""
    partition = topic.partitions[index]
    brokers = [image.brokers.get(each) for each in partition.replicas]
    return not partition.has_leader and all(each is not None and each.is_active for each in brokers)


Imbalance = tuple[bytes, int, int]
"""Topic id, index and leader epoch of a partition that its first replica could lead, but does not."""


def imbalances(image: ClusterImage, topic: Topic) -> Iterator[Imbalance]:
    for index, partition in enumerate(topic.partitions):
        if partition.leader != partition.replicas[0]:
            offline = _offline(image, topic, index)
            if preferred_state(partition, image.brokers, offline) is not None:
                yield topic.id, index, partition.leader_epoch


def balance_steps(image: ClusterImage, settled: Iterable[Imbalance]) -> Iterator[Step]:
    """Give those that are imbalances still to their first replicas."""
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
    """Which of these brokers say that they cannot serve the partition."""
    return [each for each in broker_ids if image.is_offline(each, topic.id, index)]


def _election(image: ClusterImage, topic: Topic, index: int, value: PartitionValue) -> Step:
    key = keys.partition(uuids.to_text(topic.id), index)
    return partition_step(image, key, value, topic.partitions[index].revision)
