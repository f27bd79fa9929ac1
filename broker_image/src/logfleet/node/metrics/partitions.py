"""Topics and partitions of this broker: each by itself while there are few, and totals."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.node.partitions.traffic import Traffic
from logfleet.node.replication.isr_writer import IsrWriter
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.replication.partition_state import effective_min_isr
from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, Row, labelled, labels_text, single
from logfleet.telemetry.metric import Metric

LATE_TRANSACTION_MS: Final = 300_000
"""Beyond transaction.max.timeout.ms (ProducerStateManager.LATE_TRANSACTION_BUFFER_MS)."""


def topics(partitions: PartitionTable, series_max: int) -> Iterator[Family]:
    """Traffic in and out, in total and by topic."""
    total = Traffic()
    by_topic: list[tuple[str, Traffic]] = []
    yield Family(table.BYTES_IN, _sum_up(partitions, total, by_topic))
    yield single(table.BYTES_OUT, total.bytes_out)
    yield single(table.MESSAGES_IN, total.messages_in)
    listed = by_topic if len(by_topic) <= series_max else []
    for metric, of in (
        (table.TOPIC_BYTES_IN, _bytes_in),
        (table.TOPIC_BYTES_OUT, _bytes_out),
        (table.TOPIC_MESSAGES_IN, _messages_in),
    ):
        yield Family(metric, ((label, of(traffic)) for label, traffic in listed))


def _sum_up(
    partitions: PartitionTable, total: Traffic, by_topic: list[tuple[str, Traffic]]
) -> Iterator[Row]:
    # both in one step: a topic that is deleted in between would be in neither
    total.add(partitions.former_traffic)
    listed = list(partitions.by_id.values())
    for topic in listed:
        traffic = topic.former_traffic.copy()
        for replica in list(topic.replicas.values()):
            traffic.add(replica.traffic)
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
    table.PARTITION_STABLE_LAG: lambda replica: replica.high_watermark - replica.last_stable_offset,
    table.PARTITION_SIZE: lambda replica: replica.log.size,
    table.PARTITION_SEGMENTS: lambda replica: len(replica.log.segments),
}


def logs(partitions: PartitionTable, series_max: int, late_before_ms: int) -> Iterator[Family]:
    """The logs of this broker's replicas, in any role.

    late_before_ms: an open transaction whose last record is older is late.
    """
    found: list[tuple[str, Replica]] = []
    state = _State(late_before_ms)
    yield Family(table.PARTITIONS, _scan(partitions, found, state))
    yield single(table.PARTITIONS_LED, state.led)
    yield single(table.UNDER_REPLICATED, state.under_replicated)
    yield single(table.UNDER_MIN_ISR, state.under_min_isr)
    yield single(table.AT_MIN_ISR, state.at_min_isr)
    yield single(table.REPLICA_LAG_MAX, state.lag_max)
    yield single(table.PRODUCER_IDS, state.producer_ids)
    yield single(table.LATE_TRANSACTIONS, state.late)
    listed = found if len(found) <= series_max else []
    for metric, of in _OF_PARTITION.items():
        yield Family(metric, ((label, of(replica)) for label, replica in listed))
    yield Family(table.FOLLOWER_LAG, _follower_lags(replica for _, replica in listed))


def _follower_lags(replicas: Iterable[Replica]) -> Iterator[Row]:
    for replica in replicas:
        if isinstance(replica, LeaderPartition):
            replicas_state = replica.replicas_state
            for broker_id, lag in [
                (each, replicas_state.lag(each)) for each in replicas_state.followers
            ]:
                names = [replica.topic, replica.index, broker_id]
                yield labels_text(table.FOLLOWER_LAG.labels, names), lag


class _State:
    """Sums over the replicas of this broker. late: led partitions with a late transaction."""

    def __init__(self, late_before_ms: int) -> None:
        self.late_before_ms = late_before_ms
        self.late = 0
        self.led = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.lag_max = 0
        self.producer_ids = 0


def _scan(
    partitions: PartitionTable,
    found: list[tuple[str, Replica]],
    state: _State,
) -> Iterator[Row]:
    for replica in partitions:
        label = labels_text(table.PARTITION_SIZE.labels, [replica.topic, replica.index])
        found.append((label, replica))
        state.producer_ids += len(replica.log.producers.states)
        if isinstance(replica, LeaderPartition):
            state.led += 1
            oldest = replica.log.producers.states.oldest_write()
            state.late += oldest is not None and oldest < state.late_before_ms
            replicas_state = replica.replicas_state
            state.under_replicated += bool(replicas_state.out_of_sync)
            state.under_min_isr += not replicas_state.is_at_min_isr
            state.at_min_isr += len(replicas_state.state.isr) == effective_min_isr(
                replicas_state.state
            )
        elif isinstance(replica, FollowerPartition):
            state.lag_max = max(state.lag_max, replica.lag)
        yield None
    yield "", len(found)


def replication(
    partitions: PartitionTable, isr_writer: IsrWriter, throttle: ReplicationThrottle
) -> Iterator[Family]:
    """Bytes copied between brokers, and this broker's changes of ISRs."""
    yield single(table.ISR_SHRINKS, isr_writer.shrinks)
    yield single(table.ISR_EXPANDS, isr_writer.expands)
    yield single(table.ISR_UPDATES_FAILED, isr_writer.failed)
    yield single(table.REPLICATION_BYTES_IN, partitions.replicated.bytes_in)
    yield single(table.REPLICATION_BYTES_OUT, partitions.replicated.bytes_out)
    quotas = throttle.between_brokers
    yield labelled(
        table.REPLICATION_THROTTLED_BYTES,
        [((quota.side.label,), quota.bytes) for quota in quotas],
    )
    yield labelled(
        table.REPLICATION_THROTTLE_RATE,
        [
            ((quota.side.label,), round(quota.in_force) if quota.is_limited else 0)
            for quota in quotas
        ],
    )
