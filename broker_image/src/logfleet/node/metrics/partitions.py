"""Topics and partitions of this broker: one by one while there are not too many, and in total."""

from collections.abc import Callable, Iterator

from logfleet.metadata.image import ClusterImage
from logfleet.node.partitions.partition import Partition
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica
from logfleet.node.partitions.traffic import Traffic
from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, Row, labels_text, single
from logfleet.telemetry.metric import Metric


def topics(partitions: PartitionTable, series_max: int) -> Iterator[Family]:
    """What went in and out, in total and by topic."""
    total = Traffic()
    by_topic: list[tuple[str, Traffic]] = []
    yield Family(table.BYTES_IN, _sum_up(partitions, total, by_topic))
    yield single(table.BYTES_OUT, total.bytes_out)
    yield single(table.MESSAGES_IN, total.messages_in)
    told = by_topic if len(by_topic) <= series_max else []
    for metric, of in (
        (table.TOPIC_BYTES_IN, _bytes_in),
        (table.TOPIC_BYTES_OUT, _bytes_out),
        (table.TOPIC_MESSAGES_IN, _messages_in),
    ):
        yield Family(metric, ((label, of(traffic)) for label, traffic in told))


def _sum_up(
    partitions: PartitionTable, total: Traffic, by_topic: list[tuple[str, Traffic]]
) -> Iterator[Row]:
    # In one step: a topic that is deleted between the two would be in neither.
    total.add(partitions.gone)
    listed = list(partitions.by_id.values())
    for topic in listed:
        traffic = topic.gone.copy()
        for partition in list(topic.partitions.values()):
            traffic.add(partition.traffic)
            yield None
        by_topic.append((labels_text(table.TOPIC_BYTES_IN.labels, [topic.name]), traffic))
        total.add(traffic)
    yield "", total.bytes_in


def _bytes_in(traffic: Traffic) -> int:
    return traffic.bytes_in


def _bytes_out(traffic: Traffic) -> int:
    return traffic.bytes_out


def _messages_in(traffic: Traffic) -> int:
    return traffic.messages_in


_OF_PARTITION: dict[Metric, Callable[[Replica], int]] = {
    table.PARTITION_LOG_START: lambda replica: replica.log.log_start_offset,
    table.PARTITION_LOG_END: lambda replica: replica.log.log_end_offset,
    table.PARTITION_HIGH_WATERMARK: lambda replica: replica.high_watermark,
    table.PARTITION_SIZE: lambda replica: replica.log.size,
    table.PARTITION_SEGMENTS: lambda replica: len(replica.log.segments),
}


def logs(
    partitions: PartitionTable, image: Callable[[], ClusterImage], series_max: int
) -> Iterator[Family]:
    """The logs of the replicas that are here, led or followed."""
    found: list[tuple[str, Replica]] = []
    state = _State()
    yield Family(table.PARTITIONS, _look(partitions, image(), found, state))
    yield single(table.PARTITIONS_LED, state.led)
    yield single(table.UNDER_REPLICATED, state.under_replicated)
    yield single(table.UNDER_MIN_ISR, state.under_min_isr)
    yield single(table.PRODUCER_IDS, state.producer_ids)
    told = found if len(found) <= series_max else []
    for metric, of in _OF_PARTITION.items():
        yield Family(metric, ((label, of(replica)) for label, replica in told))


class _State:
    """Sums over the partitions."""

    def __init__(self) -> None:
        self.led = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.producer_ids = 0


def _look(
    partitions: PartitionTable,
    image: ClusterImage,
    found: list[tuple[str, Replica]],
    state: _State,
) -> Iterator[Row]:
    for replica in partitions:
        label = labels_text(table.PARTITION_SIZE.labels, [replica.topic, replica.index])
        found.append((label, replica))
        state.producer_ids += len(replica.log.producers.states)
        if isinstance(replica, Partition):
            state.led += 1
            known = image.partition(replica.topic_id, replica.index)
            if known is not None:
                state.under_replicated += len(known.isr) < len(known.replicas)
                # As Kafka's Partition.effectiveMinIsr: more than there are can be asked for.
                state.under_min_isr += len(known.isr) < min(known.min_isr, len(known.replicas))
        yield None
    yield "", len(found)
