"""Consumers that read from the replica in their own rack (KIP-392)."""

from typing import Any

import pytest
from logfleet.log.config import LogConfig
from logfleet.log.names import TopicPartition
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue, Endpoint
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.records.batch import iterate_headers
from logfleet.records.record import Record, build_batch, read_records
from logfleet.replication.nearest import RACK_AWARE
from logfleet.types import LeaderEpoch
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse

from broker_image.tests.unit.node.handlers.conftest import NOW, Host, topic_id_of
from broker_image.tests.unit.node.handlers.fetch_rig import append, fetch, only_row, request, values
from broker_image.tests.unit.node.handlers.test_replica_fetch import (
    EPOCH,
    host_replicated,
    looked_at,  # noqa: F401  a fixture
    of_follower,
)

VERSION = 18


def ask(host: Host, asked: FetchRequest, version: int = VERSION) -> FetchResponse:
    answer = fetch(host, asked, host.context(version))
    assert isinstance(answer, FetchResponse)
    return answer


def all_values(row: Any) -> list[bytes | None]:
    """Of all its batches."""
    records = row.records.read()
    return [
        record.value
        for position, _ in iterate_headers(records)
        for record in read_records(records, position)
    ]


def know_broker(host: Host, broker_id: int, rack: str, listener: str = "PLAINTEXT") -> None:
    address = Endpoint(listener, "broker", 9092)
    host.put(BROKER.key(broker_id), BrokerValue("i", (address,), rack))


@pytest.fixture
def in_racks(host, looked_at) -> Any:  # noqa: F811
    """A leader in rack a whose follower in rack b has one committed record."""
    host.config.replica_selector_class = RACK_AWARE
    know_broker(host, 1, "a")
    know_broker(host, 2, "b")
    partition = host_replicated(host)
    append(partition, b"a")
    ask(host, of_follower(1))
    return host


@pytest.mark.parametrize("version", [11, 18])
def test_a_leader_sends_a_consumer_to_the_follower_in_its_rack(in_racks, version) -> None:
    row = only_row(
        ask(in_racks, request(("topic", 0, 0), rack_id="b", max_wait_ms=10_000), version)
    )
    assert (row.error_code, row.preferred_read_replica) == (0, 2)
    assert (values(row), row.high_watermark) == ([], 1)


@pytest.mark.parametrize("rack", ["a", "c", ""])
def test_it_serves_those_itself_that_have_no_follower_nearer(in_racks, rack) -> None:
    row = only_row(ask(in_racks, request(("topic", 0, 0), rack_id=rack)))
    assert (row.preferred_read_replica, values(row)) == (-1, [b"a"])


def test_it_sends_no_client_to_another_replica_without_being_configured_to(in_racks) -> None:
    in_racks.config.replica_selector_class = None
    row = only_row(ask(in_racks, request(("topic", 0, 0), rack_id="b")))
    assert (row.preferred_read_replica, values(row)) == (-1, [b"a"])


def test_it_sends_nobody_to_a_broker_without_the_consumers_listener(in_racks) -> None:
    know_broker(in_racks, 2, "b", "REPLICATION")
    row = only_row(ask(in_racks, request(("topic", 0, 0), rack_id="b")))
    assert (row.preferred_read_replica, values(row)) == (-1, [b"a"])


def test_followers_are_sent_nowhere(in_racks) -> None:
    row = only_row(ask(in_racks, of_follower(0, rack_id="b")))
    assert (row.preferred_read_replica, values(row)) == (-1, [b"a"])


def host_followed(host: Host) -> FollowerPartition:
    """A partition that broker 2 leads, with two records below and one above the high watermark."""
    host.know_topic("topic", {0: 2})
    topic_id = topic_id_of("topic")
    log = host._dir.create(TopicPartition("topic", 0), uuids.to_text(topic_id), LogConfig(), NOW)
    for value in (b"a", b"b"):
        log.append_as_leader(build_batch([Record(None, value, NOW)]), LeaderEpoch(EPOCH), NOW)
    followed = FollowerPartition(Replica("topic", topic_id, 0, log), 2, LeaderEpoch(EPOCH))
    followed.advance_high_watermark(1)
    host.partitions.add(followed)
    return followed


