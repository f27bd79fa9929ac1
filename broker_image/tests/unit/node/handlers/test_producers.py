import asyncio
from typing import Any

import pytest
from logfleet.io import slices
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.producers import describe_producers
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import DescribeProducersRequest, DescribeProducersResponse

NOW = 1_700_000_000_000


def ask(host, topic: str, *indexes: int, context: RequestContext | None = None) -> list[Any]:
    """The rows of one topic."""
    asked = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(indexes))]
    )
    answer = asyncio.run(describe_producers(host, asked, context or host.context(0)))
    assert isinstance(answer, DescribeProducersResponse)
    encode(answer, 0)  # nothing is set that this version lacks
    (found,) = answer.topics
    assert found.name == topic
    return found.partitions


def append(partition, producer_id: int, epoch: int, sequence: int, count: int = 1) -> None:
    records = [Record(None, b"value", NOW)] * count
    stamp = ProducerStamp(producer_id, epoch, sequence)
    partition.append(build_batch(records, producer=stamp), NOW)


def state(
    producer_id: int, epoch: int, last_sequence: int
) -> DescribeProducersResponse.ProducerState:
    return DescribeProducersResponse.ProducerState(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=last_sequence,
        last_timestamp=NOW,
        coordinator_epoch=-1,
        current_txn_start_offset=-1,
    )


def test_the_producers_of_a_partition_are_described(host) -> None:
    host.know_topic("topic", {0: 1, 1: 1})
    partition = host.host()
    host.host(index=1)
    append(partition, 7, 0, 0, count=3)
    append(partition, 8, 2, 0)
    described, without = ask(host, "topic", 0, 1)
    assert (described.error_code, described.error_message) == (ErrorCode.NONE, None)
    assert described.active_producers == [state(7, 0, 2), state(8, 2, 0)]
    assert (without.error_code, without.active_producers) == (ErrorCode.NONE, [])


def test_a_follower_answers_from_its_own_log(host) -> None:
    host.know_topic("topic", {0: 2})
    former = host.host()
    append(former, 7, 0, 0)
    host.partitions.remove(former)
    host.partitions.add(FollowerPartition(Replica.of(former), 2, LeaderEpoch(9)))
    (row,) = ask(host, "topic", 0)
    assert (row.error_code, row.active_producers) == (ErrorCode.NONE, [state(7, 0, 0)])


def test_a_partition_without_a_replica_here_is_refused(host) -> None:
    host.know_topic("topic", {0: 2, 1: 2})
    elsewhere, none = ask(host, "topic", 1, 2)
    assert (elsewhere.partition_index, elsewhere.error_code) == (
        1,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert (none.partition_index, none.error_code) == (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert elsewhere.error_message is none.error_message is None


@pytest.mark.parametrize(
    "topic, error, words",
    [
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not host this topic-partition"),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "contains one or more characters"),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION, "the empty string is not allowed"),
    ],
)
def test_each_row_of_a_topic_that_is_none_names_the_reason(
    host, topic: str, error: ErrorCode, words: str
) -> None:
    rows = ask(host, topic, 0, 1)
    assert [row.error_code for row in rows] == [error, error]
    assert all(words in (row.error_message or "") for row in rows)


def test_a_client_that_may_not_read_the_topic_learns_nothing_of_it(host) -> None:
    """Before it is checked whether there is such a topic, as in Kafka."""

    class Denied(RequestContext, frozen=True):
        def may(self, operation: object, resource: object, /) -> bool:
            asked.append((operation, resource))
            return False

    asked: list[Any] = []
    context = Denied(host.context(0).peer, 0, "client", 1)
    (row,) = ask(host, "none", 0, context=context)
    assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ((operation, resource),) = asked
    assert (operation.name, resource.type.name, resource.name) == ("READ", "TOPIC", "none")


def test_many_producers_are_described_in_steps_and_one_that_expires_meanwhile_is_left_out(
    host, monkeypatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0)
    host.know_topic("topic", {0: 1})
    partition = host.host()
    for producer_id in (1, 2, 3, 4):
        append(partition, producer_id, 0, 0)

    async def main() -> DescribeProducersResponse:
        topic = DescribeProducersRequest.TopicRequest(name="topic", partition_indexes=[0])
        asked = DescribeProducersRequest(topics=[topic])
        answer = asyncio.ensure_future(describe_producers(host, asked, host.context(0)))
        for _ in range(3):  # to the partition, and over two of its producers
            await asyncio.sleep(0)
        partition.log.producers.states.expire([3], NOW + 10, 10)
        return await answer

    (found,) = asyncio.run(main()).topics
    (row,) = found.partitions
    assert [each.producer_id for each in row.active_producers] == [1, 2, 4]


def test_a_partition_that_is_named_often_has_one_row(host) -> None:
    """Else a small request could ask for an answer of any size."""
    host.know_topic("topic", {0: 1, 1: 1})
    append(host.host(), 7, 0, 0)
    host.host(index=1)
    rows = ask(host, "topic", 1, 0, 0, 1)
    assert [row.partition_index for row in rows] == [1, 0]
    name = DescribeProducersRequest.TopicRequest(name="topic", partition_indexes=[0])
    asked = DescribeProducersRequest(topics=[name, name])
    (found,) = asyncio.run(describe_producers(host, asked, host.context(0))).topics
    assert [each.producer_id for each in found.partitions[0].active_producers] == [7]


def test_the_loop_does_other_things_while_many_rows_are_made(host, monkeypatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0)

    async def main() -> int:
        topic = DescribeProducersRequest.TopicRequest(name="none", partition_indexes=[*range(50)])
        asked = DescribeProducersRequest(topics=[topic])
        answer = asyncio.ensure_future(describe_producers(host, asked, host.context(0)))
        turns = 0
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(answer.result().topics[0].partitions) == 50
        return turns

    assert asyncio.run(main()) >= 50
