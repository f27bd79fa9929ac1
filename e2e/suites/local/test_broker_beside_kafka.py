"""One broker beside a running Apache Kafka 4.4.0: the same requests, the same answers."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from logfleet.records.record import Record, build_batch
from logfleet.wire import messages as m
from logfleet.wire.apis import API_BY_KEY, API_BY_NAME, API_VERSIONS_KEY

from e2e.harness.admin_requests import TALKS
from e2e.harness.client_requests import GROUP, TOPIC
from e2e.harness.kafka import KafkaBroker
from e2e.harness.processes import Broker
from e2e.harness.talks import Talker, error_codes
from e2e.harness.wire_connection import Disconnected, WireConnection

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(900)]
CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
T0 = time.time_ns() // 1_000_000 - 3_600_000
"""Not so long ago that retention takes the records during the test."""
TIMES = "times"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "kafka", **CONFIG) as broker:
        yield from filled(broker.port, Path(broker.config["log.dirs"]))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talker]:
    broker = Broker(tmp_path_factory.mktemp("ours"), CONFIG)
    broker.start()
    yield from filled(broker.port, broker.data)
    broker.close()


def filled(port: int, log_dir: Path) -> Iterator[Talker]:
    """A talker whose topic holds the same 40 records on both sides: times that go up, then back."""
    talker = Talker(port, log_dir)
    talker.make_topic(TOPIC)
    topic_id = talker.make_topic(TIMES)
    batches = [[Record(b"k", b"v", T0 + 10 * batch + n) for n in range(4)] for batch in range(8)]
    batches += [[Record(b"k", b"v", T0 + 5) for _ in range(4)] for _ in range(2)]
    for records in batches:
        partition = m.ProduceRequest.PartitionProduceData(records=bytes(build_batch(records)))
        topic = m.ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[partition])
        answer = talker.call(m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 13)
        assert not any(error_codes(answer)), answer
    yield talker
    talker.close()


def advertised(talker: Talker, version: int) -> dict[int, tuple[int, int]]:
    answer = talker.call(
        m.ApiVersionsRequest(client_software_name="a", client_software_version="1"), version
    )
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def test_every_version_that_is_advertised_is_served_as_kafka_serves_it(
    kafka: Talker, ours: Talker
) -> None:
    """The same talks get the same answers, field by field. What Kafka has and we do not is not advertised.

    elsewhere: what the machine or a broker's file has a part in has tests of its own, below and in test_admin_beside_kafka.
    """
    # transactions come later, and are told to be unavailable until then
    ours.world.coordinators = kafka.world.coordinators = (GROUP,)
    rows = advertised(ours, 5)
    theirs = advertised(kafka, 5)
    assert rows.items() <= theirs.items()
    for version in range(5):
        assert advertised(ours, version) == rows
    talked = [API_BY_NAME[name] for name in TALKS if API_BY_NAME[name].key in rows]
    elsewhere = {"DescribeConfigs", "DescribeLogDirs", "ListConfigResources"}
    for api in (api for api in talked if api.name not in elsewhere):
        for version in range(api.served_min, api.max_version + 1):
            assert ours.outcome(api, version) == kafka.outcome(api, version), (api.name, version)


def test_what_is_not_advertised_closes_the_connection(kafka: Talker, ours: Talker) -> None:
    """As it does with Kafka. Only ApiVersions is answered, in version 0 with the versions there are (KIP-511)."""
    rows = advertised(ours, 4)
    for key, api in API_BY_KEY.items():
        low, high = rows.get(key, (api.served_min, api.served_min - 1))
        for version in {max(low, api.served_min) - 1, high + 1} - {-1}:
            frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\xff\xff\0\0"
            for talker in (kafka, ours) if key in rows else (ours,):
                with WireConnection(talker.port) as connection:
                    connection.socket.sendall(len(frame).to_bytes(4, "big") + frame)
                    if key == API_VERSIONS_KEY:
                        answer = connection.frame()
                        assert answer[:6] == b"\0\0\0\7\0\x23", talker.port
                        assert answer[6:] == b"\0\0\0\1\0\x12\0\0\0\5"
                    else:
                        with pytest.raises(Disconnected):
                            connection.frame()


def test_list_offsets_finds_what_kafka_finds(kafka: Talker, ours: Talker) -> None:
    """All special timestamps in all versions, and times before, between, beyond and after those that go back."""
    api = API_BY_NAME["ListOffsets"]
    for version in range(api.served_min, api.max_version + 1):
        for timestamp in (*range(-8, 1), T0, T0 + 5, T0 + 15, T0 + 73, T0 + 74, 2**62):
            partition = m.ListOffsetsRequest.ListOffsetsPartition(timestamp=timestamp)
            topic = m.ListOffsetsRequest.ListOffsetsTopic(name=TIMES, partitions=[partition])
            answers = []
            for talker in (kafka, ours):
                request = m.ListOffsetsRequest(topics=[topic])
                (found,) = talker.call(request, version).topics[0].partitions
                answers.append(found)
            assert answers[0] == answers[1], (version, timestamp)
