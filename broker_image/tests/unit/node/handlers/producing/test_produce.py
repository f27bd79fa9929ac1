import asyncio
import errno
from typing import Any

import pytest
from logfleet.log.config import LogConfig
from logfleet.net.connection import CloseConnection
from logfleet.node.handlers.producing.produce import HANDLERS, produce
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.batch import TRANSACTIONAL_BIT, parse_header, write_crc
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.telemetry.decisions import Kind
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ProduceRequest, ProduceResponse

from broker_image.tests.unit.controller.running.controller_rig import recorded
from broker_image.tests.unit.node.partitions.replicas_rig import A, B, C, fetch, replicated

NOW = 1_700_000_000_000


def batch(*values: bytes, **given: Any) -> bytearray:
    return build_batch([Record(b"key", value, NOW) for value in values], **given)


def request(
    *rows: tuple[str, int, bytearray | None], acks: int = -1, timeout_ms: int = 0
) -> ProduceRequest:
    topics: dict[str, list[Any]] = {}
    for topic, index, records in rows:
        data = None if records is None else memoryview(records)
        row = ProduceRequest.PartitionProduceData(index=index, records=data)
        topics.setdefault(topic, []).append(row)
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic, topic_id=topic.encode().ljust(16, b"-"), partition_data=data
            )
            for topic, data in topics.items()
        ],
    )


def ask(host, asked: ProduceRequest, version: int = 12, client_id: str = "c") -> Any:
    answer: Any = produce(host, asked, host.context(version, client_id))
    if asyncio.iscoroutine(answer):
        answer = asyncio.run(answer)
    if answer is not None:
        encode(answer, version)  # nothing is set that this version lacks
    return answer


def only_row(answer: Any) -> Any:
    ((row,),) = [topic.partition_responses for topic in answer.responses]
    return row


def stored(partition) -> list[tuple[int, bytes | None]]:
    piece = partition.log.read(0, 1 << 20)
    return [(record.offset, record.value) for record in read_records(piece.read())]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [-1, 1])
def test_a_batch_is_appended_and_its_offset_reported(host, version, acks) -> None:
    partition = host.host()
    ask(host, request(("topic", 0, batch(b"zero"))))
    answer = ask(host, request(("topic", 0, batch(b"one", b"two")), acks=acks), version)
    row = only_row(answer)
    assert (row.index, row.error_code, row.base_offset) == (0, 0, 1)
    assert (row.log_append_time_ms, row.log_start_offset) == (-1, 0)
    assert partition.high_watermark == 3
    piece = partition.log.read(1, 1 << 20)
    assert parse_header(piece.read()).leader_epoch == 5


def test_answers_come_in_the_order_of_the_request(host) -> None:
    for index in range(3):
        host.host("a", index)
    host.host("b", 7)
    asked = request(("a", 2, batch(b"x")), ("a", 0, batch(b"x")), ("b", 7, batch(b"x")))
    answer = ask(host, asked)
    assert [
        (topic.name, [row.index for row in topic.partition_responses]) for topic in answer.responses
    ] == [("a", [2, 0]), ("b", [7])]


def test_without_acks_there_is_no_answer_and_a_failure_closes(host) -> None:
    partition = host.host()
    assert ask(host, request(("topic", 0, batch(b"x")), acks=0)) is None
    assert stored(partition) == [(0, b"x")]
    with pytest.raises(CloseConnection, match="1 partitions failed") as closed:
        ask(host, request(("topic", 0, batch(b"y")), ("topic", 1, batch(b"z")), acks=0))
    assert isinstance(closed.value.unsent, ProduceResponse)
    assert [
        row.error_code
        for topic in closed.value.unsent.responses
        for row in topic.partition_responses
    ] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert partition.high_watermark == 2


def test_a_duplicate_gets_the_old_offset(host) -> None:
    host.host()
    first = batch(b"x", b"y", producer=ProducerStamp(7, 0, 0))
    again = bytearray(first)
    assert only_row(ask(host, request(("topic", 0, first)))).base_offset == 0
    row = only_row(ask(host, request(("topic", 0, again))))
    assert (row.error_code, row.base_offset) == (0, 0)
    gap = batch(b"z", producer=ProducerStamp(7, 0, 5))
    row = only_row(ask(host, request(("topic", 0, gap))))
    assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (row.base_offset, row.log_start_offset) == (-1, 0)


