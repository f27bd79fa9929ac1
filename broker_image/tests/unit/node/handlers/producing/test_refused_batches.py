"""Batches that follow a temporarily refused one, from an idempotent producer's connection."""

from typing import Any

import pytest
from logfleet.net.peer import Peer
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.producing.produce import produce
from logfleet.node.handlers.producing.refused_batches import (
    PARTITIONS_MAX,
    error_behind,
    record_refused,
)
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.replication.partition_state import Member
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ProduceRequest

from broker_image.tests.unit.node.handlers.producing.produce_rig import (
    batch,
    frame,
    row,
)
from broker_image.tests.unit.node.partitions.replicas_rig import A, B, replicated, shrink

NONE, OUT_OF_ORDER = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOT_ENOUGH, NOT_LEADER = ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER
UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
NOW = 1_700_000_000_000


class Connection:
    """Sends batches of two records to one partition, acks=all."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._peer = Peer("PLAINTEXT")

    def send(self, sequence: int, **how: int) -> int:
        """The error, if the answer comes at once."""
        row = self.row(sequence, **how)
        return NONE if row is None else row.error_code

    def row(self, sequence: int, *, producer: int = 7, epoch: int = 0, version: int = 12) -> Any:
        """The answer, None if it waits for the others."""
        records = [Record(None, b"x", NOW), Record(None, b"y", NOW)]
        batch = build_batch(records, producer=ProducerStamp(producer, epoch, sequence))
        data = ProduceRequest.PartitionProduceData(index=0, records=memoryview(batch))
        topic_id = b"topic".ljust(16, b"-")
        topic = ProduceRequest.TopicProduceData(
            name="topic", topic_id=topic_id, partition_data=[data]
        )
        request = ProduceRequest(acks=-1, timeout_ms=0, topic_data=[topic])
        answer: Any = produce(self._host, request, RequestContext(self._peer, version, "client", 1))
        if hasattr(answer, "close"):  # it is appended, and waits for the others
            answer.close()
            return None
        ((row,),) = [topic.partition_responses for topic in answer.responses]
        return row


def in_sync(host: Any, *isr: Member) -> None:
    """These are from now on; the topic's min.insync.replicas is 2."""
    shrink(host.partitions.get("topic", 0), *isr)


@pytest.fixture
def connection(host: Any) -> Connection:
    """To a leader that has the records 0 and 1 of producer 7."""
    host.host(replicas_state=replicated(isr=(A, B)))
    connection = Connection(host)
    assert connection.send(0) == NONE
    return connection


@pytest.mark.parametrize("version", [12, 13])
def test_what_was_on_its_way_with_a_refused_batch_is_refused_with_it(
    host, connection, version
) -> None:
    in_sync(host, A)
    assert connection.send(2, version=version) == NOT_ENOUGH
    in_sync(host, A, B)
    assert [connection.send(each, version=version) for each in (4, 6, 8)] == [NOT_ENOUGH] * 3
    assert host.partitions.get("topic", 0).log.log_end_offset == 2
    assert [connection.send(each, version=version) for each in (2, 4, 6, 8)] == [NONE] * 4
    assert host.partitions.get("topic", 0).log.log_end_offset == 10


def test_a_gap_that_is_real_is_reported_once_the_producer_tries_again(host, connection) -> None:
    in_sync(host, A)
    assert connection.send(2) == NOT_ENOUGH
    in_sync(host, A, B)
    assert connection.send(4) == NOT_ENOUGH
    assert connection.send(4) == OUT_OF_ORDER
    assert connection.send(8) == OUT_OF_ORDER


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_producer_that_is_new_here_begins_with_its_first_batch(host, is_known, version) -> None:
    """Its second batch would be accepted, and then the first is out of order for ever."""
    connection = Connection(host)
    if is_known:
        host.know_topic("topic", {0: 2})
    error = connection.send(0, version=version)
    assert (error in UNKNOWN) is not is_known
    host.host(replicas_state=replicated(isr=(A, B)))
    assert connection.send(2, version=version) == error
    assert [connection.send(each, version=version) for each in (0, 2)] == [NONE, NONE]


def test_what_is_remembered_of_a_connection_has_a_bound(host) -> None:
    refused: dict[Any, Any] = {}
    batch = memoryview(build_batch([Record(None, b"x", NOW)], producer=ProducerStamp(7, 0, 0)))
    for index in range(2 * PARTITIONS_MAX):
        record_refused(refused, ("topic", index), batch, NOT_LEADER)
        assert len(refused) <= PARTITIONS_MAX
    assert error_behind(refused, ("topic", 2 * PARTITIONS_MAX - 1), batch) is None


def test_every_refusal_reports_who_leads(host) -> None:
    connection = Connection(host)
    host.know_topic("topic", {0: 2})
    for sequence in (0, 2):
        assert connection.row(sequence).current_leader.leader_id == 2


@pytest.mark.parametrize("other", [{"producer": 8}, {"epoch": 1}], ids=["producer", "epoch"])
def test_others_are_not_held_to_it(host, connection, other) -> None:
    in_sync(host, A)
    assert connection.send(2) == NOT_ENOUGH
    in_sync(host, A, B)
    assert connection.send(0, **other) == NONE


def test_another_connection_learns_of_its_own_gap(host, connection) -> None:
    in_sync(host, A)
    assert connection.send(2) == NOT_ENOUGH
    in_sync(host, A, B)
    assert Connection(host).send(4) == OUT_OF_ORDER


def test_a_lasting_error_does_not_refuse_the_next_batch(host, connection) -> None:
    assert connection.send(6) == OUT_OF_ORDER
    assert connection.send(2) == NONE
    assert connection.send(4) == NONE


@pytest.mark.asyncio
async def test_requests_that_are_known_by_their_bytes_are_held_to_it_too(sides) -> None:
    """The connection's first request has no producer id; later ones differ only in the records."""
    side, _ = sides
    side.host.host("topic", 0, replicas_state=replicated(isr=(A, B)))

    async def send(sequence: int | None = None) -> int:
        stamp = {} if sequence is None else {"producer": ProducerStamp(7, 0, sequence)}
        given = side.ask(frame(9, batch(**stamp), timeout_ms=1))
        return int(row(await side.link.wait(given), 9).error_code)

    late = ErrorCode.REQUEST_TIMED_OUT  # it is appended, and waits for the others
    assert await send() == late
    assert side.peer.repeats
    in_sync(side.host, A)
    assert await send(0) == NOT_ENOUGH
    in_sync(side.host, A, B)
    assert await send(1) == NOT_ENOUGH
    assert [await send(each) for each in (0, 1)] == [late, late]
