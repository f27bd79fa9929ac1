"""Batches that no reader understands: a topic may refuse them, and where one is in the log, readers get past it."""

import json

import pytest
from confluent_kafka import Consumer
from logfleet.records.batch import HEADER_SIZE, write_crc
from logfleet.records.record import Record, build_batch
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.harness.clients import CLIENTS
from e2e.harness.command_line import PATIENCE_S, logfleet, said
from e2e.harness.processes import Broker, Rig
from e2e.harness.wire_connection import WireConnection

LAST = [b"6", b"7", b"8"]


@pytest.fixture
def broker(rig: Rig) -> Broker:
    return rig.broker()


def batch(first: int) -> bytearray:
    """Of three records, as of now."""
    return build_batch([Record(b"k", b"%d" % number, -1) for number in range(first, first + 3)])


def junk() -> bytearray:
    made = batch(3)
    made[HEADER_SIZE:] = b"\xff" * (len(made) - HEADER_SIZE)
    write_crc(made)
    return made


def produced(broker: Broker, topic: str, records: bytearray) -> ErrorCode:
    data = m.ProduceRequest.PartitionProduceData(records=bytes(records))
    row = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    with WireConnection(broker.port) as connection:
        answer = connection.call(m.ProduceRequest(acks=-1, topic_data=[row]), 12)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def topic_with_a_bad_batch(broker: Broker) -> str:
    """Offsets 3 to 5 of it; what lies around is sound."""
    said(broker, "topic", "create", "t", "-p", "1")
    assert {produced(broker, "t", each) for each in (batch(0), junk(), batch(6))} == {0}
    return "t"


def test_a_topic_may_have_every_record_read_before_it_is_acknowledged(broker: Broker) -> None:
    said(broker, "topic", "create", "t", "-p", "1", "-c", "logfleet.record.validation=full")
    assert produced(broker, "t", batch(0)) is ErrorCode.NONE
    assert produced(broker, "t", junk()) is ErrorCode.INVALID_RECORD
    assert produced(broker, "t", batch(3)) is ErrorCode.NONE
    read = CLIENTS["confluent-kafka"].read(broker.bootstrap, "t", 6)
    assert [record.value for record in read] == [b"%d" % number for number in range(6)]


def test_a_batch_that_cannot_be_read_is_found_and_deleted(broker: Broker) -> None:
    topic = topic_with_a_bad_batch(broker)
    stuck = logfleet(broker, "consume", topic, "--from-beginning", "--exit-at-end")
    assert stuck.returncode == 1
    assert stuck.stdout.split() == [b"0", b"1", b"2"]
    segment = str(broker.data / "t-0" / f"{0:020}.log")
    named = logfleet(broker, "dump", segment, "--records").stderr
    assert b"the batch at offset 3 " in named, named
    batches = [json.loads(row) for row in said(broker, "dump", segment, "-o", "json").splitlines()]
    (behind,) = [row["last"] + 1 for row in batches if row["base"] == 3]
    said(broker, "records", "delete", topic, "-p", "0", "--before", str(behind), "--execute")
    read = CLIENTS["confluent-kafka"].read(broker.bootstrap, topic, 3)
    assert [record.value for record in read] == LAST


def test_a_group_is_moved_past_a_batch_that_cannot_be_read(broker: Broker) -> None:
    topic = topic_with_a_bad_batch(broker)
    place = ("-t", topic, "-p", "0", "--to", "6", "--execute")
    said(broker, "group", "reset-offsets", "g", *place)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    consumer.subscribe([topic])
    read = consumer.consume(3, PATIENCE_S)
    consumer.close()
    assert [message.value() for message in read] == LAST
