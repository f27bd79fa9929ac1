"""Produce requests with a transactional id: what is asked of the coordinator, and what waits."""

import asyncio
from typing import Any

import pytest
from logfleet.log.config import LogConfig
from logfleet.net.connection import CloseConnection
from logfleet.net.peer import Peer
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.producing.produce import produce
from logfleet.records.compression import Codec
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.handlers.producing.produce_rig import Side, frame, row
from broker_image.tests.unit.node.handlers.producing.transactional_rig import (
    PRODUCER,
    Producer,
    batch,
    request,
    stored,
)
from broker_image.tests.unit.node.partitions.replicas_rig import B, C, fetch, replicated
from broker_image.tests.unit.waiting import Until


@pytest.fixture
def producer(host: Host) -> Producer:
    return Producer(host)


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.asyncio
async def test_the_first_batch_is_asked_about_and_the_next_ones_are_appended_at_once(
    host: Host, producer: Producer, version: int
) -> None:
    partition = host.host()
    assert await producer.errors(("topic", 0, batch()), version=version) == [ErrorCode.NONE]
    (asked,) = producer.coordinator.asked
    assert (asked.transactional_id, asked.producer_id) == ("t", PRODUCER)
    assert asked.verify_only == (version < 12)
    assert not asyncio.iscoroutine(producer.start(("topic", 0, batch(1)), version=version))
    assert stored(partition) == [b"v", b"v"]
    assert len(producer.coordinator.asked) == 1
    assert not len(partition.guards)


@pytest.mark.asyncio
async def test_one_question_names_all_partitions_and_the_others_do_not_wait(
    host: Host, producer: Producer
) -> None:
    partitions = [host.host("a", index) for index in range(3)]
    other = host.host("b", 7)
    await producer.send(("a", 1, batch()))
    at_the_answer: list[list[bytes | None]] = []
    producer.at_the_coordinator(lambda: at_the_answer.extend(map(stored, (*partitions, other))))
    rows = await producer.send(
        ("a", 2, batch()), ("a", 1, batch(1, value=b"w")), ("a", 0, batch()), ("b", 7, batch())
    )
    assert [(row.index, row.error_code) for row in rows] == [(2, 0), (1, 0), (0, 0), (7, 0)]
    asked = producer.coordinator.asked[1]
    assert [(topic.name, topic.partitions) for topic in asked.topics] == [("a", [2, 0]), ("b", [7])]
    assert at_the_answer == [[], [b"v", b"w"], [], []]
    assert [stored(each) for each in partitions] == [[b"v"], [b"v", b"w"], [b"v"]]


@pytest.mark.parametrize(
    "answer, version, error, message",
    [
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS, "NOT_COORDINATOR"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 9, ErrorCode.NOT_ENOUGH_REPLICAS, "NOT_AVAILABLE"),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, ErrorCode.NOT_ENOUGH_REPLICAS, "LOAD_IN"),
        (ErrorCode.NETWORK_EXCEPTION, 11, ErrorCode.NOT_ENOUGH_REPLICAS, "NETWORK_EXCEPTION"),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, 12, ErrorCode.NOT_ENOUGH_REPLICAS, "NOT_ATTEMPTED"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS, "CONCURRENT"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS, None),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE, None),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE, "was not added"),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH, None),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, None),
    ],
)
@pytest.mark.asyncio
async def test_the_coordinators_errors_become_those_that_a_producer_expects(
    host: Host, answer, version, error, message
) -> None:
    producer = Producer(host, add_partitions_to_txn_retry_backoff_max_ms=0)
    partition = host.host()
    producer.coordinator.error = answer
    (row,) = await producer.send(("topic", 0, batch()), version=version)
    assert (row.error_code, row.base_offset, row.log_start_offset) == (error, -1, -1)
    assert message is None or message in row.error_message
    assert (row.error_message is None) == (message is None)
    assert stored(partition) == []


@pytest.mark.asyncio
async def test_a_refused_partition_does_not_hold_up_another(host: Host, producer: Producer) -> None:
    host.host("topic", 0)
    led_no_more = host.host("topic", 1)
    producer.at_the_coordinator(led_no_more.end)
    assert await producer.errors(("topic", 0, batch()), ("topic", 1, batch())) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert stored(led_no_more) == []


