"""What the controller makes of brokers that come and go: who may lead, and who leads.

Level-based: each function compares an image with what it should be and returns the writes that are missing, so a new
controller, a missed event and a repeated call all end the same way. Order matters between the two kinds of write: a
broker is made active first, then elected, because an election compares that it is active.

One replica per partition: it leads while its broker is active and its log directory online (KIP-858), nobody else can.
"""

from collections.abc import Iterator

from logfleet.control.topic_configs import BrokerLayers, topic_default
from logfleet.control.transactions import Refusal, partition_step
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage, Partition, Topic
from logfleet.metadata.keys import ACTIVE, FENCED, NO_LEADER, FenceValue, PartitionValue
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Put, absent, created_at
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode


def fence_steps(image: ClusterImage) -> Iterator[Step]:
    """Newly registered brokers become active, those that are gone fenced; each for the registration that the image shows.

    A fenced registration stays so: its broker has to make a new one.
    """
    for broker in image.brokers.values():
        fence = image.fences.get(broker.id)
        if fence is None or fence.broker_epoch != broker.epoch:
            value = keys.encode(FenceValue(broker.epoch, ACTIVE))
            registered = created_at(keys.broker(broker.id), broker.epoch)
            yield Step(Put(keys.fence(broker.id), value), (registered,))
    for broker_id, fence in image.fences.items():
        if fence.state != FENCED and broker_id not in image.brokers:
            value = keys.encode(FenceValue(fence.broker_epoch, FENCED))
            yield Step(Put(keys.fence(broker_id), value), (absent(keys.broker(broker_id)),))


def min_isr(topic_configs_value: str | None, layers: BrokerLayers) -> int:
    """min.insync.replicas in force for a topic that sets it to `topic_configs_value` (None: does not set it)."""
    text = topic_configs_value or topic_default("min.insync.replicas", layers)
    assert text is not None, "min.insync.replicas has a default"
    return int(text)


def election_steps(image: ClusterImage, topic: Topic, layers: BrokerLayers) -> Iterator[Step]:
    """Writes for the partitions of a topic whose state is not what it should be; see `next_state`."""
    wanted = min_isr(topic.configs.get("min.insync.replicas"), layers)
    uuid = uuids.to_text(topic.id)
    for index, partition in enumerate(topic.partitions):
        (replica,) = partition.replicas
        is_offline = image.is_offline(replica, topic.id, index)
        value = next_state(image, partition, wanted, is_offline=is_offline)
        if value is not None:
            yield partition_step(image, keys.partition(uuid, index), value, partition.revision)


def refuse_election(partition: Partition, *, unclean: bool) -> Refusal:
    """Why an election that somebody asks for changes nothing: with one replica the controller has already made it.

    unclean: any leader will do, else it has to be the first replica. Source: ReplicationControlManager.electLeader.
    """
    if partition.has_leader and (unclean or partition.leader == partition.replicas[0]):
        return Refusal(
            ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        )
    if unclean:
        return Refusal(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    return Refusal(
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    )


def next_state(
    image: ClusterImage, partition: Partition, min_isr: int, *, is_offline: bool
) -> PartitionValue | None:
    """The state that replaces the partition's; None if it is right. is_offline: the replica's log directory is.

    The replica leads from the moment its broker is active and its directory online. The leader epoch grows when it stops leading and when
    it leads again, also if it only restarted: then it has a new broker epoch, and that is what its ISR entry must carry.
    """
    (replica,) = partition.replicas
    broker = image.brokers.get(replica)
    leader, isr = NO_LEADER, partition.isr
    if broker is not None and broker.is_active and not is_offline:
        leader, isr = replica, ((replica, broker.epoch),)
    same_term = leader == partition.leader and isr == partition.isr
    if same_term and min_isr == partition.min_isr:
        return None
    return PartitionValue(
        partition.replicas,
        isr,
        leader,
        partition.leader_epoch + (not same_term),
        partition.partition_epoch + 1,
        min_isr,
    )