@pytest.mark.parametrize("version", [11, 12, 18])
def test_a_follower_serves_consumers_what_it_knows_to_be_committed(host, version) -> None:
    followed = host_followed(host)
    row = only_row(ask(host, request(("topic", 0, 0)), version))
    assert (row.error_code, values(row), row.high_watermark) == (0, [b"a"], 1)
    assert followed.bytes_out == followed.traffic.bytes_out == len(row.records)
    for offset in (1, 2):
        row = only_row(ask(host, request(("topic", 0, offset)), version))
        assert (row.error_code, values(row)) == (0, [])
    row = only_row(ask(host, request(("topic", 0, 3)), version))
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_fences_consumers_of_another_leader_epoch(host) -> None:
    host_followed(host)
    for epoch, error in (
        (EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        asked = request(("topic", 0, 0, {"current_leader_epoch": epoch}))
        assert only_row(ask(host, asked)).error_code == error


def test_a_client_that_has_to_go_to_the_leader_learns_first_that_there_is_another_epoch(
    host,
) -> None:
    """Partition.getLocalLog: this broker may lead in the epoch that the client sends."""
    host_followed(host)
    for epoch, error in (
        (EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        fields = {"current_leader_epoch": epoch}
        assert only_row(ask(host, request(("topic", 0, 0, fields)), 10)).error_code == error
        asked = of_follower(0, fields, replica=3)
        assert only_row(ask(host, asked)).error_code == error


def test_who_does_not_know_of_reading_there_or_follows_is_sent_to_the_leader(host) -> None:
    host_followed(host)
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only_row(ask(host, request(("topic", 0, 0)), 10)).error_code == refused
    assert only_row(ask(host, of_follower(0, replica=3))).error_code == refused


@pytest.mark.asyncio
async def test_a_consumer_that_waits_at_a_follower_is_answered_with_what_is_committed(host) -> None:
    followed = host_followed(host)
    pending: Any = fetch(host, request(("topic", 0, 1), max_wait_ms=10_000), host.context(VERSION))
    followed.log.append_as_leader(build_batch([Record(None, b"c", NOW)]), LeaderEpoch(EPOCH), NOW)
    followed.appended(70)
    assert host.parked.fetches == 1
    followed.advance_high_watermark(3)
    assert all_values(only_row(await pending)) == [b"b", b"c"]


@pytest.mark.asyncio
async def test_a_session_at_a_follower_learns_of_what_is_committed_and_of_its_end(host) -> None:
    followed = host_followed(host)
    begun = ask(host, request(("topic", 0, 1), session_epoch=0))
    asked = {"session_id": begun.session_id, "max_wait_ms": 10_000}
    followed.log.append_as_leader(build_batch([Record(None, b"c", NOW)]), LeaderEpoch(EPOCH), NOW)
    followed.appended(70)
    pending: Any = fetch(host, request(session_epoch=1, **asked), host.context(VERSION))
    followed.advance_high_watermark(3)
    assert all_values(only_row(await pending)) == [b"b", b"c"]
    moved = request(("topic", 0, 3), session_epoch=2, **asked)
    pending = fetch(host, moved, host.context(VERSION))
    host.partitions.add(Replica.of(followed))
    assert only_row(await pending).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.asyncio
async def test_a_consumer_at_a_follower_waits_for_as_much_as_it_asks_for(host) -> None:
    followed = host_followed(host)
    pending: Any = fetch(
        host, request(("topic", 0, 2), min_bytes=100, max_wait_ms=10_000), host.context(VERSION)
    )
    for end in (3, 4):
        followed.log.append_as_leader(
            build_batch([Record(None, b"c", NOW)]), LeaderEpoch(EPOCH), NOW
        )
        followed.appended(70)
        followed.advance_high_watermark(end)
    assert all_values(only_row(await pending)) == [b"c", b"c"]