@pytest.mark.asyncio
async def test_leadership_that_is_lost_meanwhile_names_the_new_leader(
    host: Host, producer: Producer
) -> None:
    partition = host.host()
    host.know_topic("topic", {0: 2})
    producer.at_the_coordinator(partition.end)
    (row,) = await producer.send(("topic", 0, batch()))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader.leader_id == 2
    assert stored(partition) == []


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.asyncio
async def test_a_partition_that_is_not_led_here_is_not_asked_about(
    host: Host, producer: Producer, is_whole
) -> None:
    host.host("here")
    sent = [("there", 0, batch()), *([] if is_whole else [("here", 0, batch())])]
    errors = await producer.errors(*sent)
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *([] if is_whole else [0])]
    names = [topic.name for each in producer.coordinator.asked for topic in each.topics]
    assert names == ([] if is_whole else ["here"])


@pytest.mark.asyncio
async def test_the_first_batch_is_refused_and_the_second_comes(
    host: Host, producer: Producer
) -> None:
    """It gets the same error, is not asked about, and both are taken in their order afterwards."""
    partition = host.host()
    producer.coordinator.errors = [ErrorCode.NOT_COORDINATOR]
    again = ErrorCode.NOT_ENOUGH_REPLICAS
    assert await producer.errors(("topic", 0, batch(0))) == [again]
    assert await producer.errors(("topic", 0, batch(1))) == [again]
    assert len(producer.coordinator.asked) == 1
    assert await producer.errors(("topic", 0, batch(0, value=b"first"))) == [ErrorCode.NONE]
    assert await producer.errors(("topic", 0, batch(1, value=b"second"))) == [ErrorCode.NONE]
    assert stored(partition) == [b"first", b"second"]


@pytest.mark.asyncio
async def test_a_later_batch_on_another_connection_does_not_overtake(
    host: Host, producer: Producer
) -> None:
    """KAFKA-14920, with a producer whose earlier batches the log does not have any more."""
    host.host()
    producer.coordinator.errors = [ErrorCode.NOT_COORDINATOR]
    await producer.send(("topic", 0, batch(4)), version=11)
    producer.peer = Peer("PLAINTEXT")
    out_of_order = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await producer.errors(("topic", 0, batch(5)), version=11) == out_of_order
    assert await producer.errors(("topic", 0, batch(4)), version=11) == [ErrorCode.NONE]


@pytest.mark.asyncio
async def test_a_tv2_producer_begins_at_sequence_zero(host: Host, producer: Producer) -> None:
    host.host()
    assert await producer.errors(("topic", 0, batch(3))) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await producer.errors(("topic", 0, batch(3)), version=11) == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    ], "the guard is there already"
    assert await producer.errors(("topic", 0, batch(0))) == [ErrorCode.NONE]


@pytest.mark.asyncio
async def test_an_enlisted_batch_waits_for_followers_as_any_other(
    host: Host, producer: Producer, until: Until
) -> None:
    partition = host.host(replicas_state=replicated())
    answer = asyncio.ensure_future(producer.start(("topic", 0, batch())))
    await until(lambda: partition.ack_queue.count)
    assert stored(partition) == [b"v"]
    for member in (B, C):
        assert not answer.done()
        fetch(partition, member, 1)
    ((row,),) = [topic.partition_responses for topic in (await answer).responses]
    assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.asyncio
async def test_a_batch_that_needs_a_thread_is_appended_after_it(
    host: Host, producer: Producer
) -> None:
    config = LogConfig(compression_type=Codec.GZIP)
    partitions = [host.host("topic", index, config=config) for index in range(2)]
    await producer.send(("topic", 1, batch()))
    assert await producer.errors(("topic", 0, batch()), ("topic", 1, batch(1))) == [0, 0]
    assert [stored(each) for each in partitions] == [[b"v"], [b"v", b"v"]]
    assert len(host.threads) == 3


@pytest.mark.asyncio
async def test_without_acks_a_refusal_closes_the_connection(host: Host, producer: Producer) -> None:
    partition = host.host()
    assert await producer.start(("topic", 0, batch()), acks=0) is None
    assert stored(partition) == [b"v"]
    other = host.host("other")
    producer.coordinator.error = ErrorCode.NOT_COORDINATOR
    with pytest.raises(CloseConnection, match="1 partitions failed"):
        await producer.start(("other", 0, batch()), acks=0)
    assert stored(other) == []


# Whole requests