def test_log_append_time_is_reported(host) -> None:
    from logfleet.records.batch import TimestampType

    host.host(config=LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    row = only_row(ask(host, request(("topic", 0, batch(b"x")))))
    assert row.log_append_time_ms == NOW


def transactional() -> bytearray:
    made = batch(b"x", producer=ProducerStamp(7, 0, 0))
    made[22] |= TRANSACTIONAL_BIT
    write_crc(made)
    return made


@pytest.mark.parametrize(
    "records, version, acks, error",
    [
        (None, 12, -1, ErrorCode.INVALID_RECORD),
        (bytearray(), 12, -1, ErrorCode.INVALID_RECORD),
        (bytearray(60), 12, -1, ErrorCode.CORRUPT_MESSAGE),
        (bytearray(10), 12, 2, ErrorCode.INVALID_RECORD),  # a malformed batch comes first
        (batch(b"x") + batch(b"y"), 12, -1, ErrorCode.INVALID_RECORD),
        (batch(b"x"), 12, 2, ErrorCode.INVALID_REQUIRED_ACKS),
        (batch(b"x", codec=Codec.ZSTD), 6, -1, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (transactional(), 10, -1, ErrorCode.INVALID_TXN_STATE),
        (transactional(), 11, -1, ErrorCode.TRANSACTION_ABORTABLE),
        (batch(b"x")[:-1] + b"!", 12, -1, ErrorCode.CORRUPT_MESSAGE),
        (batch(bytes(2_000_000)), 12, -1, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_is_written(host, records, version, acks, error) -> None:
    partition = host.host()
    given = None if records is None else bytearray(records)
    row = only_row(ask(host, request(("topic", 0, given), acks=acks), version))
    assert (row.error_code, row.base_offset) == (error, -1)
    assert partition.high_watermark == 0


def test_zstd_is_taken_from_version_7_on(host) -> None:
    host.host()
    assert (
        only_row(ask(host, request(("topic", 0, batch(b"x", codec=Codec.ZSTD))), 7)).error_code == 0
    )


def test_internal_topics_are_for_the_brokers_and_their_tools(host) -> None:
    host.host("__consumer_offsets")
    asked = request(("__consumer_offsets", 0, batch(b"x")))
    assert only_row(ask(host, asked)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert only_row(ask(host, asked, client_id="__admin_client")).error_code == 0


@pytest.mark.parametrize("version, known_by_id", [(12, False), (13, True)])
def test_the_leader_is_returned_if_this_broker_does_not_lead(host, version, known_by_id) -> None:
    host.know_topic("topic", {0: 2, 1: 3})
    host.know_broker(2, "two.example", 9093)
    asked = request(
        ("topic", 0, batch(b"x")),
        ("topic", 1, batch(b"x")),
        ("topic", 2, batch(b"x")),
        ("other", 0, batch(b"x")),
    )
    answer = ask(host, asked, version)
    rows = [row for topic in answer.responses for row in topic.partition_responses]
    unknown_topic = (
        ErrorCode.UNKNOWN_TOPIC_ID if known_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert [row.error_code for row in rows] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        unknown_topic,
    ]
    assert (rows[0].current_leader.leader_id, rows[0].current_leader.leader_epoch) == (2, 9)
    assert rows[1].current_leader.leader_id == 3
    assert rows[2].current_leader is None
    (endpoint,) = answer.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (
        2,
        "two.example",
        9093,
        "zone",
    )
    old = ask(host, asked, 9)
    assert all(
        row.current_leader is None for topic in old.responses for row in topic.partition_responses
    )


def test_a_missing_leader_is_returned_with_the_epoch(host) -> None:
    host.know_topic("topic", {0: -1})
    answer = ask(host, request(("topic", 0, batch(b"x"))), 12)
    leader = only_row(answer).current_leader
    assert (leader.leader_id, leader.leader_epoch, answer.node_endpoints) == (-1, 9, [])


def test_invalid_acks_are_reported_before_the_leader(host) -> None:
    """ReplicaManager.appendRecords; an unknown partition comes first."""
    host.know_topic("topic", {0: 2})
    asked = request(("topic", 0, batch(b"x")), ("topic", 7, batch(b"x")), acks=2)
    rows = ask(host, asked, 12).responses[0].partition_responses
    assert [(row.error_code, row.current_leader) for row in rows] == [
        (ErrorCode.INVALID_REQUIRED_ACKS, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    ]


def test_a_failing_disk_is_reported_to_the_client_and_to_the_broker(host, monkeypatch) -> None:
    partition = host.host()
    failure = OSError(errno.EIO, "bad sector")

    def failing(*_: object) -> None:
        raise failure

    monkeypatch.setattr(partition.log, "append_as_leader", failing)
    row = only_row(ask(host, request(("topic", 0, batch(b"x")))))
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert host.failed == [(partition, failure)]


def test_a_batch_for_another_codec_is_recompressed_in_a_thread(host) -> None:
    partition = host.host(config=LogConfig(compression_type=Codec.LZ4))
    other = host.host("plain")
    asked = request(("plain", 0, batch(b"p")), ("topic", 0, batch(b"x", b"y", codec=Codec.GZIP)))
    answer = ask(host, asked)
    assert [row.error_code for topic in answer.responses for row in topic.partition_responses] == [
        0,
        0,
    ]
    assert len(host.threads) == 1
    assert stored(partition) == [(0, b"x"), (1, b"y")]
    assert parse_header(partition.log.read(0, 1000).read()).codec_bits == Codec.LZ4
    assert stored(other) == [(0, b"p")]


def test_rows_stand_in_the_requests_order_whatever_takes_long(host) -> None:
    host.host(config=LogConfig(compression_type=Codec.LZ4))
    host.host("plain")
    rows = (("topic", 0, batch(b"x")), ("plain", 0, batch(b"p")), ("none", 0, batch(b"n")))
    answer = ask(host, request(*rows))
    assert [
        (topic.name, topic.partition_responses[0].error_code) for topic in answer.responses
    ] == [
        ("topic", 0),
        ("plain", 0),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_a_compressed_batch_from_the_future_is_read_in_a_thread(host) -> None:
    host.host()
    made = build_batch([Record(b"k", b"v", NOW + 7_200_000)], codec=Codec.GZIP)
    row = only_row(ask(host, request(("topic", 0, made))))
    assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    assert len(host.threads) == 1


def test_where_every_record_is_read_what_takes_long_is_read_in_a_thread(host) -> None:
    partition = host.host(config=LogConfig(validates_records=True))
    records = [Record(None, b"v" * 100, NOW)]
    for made in (build_batch(records * 1000), build_batch(records * 9, codec=Codec.ZSTD)):
        good = bytes(made)
        made[61:70] = b"\xff" * 9
        write_crc(made)
        row = only_row(ask(host, request(("topic", 0, made))))
        assert row.error_code == ErrorCode.INVALID_RECORD
        assert only_row(ask(host, request(("topic", 0, bytearray(good))))).error_code == 0
    assert len(host.threads) == 4
    assert partition.log.log_end_offset == 1009


def test_records_without_key_are_named_on_a_compacted_topic(host) -> None:
    host.host(config=LogConfig(cleanup_policy=frozenset({"compact"})))
    made = build_batch([Record(b"k", b"v", NOW), Record(None, b"v", NOW)], codec=Codec.SNAPPY)
    row = only_row(ask(host, request(("topic", 0, made))))
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in row.record_errors] == [1]
    assert "key" in row.error_message
    assert row.log_start_offset == 0


def test_leadership_may_end_while_a_thread_prepares(host, monkeypatch) -> None:
    partition = host.host(config=LogConfig(compression_type=Codec.LZ4))
    host.know_topic("topic", {0: 2})
    real = host.run_in_thread

    async def meanwhile(work: Any, *args: object) -> Any:
        host.partitions.remove(partition)
        return await real(work, *args)

    monkeypatch.setattr(host, "run_in_thread", meanwhile)
    row = only_row(ask(host, request(("topic", 0, batch(b"x")))))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_it_serves_produce() -> None:
    assert list(HANDLERS) == [ProduceRequest]


class TestDurableFirst:
    """Topics that want records on disk before they are acknowledged (flush.messages)."""

    class Rule:
        holds = True

        def appended(self, _partition: LeaderPartition) -> None:
            pass

        def flush(self, _partition: LeaderPartition) -> bool:
            return self.holds

    @staticmethod
    def pending(host, records: bytearray, *more: tuple[str, int, bytearray]) -> "asyncio.Task[Any]":
        asked = request(("topic", 0, records), *more)
        answer = produce(host, asked, host.context(12))
        assert asyncio.iscoroutine(answer), "it should wait"
        return asyncio.ensure_future(answer)

    def held(self, host) -> Any:
        return host.host(config=LogConfig(flush_messages=1), rule=self.Rule())

    def test_the_answer_waits_until_it_is_committed(self, host) -> None:
        async def main() -> None:
            partition = self.held(host)
            host.host("plain")
            pending = self.pending(host, batch(b"x"), ("plain", 0, batch(b"p")))
            await asyncio.sleep(0)
            assert not pending.done()
            partition.ends.flushed(1)
            answer = await pending
            rows = [row for topic in answer.responses for row in topic.partition_responses]
            assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 0)]

        asyncio.run(main())

    def test_a_repetition_waits_as_the_first_did(self, host) -> None:
        async def main() -> None:
            partition = self.held(host)
            first = batch(b"x", producer=ProducerStamp(7, 0, 0))
            again = bytearray(first)
            pending = [self.pending(host, each) for each in (first, again)]
            await asyncio.sleep(0)
            assert not any(each.done() for each in pending)
            partition.ends.flushed(1)
            for each in pending:
                assert only_row(await each).base_offset == 0

        asyncio.run(main())

    def test_without_acknowledgement_nobody_waits(self, host) -> None:
        self.held(host)
        assert produce(host, request(("topic", 0, batch(b"x")), acks=0), host.context(12)) is None

    def test_a_leader_that_loses_the_partition_meanwhile_answers_so(self, host) -> None:
        async def main() -> None:
            partition = self.held(host)
            host.know_topic("topic", {0: 2})
            pending = self.pending(host, batch(b"x"))
            await asyncio.sleep(0)
            host.partitions.remove(partition)
            row = only_row(await pending)
            assert (row.error_code, row.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            assert row.current_leader.leader_id == 2

        asyncio.run(main())

    def test_what_the_disk_does_not_take_is_not_acknowledged(self, host) -> None:
        async def main() -> None:
            partition = self.held(host)
            host.know_topic("topic", {0: 1})
            pending = self.pending(host, batch(b"x"))
            await asyncio.sleep(0)
            host.partitions.offline.add([(partition.topic_id, 0)])  # as the broker does it
            host.partitions.remove(partition)
            row = only_row(await pending)
            assert (row.error_code, row.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)

        asyncio.run(main())


# With followers


def park(host, asked: ProduceRequest) -> Any:
    return produce(host, asked, host.context(12))


@pytest.mark.parametrize("acks, error", [(-1, ErrorCode.NOT_ENOUGH_REPLICAS), (1, ErrorCode.NONE)])
def test_with_too_few_in_sync_only_the_leaders_own_acknowledgement_is_to_be_had(
    host, acks, error
) -> None:
    """Nothing is appended that could not be acknowledged (Partition.appendRecordsToLeader)."""
    partition = host.host(replicas_state=replicated(isr=(A,)))
    row = only_row(ask(host, request(("topic", 0, batch(b"a")), acks=acks)))
    assert (row.error_code, row.log_start_offset) == (error, 0)
    assert partition.log.log_end_offset == (error is ErrorCode.NONE)


def test_a_lack_of_replicas_in_sync_is_recorded_once_for_each_state_of_the_partition(host) -> None:
    """Producers try again for as long as it lasts."""
    partition = host.host(replicas_state=replicated(isr=(A,)))
    for _ in range(3):
        ask(host, request(("topic", 0, batch(b"a")), acks=-1))
    (decision,) = recorded(host.decisions, Kind.REFUSAL)
    assert decision.cause == "acks=all is refused: 1 in sync, min.insync.replicas is 2"
    assert (decision.topic, decision.partition) == ("topic", 0)
    state = partition.replicas_state.state
    assert partition.learned(state.changed(min_isr=3), 9)
    ask(host, request(("topic", 0, batch(b"a")), acks=-1))
    assert len(recorded(host.decisions, Kind.REFUSAL)) == 2


@pytest.mark.asyncio
async def test_a_batch_that_all_acknowledge_is_answered_when_followers_have_it(host) -> None:
    partition = host.host(replicas_state=replicated())
    asked = request(("topic", 0, batch(b"a")), timeout_ms=60_000)
    answer = asyncio.ensure_future(park(host, asked))
    await asyncio.sleep(0)
    fetch(partition, B, 1)
    assert not answer.done()
    fetch(partition, C, 1)
    row = only_row(await answer)
    assert (row.error_code, row.base_offset) == (0, 0)


@pytest.mark.asyncio
async def test_a_batch_that_followers_do_not_get_in_time_is_reported_with_its_offset(host) -> None:
    """As Kafka's DelayedProduce; the producer sends it again and finds it there."""
    host.host(replicas_state=replicated())
    asked = request(("topic", 0, batch(b"a")), timeout_ms=1)
    row = only_row(await park(host, asked))
    assert (row.error_code, row.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)


@pytest.mark.asyncio
async def test_a_retry_waits_for_followers_like_the_first_attempt(host) -> None:
    partition = host.host(replicas_state=replicated())
    stamp = ProducerStamp(7, 0, 0)
    for _ in range(2):
        asked = request(("topic", 0, batch(b"a", producer=stamp)), timeout_ms=1)
        row = only_row(await park(host, asked))
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    for member in (B, C):
        fetch(partition, member, 1)
    row = only_row(park(host, request(("topic", 0, batch(b"a", producer=stamp)))))
    assert (row.error_code, row.base_offset, partition.log.log_end_offset) == (0, 0, 1)


@pytest.mark.asyncio
async def test_a_parked_batch_ends_with_the_leader_epoch_of_its_append(host) -> None:
    partition = host.host(replicas_state=replicated())
    asked = request(("topic", 0, batch(b"a")), timeout_ms=60_000)
    answer = asyncio.ensure_future(park(host, asked))
    await asyncio.sleep(0)
    host.know_topic("topic", {0: 2})
    host.partitions.remove(partition)
    row = only_row(await answer)
    assert (row.error_code, row.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert row.current_leader.leader_id == 2
