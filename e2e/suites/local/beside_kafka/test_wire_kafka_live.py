"""Our encoding against a running Apache Kafka 4.4.0: it serves every request, and its answers are read to the last byte."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from logfleet.records.batch import iterate_headers
from logfleet.records.record import read_records
from logfleet.wire import messages as m
from logfleet.wire.apis import API_BY_NAME, api_of
from logfleet.wire.codec import decode, encode_bytes
from logfleet.wire.errors import ErrorCode

from e2e.compare.side import Side
from e2e.compare.talks import REFUSALS, TALKS, play
from e2e.compare.world import World
from e2e.harness.kafka import KafkaBroker
from e2e.harness.wire_connection import error_codes

GROUP_RECORDS: dict[int, tuple[type[msgspec.Struct], type[msgspec.Struct]]] = {
    1: (m.OffsetCommitKey, m.OffsetCommitValue),
    2: (m.GroupMetadataKey, m.GroupMetadataValue),
}
"""First two bytes of a key of __consumer_offsets -> what key and value are (CoordinatorRecordType of Kafka)."""
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


pytestmark = [pytest.mark.xdist_group("kafka-wire"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "kafka", **CONFIG) as kafka:
        side = Side("kafka", kafka.port, kafka.config["log.dirs"])
        yield World(side)
        side.close()


def test_kafka_serves_every_version_that_we_encode(world: World) -> None:
    assert set(TALKS) == {api.name for api in API_BY_NAME.values() if api.advertised}
    answer = world.side.connection.call(m.ApiVersionsRequest(client_software_name="a"), 0)
    served = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def ask(request: msgspec.Struct, version: int) -> Any:
        answer = world.side.get(request, version)
        name = api_of(type(request)).name
        allowed = {ErrorCode.NONE} | REFUSALS.get(name, set())
        assert set(error_codes(answer)) <= allowed, f"{name} {version}: {answer}"
        return answer

    for name in TALKS:
        api = API_BY_NAME[name]
        assert served[api.key] == (api.min_version, api.max_version), name
        for version in range(api.served_min, api.max_version + 1):
            play(api, version, world, ask)


def test_the_group_records_that_kafka_wrote_are_read(world: World) -> None:
    """No other test has to have run on this broker."""
    versions = set()
    for name in ("JoinGroup", "SyncGroup", "OffsetCommit", "LeaveGroup"):
        api = API_BY_NAME[name]
        for version in range(api.served_min, api.max_version + 1):
            play(api, version, world, world.side.get)
    for key, value in consumer_offsets(world.side):
        kind = GROUP_RECORDS.get(int.from_bytes(key[:2], "big"))
        if kind is None or value is None:
            continue
        version = int.from_bytes(value[:2], "big")
        for cls, content, of in ((kind[0], key, 0), (kind[1], value, version)):
            read, end = decode(cls, of, content, 2)
            assert end == len(content)
            assert encode_bytes(read, of) == content[2:]
        versions.add((kind[1].__name__, version))
    assert versions == {
        ("OffsetCommitValue", 1),
        ("OffsetCommitValue", 4),
        ("GroupMetadataValue", 3),
    }


def consumer_offsets(side: Side) -> Iterator[tuple[bytes, bytes | None]]:
    """Key and value of every record of __consumer_offsets, oldest first."""
    named = m.MetadataRequest.MetadataRequestTopic(name="__consumer_offsets")
    (topic,) = side.get(m.MetadataRequest(topics=[named]), 13).topics
    offset = 0
    while True:
        partition = m.FetchRequest.FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
        wanted = m.FetchRequest.FetchTopic(topic_id=topic.topic_id, partitions=[partition])
        answer = side.get(m.FetchRequest(max_bytes=1 << 20, topics=[wanted]), 18)
        (found,) = answer.responses[0].partitions
        for position, _ in iterate_headers(found.records):
            for record in read_records(found.records, position):
                offset = record.offset + 1
                yield bytes(record.key or b""), record.value and bytes(record.value)
        if offset >= found.high_watermark:
            return