@pytest.mark.parametrize("version", [3, 13])
@pytest.mark.parametrize("other", [batch(producer_id=8), batch(epoch=1)])
@pytest.mark.asyncio
async def test_two_producers_in_one_request_are_refused_whole(
    host: Host, producer: Producer, other: bytearray, version: int
) -> None:
    partitions = [host.host("topic", index) for index in range(3)]
    plain = batch(transactional=False, producer_id=9)
    rows = await producer.send(
        ("topic", 0, batch()),
        ("topic", 1, bytearray(other)),
        ("topic", 2, plain),
        version=version,
    )
    assert {row.error_code for row in rows} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    if version >= 8:
        assert "more than one producer ID" in rows[0].error_message
    assert [row.index for row in rows] == [0, 1, 2]
    assert [stored(each) for each in partitions] == [[], [], []]
    assert not producer.coordinator.asked


@pytest.mark.asyncio
async def test_a_transactional_batch_needs_a_transactional_id(
    host: Host, producer: Producer
) -> None:
    partition = host.host()
    errors = await producer.errors(("topic", 0, batch()), transactional_id=None)
    assert errors == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert stored(partition) == []


@pytest.mark.asyncio
async def test_what_is_refused_anyway_is_not_added_to_the_transaction(
    host: Host, producer: Producer
) -> None:
    partitions = [host.host("topic"), host.host("__consumer_offsets")]
    of_nobody = batch(producer_id=-1)
    assert await producer.errors(("__consumer_offsets", 0, batch()), ("topic", 0, of_nobody)) == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_RECORD,
    ]
    assert await producer.errors(("topic", 0, batch()), acks=2) == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert not producer.coordinator.asked
    assert [stored(each) for each in partitions] == [[], []]


@pytest.mark.asyncio
async def test_who_may_not_write_the_transactional_id_is_refused_whole(
    host: Host, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.host()
    plain = ("topic", 0, batch(transactional=False))
    monkeypatch.setattr(RequestContext, "may", lambda *_: False)
    assert await producer.errors(plain) == [ErrorCode.NONE], "no batch is transactional"
    again = ("topic", 0, batch(1, transactional=False))
    errors = await producer.errors(again, ("topic", 1, batch(5)))
    assert errors == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert not producer.coordinator.asked


@pytest.mark.parametrize("version, error", [(10, 48), (11, 120), (13, 120)])
def test_below_their_level_transactions_are_refused_as_before(host: Any, version, error) -> None:
    partition = host.host()
    sent = request(("topic", 0, batch()))
    answer: Any = produce(host, sent, host.context(version))
    ((row,),) = [topic.partition_responses for topic in answer.responses]
    assert row.error_code == error
    assert stored(partition) == []


@pytest.mark.asyncio
async def test_plain_batches_may_stand_beside_transactional_ones(
    host: Host, producer: Producer
) -> None:
    """And what is no batch is refused without a question."""
    partitions = [host.host("topic", index) for index in range(4)]
    broken = batch()
    broken[-1] ^= 1
    errors = await producer.errors(
        ("topic", 0, batch(transactional=False, producer_id=9)),
        ("topic", 1, bytearray(70)),
        ("topic", 2, None),
        ("topic", 3, broken),
    )
    assert errors == [0, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, 2]
    asked = [topic.partitions for each in producer.coordinator.asked for topic in each.topics]
    assert asked == [[3]], "its checksum is only computed when it is appended"
    assert stored(partitions[0]) == [b"v"]


def test_a_transactional_batch_is_never_taken_as_a_repeat(host: Host, producer: Producer) -> None:
    """Its request differs from a plain one only in its records."""
    partition, side = host.host(), Side(host, forgets=False)
    for number in (1, 2):
        side.ask(frame(13, batch(transactional=False, producer_id=9), number=number))
    assert side.peer.repeats
    answer = side.ask(frame(13, batch(), number=3))
    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert row(answer, 13, 3).error_code == error
    plain = batch(1, producer_id=9, transactional=False)
    assert row(side.ask(frame(13, plain, number=4)), 13, 4).error_code == 0
    assert stored(partition) == [b"v", b"v"]


@pytest.mark.asyncio
async def test_a_connection_that_is_lost_meanwhile_only_gets_no_answer(
    host: Host, producer: Producer
) -> None:
    partition, side = host.host(), Side(host, forgets=False)
    answer: Any = side.ask(frame(12, batch(), transactional_id="t"))

    def leave() -> None:
        side.peer.link = None

    producer.at_the_coordinator(leave)
    assert row(await answer, 12).error_code == 0
    assert stored(partition) == [b"v"]
    assert not len(partition.guards)
