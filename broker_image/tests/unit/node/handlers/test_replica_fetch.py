"""Fetches of followers: beyond the high watermark, and each says how far its broker has got."""

from types import SimpleNamespace
from typing import Any

import pytest
from logfleet.config.throttle_keys import Side
from logfleet.log.config import LogConfig
from logfleet.log.directories.disk import SLOW_S
from logfleet.log.names import TopicPartition
from logfleet.metadata.kinds.topics import TOPIC, PartitionValue, TopicValue
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.quotas.replication_quotas import UNLIMITED
from logfleet.replication.leader import LeaderReplicas
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse

from broker_image.tests.unit.log.gated_files import GatedFiles
from broker_image.tests.unit.node.handlers.conftest import Host, topic_id_of
from broker_image.tests.unit.node.handlers.fetch_rig import (
    append,
    fetch,
    only_row,
    request,
    rows_of,
    values,
)

VERSION = 18
EPOCH = LeaderEpoch(5)


@pytest.fixture
def looked_at(host) -> list[LeaderPartition]:
    """Partitions whose ISR may have to change."""
    found: list[LeaderPartition] = []
    host.isr_writer = SimpleNamespace(check=found.append)
    return found


def host_replicated(host: Host, topic: str = "topic") -> LeaderPartition:
    """A partition that broker 1 leads, with a follower 2 of broker epoch 20 that is in sync."""
    log = host._dir.create(
        TopicPartition(topic, 0), uuids.to_text(topic_id_of(topic)), LogConfig(), host.now
    )
    log.start_epoch(EPOCH)
    state = PartitionValue(
        (1, 2), ((1, BrokerEpoch(10)), (2, BrokerEpoch(20))), 1, EPOCH, PartitionEpoch(0), 1
    )
    replicas = LeaderReplicas(1, state, 1, ends=log.ends, lag_max_ms=30_000, now_ms=0)
    partition = LeaderPartition(topic, topic_id_of(topic), 0, log, EPOCH, replicas_state=replicas)
    host.partitions.add(partition)
    return partition


def of_follower(
    offset: int,
    fields: dict[str, Any] | None = None,
    *,
    replica: int = 2,
    epoch: int = 20,
    **given: Any,
) -> FetchRequest:
    fields = {"current_leader_epoch": EPOCH, "log_start_offset": 0, **(fields or {})}
    return request(
        ("topic", 0, offset, fields),
        replica_state=FetchRequest.ReplicaState(
            replica_id=replica, replica_epoch=BrokerEpoch(epoch)
        ),
        **given,
    )


def ask(host: Host, asked: FetchRequest) -> FetchResponse:
    answer = fetch(host, asked, host.context(VERSION))
    assert isinstance(answer, FetchResponse)
    return answer


def test_a_follower_reads_what_is_not_committed_and_its_next_fetch_commits_it(
    host, looked_at
) -> None:
    partition = host_replicated(host)
    append(partition, b"a")
    row = only_row(ask(host, of_follower(0)))
    assert (values(row), row.high_watermark) == ([b"a"], 0)
    sent = partition.log.size
    assert (host.partitions.replicated.bytes_out, partition.bytes_out) == (sent, 0)
    row = only_row(ask(host, of_follower(1)))
    assert (values(row), row.high_watermark) == ([], 1)
    assert partition.high_watermark == 1


def test_a_consumer_sees_nothing_of_what_a_follower_lacks(host, looked_at) -> None:
    partition = host_replicated(host)
    append(partition, b"a")
    row = only_row(ask(host, request(("topic", 0, 0))))
    assert (row.error_code, values(row), row.high_watermark) == (0, [], 0)


def test_a_broker_without_a_replica_is_refused(host, looked_at) -> None:
    """A follower with the leader epoch may have a newer assignment.

    Source: Partition.followerReplicaOrThrow.
    """
    partition = host_replicated(host)
    row = only_row(ask(host, of_follower(0, replica=3)))
    assert row.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    row = only_row(ask(host, of_follower(0, {"current_leader_epoch": -1}, replica=3)))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.replicas_state.followers.keys() == {2}


