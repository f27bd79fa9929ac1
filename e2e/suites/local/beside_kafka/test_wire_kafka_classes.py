"""Our codec against the message classes of Apache Kafka 4.4.0 itself: every message, every version."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logfleet.wire.codec import encode_bytes
from logfleet.wire.schema import load_table

from broker_image.tests.golden.kio_pairs import Drawer
from e2e.harness.kafka_codec import KafkaCodec, as_json


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCodec]:
    with KafkaCodec() as codec:
        yield codec


@pytest.mark.parametrize("name", load_table())
def test_kafka_reads_our_bytes_and_writes_the_same(kafka: KafkaCodec, name: str) -> None:
    low, high = load_table()[name].versions
    for version in range(low, high + 1):
        check(kafka, name, version)


def check(kafka: KafkaCodec, name: str, version: int) -> None:
    @settings(max_examples=3, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def examples(data: st.DataObject) -> None:
        for full in (False, True):
            ours, _ = Drawer(data, name, version, full=full).message(None)
            written = encode_bytes(ours, version)
            again, fields = kafka.reencode(name, version, written)
            assert again == written
            assert fields == as_json(ours, version)

    examples()
