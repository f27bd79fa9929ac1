"""The controller's writes as decisions: elections, ISRs, fences, admissions, leaving.

A write is inspected once it is committed, beside the image that it was decided on: so none is
missed, whatever caused it, and writes that lost a conflict are left out. Causes are what that image
shows.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from logfleet.controller.brokers.stop_check import Objection
from logfleet.controller.brokers.suspects import reporters
from logfleet.metadata.image import ClusterImage, Partition
from logfleet.metadata.kinds.brokers import ACTIVE, DRAINING, FENCE, FENCED, FenceValue
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION, PartitionValue
from logfleet.metadata.store import Put, Txn
from logfleet.replication.election import is_unclean
from logfleet.replication.reassignment_steps import is_reassigning, target
from logfleet.telemetry.decisions import Decision, Kind
from logfleet.wire import uuids

_KINDS: Final[Mapping[str, Kind]] = {
    FENCED: Kind.FENCED,
    ACTIVE: Kind.UNFENCED,
    DRAINING: Kind.DRAINING,
}


def decided(image: ClusterImage, txn: Txn, cause: str | None = None) -> Iterator[Decision]:
    """What the controller decided by a write.

    image: an earlier one, on which it was decided. cause: the reason, if the image does not show
    it.
    """
    for write in txn.success:
        if isinstance(write, Put) and write.key.startswith(PARTITION.prefix):
            yield from _of_partition(image, write, cause)
        elif isinstance(write, Put) and write.key.startswith(FENCE.prefix):
            yield _of_fence(image, write)


def _of_partition(image: ClusterImage, write: Put, cause: str | None) -> Iterator[Decision]:
    uuid, _, index = write.key.removeprefix(PARTITION.prefix).partition("/")
    topic = image.topic_by_id(uuids.from_text(uuid))
    before = image.partition(topic.id, int(index)) if topic else None
    if topic is None or before is None:
        return  # the partition is new
    after = msgspec.json.decode(write.value, type=PartitionValue)
    isr = [before.isr_ids, [broker_id for broker_id, _ in after.isr]]
    isrs: dict[str, object] = {"isr": isr}
    if before.elr or after.elr:
        isrs["elr"] = [before.elr, after.elr]
    excluded = {
        broker_id: _why_excluded(image, topic.id, int(index), broker_id, epoch)
        for broker_id, epoch in before.isr
    }
    if (after.replicas, after.removing) != (before.replicas, before.removing):
        yield _reassigned(topic.name, int(index), before, after, cause)
    if after.leader_epoch != before.leader_epoch:
        why = cause or excluded.get(before.leader) or "nobody leads"
        leaders = {
            "leader": [before.leader, after.leader],
            "leader_epoch": [before.leader_epoch, after.leader_epoch],
        }
        yield Decision(
            Kind.UNCLEAN_ELECTION if is_unclean(before, after) else Kind.ELECTION,
            f"{why}: {_who_leads(image, before, after)}",
            topic.name,
            int(index),
            None if after.leader == NO_LEADER else after.leader,
            {**leaders, **isrs},
        )
        return
    for broker_id in set(isr[0]) - set(isr[1]):
        why = excluded[broker_id]
        yield Decision(Kind.ISR_SHRINK, why, topic.name, int(index), broker_id, isrs)


def _reassigned(
    topic: str, index: int, before: Partition, after: PartitionValue, cause: str | None
) -> Decision:
    """A reassignment begins, gets another target, is cancelled, or is done."""
    if not is_reassigning(after) and after.replicas == target(before):
        cause = "all replicas of the target are in sync"
    cause = cause or "an internal topic gets its configured replicas, as far as there are brokers"
    facts = {
        "replicas": [before.replicas, after.replicas],
        "adding": [before.adding, after.adding],
        "removing": [before.removing, after.removing],
    }
    return Decision(Kind.REASSIGNMENT, cause, topic, index, facts=facts)


def _of_fence(image: ClusterImage, write: Put) -> Decision:
    broker_id = int(write.key.removeprefix(FENCE.prefix))
    value = msgspec.json.decode(write.value, type=FenceValue)
    former = image.fences.get(broker_id)
    if value.state == DRAINING:
        cause = "it wants to leave, and all partitions can spare it"
    elif value.state == ACTIVE:
        cause = "it is registered, and no partition depends on an earlier registration of it"
    elif broker_id in image.brokers:
        who = ", ".join(map(str, sorted(reporters(image, image.brokers[broker_id]))))
        cause = f"it refuses connections, as brokers {who} report and the controller's probe shows"
    elif former is not None and former.state == DRAINING:
        cause = "it has left"
    else:
        cause = "its registration has ended: its lease expired, or it gave it up"
    state = [former.state if former else None, value.state]
    facts = {"epoch": value.broker_epoch, "state": state}
    return Decision(_KINDS[value.state], cause, broker=broker_id, facts=facts)


def broker_kept(broker_id: int, objection: Objection) -> Decision:
    """A broker that wants to leave must stay for now."""
    cause = f"it may not leave yet: {objection}"
    return Decision(Kind.REFUSAL, cause, objection.topic, objection.index, broker_id)


def _why_excluded(
    image: ClusterImage, topic_id: bytes, index: int, broker_id: int, epoch: int
) -> str:
    """Why that registration may not lead the partition, or be in its ISR; empty if it may."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return f"broker {broker_id} is not registered any more"
    if broker.epoch != epoch:
        return f"broker {broker_id} has registered again"
    if broker.is_fenced:
        return f"broker {broker_id} is fenced"
    if image.is_offline(broker_id, topic_id, index):
        return f"the log directory of broker {broker_id} is offline"
    return f"broker {broker_id} leaves" if broker.is_draining else ""


def _who_leads(image: ClusterImage, before: Partition, after: PartitionValue) -> str:
    """The new leader, and by which rule; see `logfleet.replication.election`."""
    leader = after.leader
    if leader == NO_LEADER:
        return "nobody else may lead"
    if after.recovering:
        is_last = leader == before.last_leader
        right = "which led last" if is_last else "the longest log of those that are there"
        return f"broker {leader}, {right}, leads and may lack records"
    if before.restored:
        return f"broker {leader} leads, as its log is the longest after a restoring of the metadata"
    is_in_sync = (leader, image.brokers[leader].epoch) in before.isr
    right = "which is in sync" if is_in_sync else "an eligible leader (ELR)"
    return f"broker {leader}, {right}, leads"