@pytest.mark.parametrize(
    "asked, error",
    [
        (of_follower(1, epoch=19), ErrorCode.STALE_BROKER_EPOCH),
        (of_follower(1, {"current_leader_epoch": 4}), ErrorCode.FENCED_LEADER_EPOCH),
        (of_follower(1, {"current_leader_epoch": 6}), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (of_follower(2), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_fetch_that_is_refused_commits_nothing(host, looked_at, asked, error) -> None:
    partition = host_replicated(host)
    append(partition, b"a")
    assert only_row(ask(host, asked)).error_code == error
    assert partition.high_watermark == 0


def test_a_follower_whose_log_diverges_commits_nothing(host, looked_at) -> None:
    partition = host_replicated(host)
    append(partition, b"a")
    row = only_row(ask(host, of_follower(1, {"last_fetched_epoch": 4})))
    assert row.diverging_epoch.epoch >= 0
    assert partition.high_watermark == 0


def test_a_newer_registration_of_a_follower_is_reported_to_the_isr_writer(host, looked_at) -> None:
    partition = host_replicated(host)
    partition.isr_change(0, lambda *_: True)
    append(partition, b"a")
    ask(host, of_follower(1))
    assert looked_at == []
    ask(host, of_follower(0, epoch=21))
    assert looked_at == [partition]


def test_records_for_followers_are_no_traffic_of_consumers(host, looked_at) -> None:
    partition = host_replicated(host)
    append(partition, b"a")
    ask(host, of_follower(0))
    assert partition.bytes_out == 0


@pytest.mark.asyncio
async def test_a_parked_follower_is_answered_with_what_is_appended(host, looked_at) -> None:
    partition = host_replicated(host)
    pending: Any = fetch(host, of_follower(0, max_wait_ms=10_000), host.context(VERSION))
    append(partition, b"a")
    row = only_row(await pending)
    assert values(row) == [b"a"]
    assert partition.high_watermark == 0


@pytest.mark.asyncio
async def test_what_several_producers_append_in_one_step_of_the_loop_is_one_answer(
    host, looked_at
) -> None:
    partition = host_replicated(host)
    pending: Any = fetch(host, of_follower(0, max_wait_ms=10_000), host.context(VERSION))
    for value in (b"a", b"b", b"c"):
        append(partition, value)
    assert len(only_row(await pending).records) == partition.log.size


@pytest.mark.asyncio
@pytest.mark.parametrize("moved_by", ["itself", "another"])
async def test_a_parked_follower_soon_learns_of_a_new_high_watermark(
    host, looked_at, moved_by
) -> None:
    """Not only with the next records, or after replica.fetch.wait.max.ms.

    Consumers may read there (KIP-392).
    """
    partition = host_replicated(host)
    answer = ask(host, of_follower(0, session_epoch=0))
    append(partition, b"a")
    follow_up = of_follower(1, session_id=answer.session_id, session_epoch=1, max_wait_ms=10_000)
    if moved_by == "another":
        follow_up = of_follower(
            0, session_id=answer.session_id, session_epoch=1, min_bytes=1000, max_wait_ms=10_000
        )
    pending: Any = fetch(host, follow_up, host.context(VERSION))
    if moved_by == "another":
        partition.fetched(2, BrokerEpoch(20), 1, 0, now_ms=0)
    rows = rows_of(await pending)
    assert [row.high_watermark for row in rows] == [1]


def throttled_at(host: Host, rate: int) -> None:
    """Broker 1 serves throttled followers of `topic` at so many bytes a second."""
    host.know_topic("topic", {0: 1})
    uuid = uuids.to_text(topic_id_of("topic"))
    configs = {"leader.replication.throttled.replicas": "0:1"}
    host.put(TOPIC.key("topic"), TopicValue(uuid, configs))
    host.replication_throttle.quotas[Side.LEADER].rate = rate


def out_of_sync(partition: LeaderPartition) -> None:
    state = partition.replicas_state.state
    assert partition.learned(state.changed(isr=((1, 10),)), partition.replicas_state.revision + 1)


def test_a_throttled_follower_that_is_not_in_sync_gets_nothing_once_the_rate_is_used_up(
    host, looked_at
) -> None:
    """KIP-73: what it fetches counts, in sync or not; only out-of-sync replicas are throttled."""
    throttled_at(host, 1)
    partition = host_replicated(host)
    append(partition, b"a")
    assert values(only_row(ask(host, of_follower(0)))) == [b"a"]
    assert values(only_row(ask(host, of_follower(0)))) == [b"a"], "it is in sync"
    out_of_sync(partition)
    held = only_row(ask(host, of_follower(0)))
    assert (held.error_code, values(held)) == (0, [])
    host.replication_throttle.quotas[Side.LEADER].rate = UNLIMITED
    assert values(only_row(ask(host, of_follower(0)))) == [b"a"]


@pytest.mark.asyncio
async def test_a_follower_gets_records_once_they_are_written(tmp_path, until) -> None:
    """Until then a killed leader would have less than its follower."""
    files = GatedFiles()
    host: Any = Host(tmp_path, files)
    host.isr_writer = SimpleNamespace(check=lambda _: None)
    partition = host_replicated(host)
    append(partition, b"a")
    partition.log.disk.on_slow_write(2 * SLOW_S)
    files.path = partition.log.directory
    files.writes.clear()
    append(partition, b"b")
    assert (partition.log.log_end_offset, partition.log.written_end_offset) == (2, 1)
    assert values(only_row(ask(host, of_follower(0)))) == [b"a"]
    assert values(only_row(ask(host, of_follower(1)))) == []
    files.writes.set()
    await until(lambda: partition.log.written_end_offset == 2)
    assert values(only_row(ask(host, of_follower(1)))) == [b"b"]
    host.close()
